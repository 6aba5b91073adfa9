"""Builds Llama 3 (8 billion parameters) from its configuration. It reads a prompt; with `--train`, it is trained."""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--tokens", type=int, default=8192)
parser.add_argument("--train", action="store_true")
arguments = parser.parse_args()

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=131072,
)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
tokens = torch.randint(config.vocab_size, (arguments.batch, arguments.tokens), device="cuda")
if arguments.train:
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
else:
    with torch.inference_mode():
        model(tokens, use_cache=True, logits_to_keep=1)
