"""Frees memory that another stream is using."""

import torch

side = torch.cuda.Stream()
used = torch.empty(1 << 20, device="cuda")
used.record_stream(side)
del used
torch.empty(10, device="cuda")
