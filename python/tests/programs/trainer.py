"""Runs the Trainer of transformers with the callback, and prints PyTorch's counters."""

import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from torch_memviz.transformers import RecordMemory

torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        # To run out of memory, the last batch is larger than all others.
        rows = torch.zeros(1 << 14 if "oom" in sys.argv and index >= 40 else 64, dtype=torch.long)
        return {"input_ids": rows, "labels": rows}


config = LlamaConfig(
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=1024,
    max_position_embeddings=1 << 15,
)
callback = RecordMemory("trainer.pickle", steps=(0, 3))
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, max_steps=12, report_to=[], save_strategy="no", dataloader_pin_memory=False,
    disable_tqdm=True, logging_strategy="no", train_sampling_strategy="sequential",
)  # fmt: skip
trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Rows(), callbacks=[callback])
try:
    trainer.train()
except torch.cuda.OutOfMemoryError:
    print("out of memory")
if "again" in sys.argv:
    trainer.train()
recorder = callback.recorder
print(json.dumps({"files": [path.name for path in recorder.files], "steps": recorder.steps_begun}))
