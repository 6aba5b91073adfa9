"""Trains BERT (base), built from its configuration, with Accelerate, mixed precision and gradient clipping."""

import argparse

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForMaskedLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
arguments = parser.parse_args()

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
model = BertForMaskedLM(BertConfig())
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(30522, (6 * arguments.batch, 512))
loader = torch.utils.data.DataLoader(tokens, batch_size=arguments.batch)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
