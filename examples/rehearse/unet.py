"""Trains the UNet of Stable Diffusion 1.5, built from its configuration, with `--batch` latents of 512x512 images."""

import argparse

import torch
from diffusers import UNet2DConditionModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
arguments = parser.parse_args()

model = UNet2DConditionModel(
    sample_size=64,
    block_out_channels=(320, 640, 1280, 1280),
    cross_attention_dim=768,
    attention_head_dim=8,
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    latents = torch.randn(arguments.batch, 4, 64, 64, device="cuda")
    text = torch.randn(arguments.batch, 77, 768, device="cuda")
    time = torch.randint(1000, (arguments.batch,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(latents, time, text).sample.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
