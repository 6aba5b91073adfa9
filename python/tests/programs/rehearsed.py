"""Runs steps with a convolution that read device values. With `forever`, a loop waits for a nonzero value.

With `killed`, it kills itself with a signal; with `waits`, it waits for a signal.
"""

import os
import signal
import sys
import time

import torch
from torch import nn

if "forever" in sys.argv:
    counter = torch.zeros(10, device="cuda")
    while not bool((counter > 0).all()):
        counter = counter + 1

layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64 * 64, 10)]
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    output = model(torch.randn(16, 3, 64, 64, device="cuda"))
    loss = output.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGTERM)
if "waits" in sys.argv:
    print("ready", flush=True)
    time.sleep(600)
# PyTorch compiles the kernel of this function when it is called.
torch.erfinv(output)
print(output[output > 0].shape)
print("peak", torch.cuda.memory_stats()["requested_bytes.all.peak"])
