"""Saves a small model of transformers, or loads one and runs it."""

import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

command, folder = sys.argv[1:]
if command == "save":
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
else:
    model = AutoModelForCausalLM.from_pretrained(folder).cuda()
    model(torch.randint(1000, (2, 16), device="cuda"))
