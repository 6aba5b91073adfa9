"""Trains LoRA adapters of a Llama model with one billion parameters, with the Trainer of transformers."""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--tokens", type=int, default=2048)
arguments = parser.parse_args()


class Tokens(torch.utils.data.Dataset):
    """Random tokens."""

    def __len__(self):
        return 4 * arguments.batch

    def __getitem__(self, _):
        tokens = torch.randint(32000, (arguments.tokens,))
        return {"input_ids": tokens, "labels": tokens}


config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
options = TrainingArguments(
    output_dir="trained",
    per_device_train_batch_size=arguments.batch,
    max_steps=3,
    bf16=True,
    save_strategy="no",
    report_to=[],
)
Trainer(model, options, train_dataset=Tokens()).train()
