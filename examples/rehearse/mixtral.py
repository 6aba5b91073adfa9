"""Builds Mixtral, a mixture of experts, from its configuration with `--layers` of its 32 layers, and reads a prompt."""

import argparse

import torch
from transformers import MixtralConfig, MixtralForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--tokens", type=int, default=4096)
arguments = parser.parse_args()

torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = MixtralForCausalLM(MixtralConfig(num_hidden_layers=arguments.layers))
tokens = torch.randint(32000, (arguments.batch, arguments.tokens), device="cuda")
with torch.inference_mode():
    model(tokens, use_cache=False, logits_to_keep=1)
