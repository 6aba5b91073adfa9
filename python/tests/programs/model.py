"""A small model that allocates like a large one."""

import torch

torch.backends.cudnn.enabled = False


def build(layers: int = 4, width: int = 1024) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).cuda()
    return model, torch.optim.Adam(model.parameters())


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rows: int = 256) -> None:
    optimizer.zero_grad()
    model(torch.randn(rows, 1024, device="cuda")).sum().backward()
    optimizer.step()
