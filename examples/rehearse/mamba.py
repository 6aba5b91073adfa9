"""Trains Mamba (130 million parameters), built from its configuration."""

import argparse

import torch
from transformers import MambaConfig, MambaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--tokens", type=int, default=256)
arguments = parser.parse_args()

model = MambaForCausalLM(MambaConfig(hidden_size=768, num_hidden_layers=24)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    tokens = torch.randint(50280, (arguments.batch, arguments.tokens), device="cuda")
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
