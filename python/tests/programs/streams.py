"""Memory that another stream uses when it is freed."""

import torch

side = torch.cuda.Stream()
used = torch.empty(1 << 20, device="cuda")
used.record_stream(side)
del used
torch.empty(10, device="cuda")
