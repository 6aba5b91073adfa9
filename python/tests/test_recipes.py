"""Tests the documentation's recipes for training libraries in the training loops of these libraries."""

from __future__ import annotations

import re
import socket
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

import torch_memviz

from .conftest import PROGRAMS, ROOT, TorchEnvironment, torch_with

PAGE = ROOT / "docs" / "src" / "frameworks.md"

#: A training run with one rank. The stand-in has no NCCL.
OPTIONS = (
    "--module=llama3",
    "--config=llama3_debugmodel",
    "--hf-assets-path=assets",
    "--dataloader.dataset-path=text",
    "--training.seq-len=128",
    "--comm.mode=fake_backend",
    "--training.disable-cuda-graphs",
)


def code(heading: str) -> str:
    """Return the first Python block in a section of the page on frameworks."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}$.*?^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def assert_first_steps(path: Path) -> None:
    """Check a recording of the first five steps that started before the model was built."""
    answer = torch_memviz.info(path)
    assert answer.input.complete_history
    assert answer.input.anomalies.total == 0
    assert answer.devices[0].baseline_bytes == 0
    assert answer.devices[0].steps == 5
    assert {f"step_{step}" for step in range(5)} <= {annotation.name for annotation in answer.annotations}


def run_titan(
    environment: TorchEnvironment, *arguments: str, cwd: Path, code: int = 0, mib: int = 8192
) -> subprocess.CompletedProcess[str]:
    """Run a torchtitan script as torchrun would."""
    return environment.run(
        *arguments,
        *OPTIONS,
        cwd=cwd,
        code=code,
        mib=mib,
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
        NGPU="1",
        # The stand-in does not compile kernels.
        TORCHDYNAMO_DISABLE="1",
    )


@pytest.fixture
def titan(tmp_path: Path) -> TorchEnvironment:
    environment = torch_with("torchtitan")
    environment.run(PROGRAMS / "torchtitan_files.py", cwd=tmp_path)
    (tmp_path / "titan.py").write_text(code("torchtitan"), encoding="utf-8")
    return environment


def test_torchtitan(titan: TorchEnvironment, tmp_path: Path) -> None:
    run_titan(titan, "titan.py", "--training.steps=7", cwd=tmp_path)
    path = tmp_path / "outputs" / "titan_rank0.pickle"
    assert_first_steps(path)
    # Lines of torchtitan itself, which is installed rather than checked out.
    rows = torch_memviz.peak(path, own="torchtitan").devices[0].attribution.rows
    assert any(row.label.startswith("torchtitan/components/optimizer") for row in rows)


def test_torchtitan_runs_out_of_memory(titan: TorchEnvironment, tmp_path: Path) -> None:
    done = run_titan(titan, "titan.py", cwd=tmp_path, mib=128, code=1)
    assert "OutOfMemoryError" in done.stderr
    [path] = (tmp_path / "outputs").glob("*_oom_attempt1.pickle")
    assert len(torch_memviz.oom(path).devices[0].ooms) >= 1
    assert path.with_suffix(".html").is_file()


def test_what_torchtitan_records_itself(titan: TorchEnvironment, tmp_path: Path) -> None:
    own = ("--profiler.enable-memory-snapshot", "--profiler.memory-snapshot-freq=2", "--training.steps=2")
    run_titan(titan, "-m", "torchtitan.train", *own, cwd=tmp_path)
    path = tmp_path / "outputs" / "profiling" / "memory_snapshot" / "step_000000000002" / "000000_step_2.pickle"
    [row] = torch_memviz.ranks(path).to_rows()
    assert (row["rank"], row["rank_source"]) == (0, "path")
    # The recording starts after the model is built.
    assert torch_memviz.info(path).devices[0].baseline_bytes > 0


#: Code that the page leaves to the reader, by section.
BUILD = {
    "accelerate": """
import torch

def build():
    model = torch.nn.Linear(1024, 1024)
    loader = torch.utils.data.DataLoader(torch.zeros(64, 1024), batch_size=8)
    return model, torch.optim.AdamW(model.parameters()), loader

""",
    "TRL": """
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig

words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
model = LlamaForCausalLM(config)
dataset = Dataset.from_dict({"text": ["a b " * 20] * 64})
args = SFTConfig("outputs", max_steps=8, report_to="none", save_strategy="no", bf16=False)

""",
    "FSDP2": """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(4))

    def forward(self, values):
        for layer in self.layers:
            values = layer(values)
        return values

build_model, batches = Model, torch.zeros(8, 8, 1024)

""",
    "DeepSpeed": """
import torch

model, dataset = torch.nn.Linear(1024, 1024), torch.utils.data.TensorDataset(torch.zeros(64, 1024))
adam = {"type": "AdamW", "params": {"torch_adam": True}}
config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 2}, "optimizer": adam}

""",
    "Ray Train": """
import ray
import torch

def build_model():
    return torch.nn.Linear(1024, 1024)

def batches():
    return torch.zeros(8, 8, 1024)

ray.init(num_gpus=1, num_cpus=2, include_dashboard=False)

""",
}

#: The library of each section, and the variables that a launcher sets for a single process.
LIBRARIES = {"accelerate": "accelerate", "TRL": "trl", "FSDP2": "torch", "DeepSpeed": "deepspeed", "Ray Train": "ray"}
ONE_RANK: dict[str, Any] = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


@pytest.mark.parametrize("section", sorted(BUILD))
def test_a_section_of_the_page(section: str, torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has(LIBRARIES[section]):
        pytest.skip(f"the environment has no {LIBRARIES[section]}")
    is_launched = section in ("FSDP2", "DeepSpeed")
    text = BUILD[section] + code(section)
    text = text.replace("/shared/", f"{tmp_path}/").replace("num_workers=8", "num_workers=1")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    if is_launched:
        torch.run("train.py", cwd=tmp_path, MASTER_PORT=str(free_port()), **ONE_RANK)
    else:
        torch.run("train.py", cwd=tmp_path)
    [path] = tmp_path.glob("*.pickle")
    assert path.stem.endswith("_rank0") == (is_launched or section == "Ray Train")
    assert_first_steps(path)


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_torchtune(tmp_path: Path) -> None:
    environment = torch_with("torchtune")
    environment.run(PROGRAMS / "torchtune_files.py", cwd=tmp_path)
    environment.run("-m", "torchtune._cli.tune", "cp", "full_finetune_single_device", "recipe.py", cwd=tmp_path)
    recipe = tmp_path / "recipe.py"
    text = recipe.read_text(encoding="utf-8")
    main = re.compile(r"    recipe = FullFinetuneRecipeSingleDevice.*?recipe.train\(\)\n", re.DOTALL)
    text, count = main.subn(textwrap.indent(code("torchtune"), "    "), text)
    assert count == 1
    recipe.write_text(text, encoding="utf-8")
    environment.run("recipe.py", "--config", "config.yaml", cwd=tmp_path)
    assert_first_steps(tmp_path / "tune.pickle")
