"""One of several ranks. The first attempt of the job runs out of memory, the second does not."""

import os

import torch
from model import build, train

import torch_memviz

with torch_memviz.record("run.pickle"):
    model, optimizer = build(layers=2 + int(os.environ["RANK"]))
    train(model, optimizer)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
