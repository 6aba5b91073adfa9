"""Has its peak where walks at the borders of a model and an optimizer do not see it, or only some of them."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

#: Rows of the input of each step: most in the third one, and a little more in each step.
ROWS = {"early": [900, 900, 1000, *[980] * 100], "growing": [1000 + step for step in range(7)], "optimizer": [1] * 3}


def train(rows: list[int]) -> None:
    width = 64 if max(rows) > 1 else 1024
    net = nn.Sequential(*[nn.Linear(width, width) for _ in range(40)]).cuda()
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    for count in rows:
        net(torch.zeros(32 * count, width, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def keep() -> list[torch.Tensor]:
    """Return graphs whose activations would be recomputed if they were read."""
    net = nn.Linear(1024, 1024).cuda()
    x = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
    return [checkpoint(net, x, use_reentrant=False).sum() for _ in range(2)]


if sys.argv[1] == "checkpoint":
    kept = keep()
else:
    train(ROWS[sys.argv[1]])
