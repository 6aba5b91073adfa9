"""Trains a torchvision model, such as `resnet50` or `vit_b_16`, on images in mixed precision."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("network")
parser.add_argument("--batch", type=int, default=64)
arguments = parser.parse_args()

model = torchvision.models.get_model(arguments.network).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    images = torch.randn(arguments.batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (arguments.batch,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
