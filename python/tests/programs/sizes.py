"""Uses operators whose result size depends on values: masks, `nonzero` and `where`."""

import torch

numbers = torch.randn(1000, device="cuda")
found = numbers[numbers > 0]
print(len(found), len(numbers.nonzero()), len(torch.where(numbers.reshape(10, 100) > 0)[0]))
