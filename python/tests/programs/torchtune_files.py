"""Creates the files for a torchtune recipe: a small Llama, its tokenizer, a text and a configuration."""

import base64
import json
from pathlib import Path

import torch
from torchtune.models.llama3 import llama3

SIZES = {"num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 128, "max_seq_len": 256}
# In Llama 3's tokenizer, the special tokens follow 128000 others.
WORDS = 128_256

Path("checkpoint").mkdir()
torch.save(llama3(vocab_size=WORDS, **SIZES).state_dict(), "checkpoint/model.pt")
letters = "\n".join(f"{base64.b64encode(bytes([letter])).decode()} {letter}" for letter in range(256))
Path("tokenizer.model").write_text(letters)
Path("text.json").write_text("\n".join([json.dumps({"text": "some words " * 10})] * 64))
config = {
    "output_dir": "out",
    "model": {"_component_": "torchtune.models.llama3.llama3", "vocab_size": WORDS, **SIZES},
    "tokenizer": {
        "_component_": "torchtune.models.llama3.llama3_tokenizer",
        "path": "tokenizer.model",
        "max_seq_len": 128,
    },
    "dataset": {
        "_component_": "torchtune.datasets.text_completion_dataset",
        "source": "json",
        "data_files": "text.json",
        "column": "text",
        "packed": False,
        "split": "train",
    },
    "seed": 1,
    "shuffle": True,
    "checkpointer": {
        "_component_": "torchtune.training.FullModelTorchTuneCheckpointer",
        "checkpoint_dir": "checkpoint",
        "checkpoint_files": ["model.pt"],
        "recipe_checkpoint": None,
        "output_dir": "out",
        "model_type": "LLAMA3",
    },
    "resume_from_checkpoint": False,
    "batch_size": 4,
    "epochs": 1,
    "optimizer": {"_component_": "torch.optim.AdamW", "lr": 2e-5},
    "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
    "max_steps_per_epoch": 8,
    "gradient_accumulation_steps": 1,
    "optimizer_in_bwd": False,
    "compile": False,
    "device": "cuda",
    "enable_activation_checkpointing": False,
    "enable_activation_offloading": False,
    "dtype": "fp32",
    "metric_logger": {"_component_": "torchtune.training.metric_logging.DiskLogger", "log_dir": "out/logs"},
    "log_every_n_steps": 1,
    "log_peak_memory_stats": True,
}
# JSON is valid YAML.
Path("config.yaml").write_text(json.dumps(config))
