"""Records more entries than a ring buffer holds."""

import torch

import torch_memviz

with torch_memviz.record("run.pickle", ring="4 MiB"):
    for _ in range(3000):
        torch.empty(1000, device="cuda")
