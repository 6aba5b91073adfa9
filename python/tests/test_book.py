"""Runs the code of the book's pages as a reader would, with what the pages leave to the reader."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from torch_memviz._binary import binary

from .conftest import ROOT, TorchEnvironment, fixture

#: A program of the reader: a model, and a loop that takes arguments.
TRAIN = """
import sys
import torch

def build():
    model = torch.nn.Linear(1024, 1024).cuda()
    return model, torch.optim.AdamW(model.parameters())

batches = [int(sys.argv[2]) if "--batch" in sys.argv else 8] * 4

def train(model, optimizer, batch):
    model(torch.zeros(batch, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

def main():
    model, optimizer = build()
    for batch in batches:
        train(model, optimizer, batch)
"""
#: What precedes the code of a page, by a part of that code.
BEFORE = {
    "def test_": """
import pytest
import torch
from train import build, main

def train_one_step():
    main()

def serve_one_request():
    torch.zeros(1 << 20, device="cuda")

def build_cache():
    return torch.zeros(1 << 20, device="cuda")
""",
    "build()": "from train import *\n",
    "hooks.": """
import wandb
import torch_memviz
from train import build, batches, train as step

def train(recorder):
    model, optimizer = build()
    for batch in batches:
        with recorder.step():
            step(model, optimizer, batch)

wandb.init(mode="disabled")
""",
    "categories(": """
import torch
from train import build, train

def allocate():
    return torch.zeros(1 << 20, device="cuda")

model, optimizer = build()
train(model, optimizer, 8)
""",
    "_snapshot()": "import torch\ntorch.cuda.init()\n",
    "debug_server.start": """
import os
import socket
import torch

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(listener.getsockname()[1]))
torch.distributed.init_process_group("gloo", rank=0, world_size=1)
""",
}
#: What follows it.
AFTER = {"debug_server.start": "os._exit(0)  # the server runs on\n"}


def code(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    text = (ROOT / "docs" / "src" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def around(block: str, texts: dict[str, str]) -> str:
    return next((text for part, text in texts.items() if part in block), "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory of the reader, with a program and a recording."""
    (tmp_path / "train.py").write_text(f'{TRAIN}\nif __name__ == "__main__":\n    main()\n', encoding="utf-8")
    shutil.copy(fixture("oom"), tmp_path / "snapshot.pickle")
    return tmp_path


@pytest.mark.parametrize("page", ["python.md", "commands/rehearse.md"])
def test_programs_run(page: str, torch: TorchEnvironment, folder: Path) -> None:
    blocks = [block for block in code(page, "python") if "def share" not in block]
    assert len(blocks) >= (6 if page == "python.md" else 1)
    for number, block in enumerate(blocks):
        program = folder / f"block{number}.py"
        program.write_text(around(block, BEFORE) + block + around(block, AFTER), encoding="utf-8")
        is_rehearsed = "torch_memviz.rehearse(" in block
        torch.run(program, cwd=folder, gpu=not is_rehearsed, PYTHONPATH=f"{ROOT}/python/src:{folder}")


def test_tests_of_the_page_run(torch: TorchEnvironment, folder: Path) -> None:
    for number, block in enumerate(code("ci.md", "python")):
        (folder / f"test_block{number}.py").write_text(BEFORE["def test_"] + block, encoding="utf-8")
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "torch_memviz.pytest_plugin")
    # The first run writes the baselines.
    for more in (["--memviz-update-baselines"], []):
        done = torch.run(*command, *more, cwd=folder)
        assert re.search(r"^5 passed", done.stdout, re.MULTILINE), done.stdout


def shell(torch: TorchEnvironment, folder: Path, lines: Sequence[str]) -> None:
    """Run commands with memviz and the Python of an environment on the path."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "memviz").symlink_to(binary())
    searched = os.pathsep.join([str(tools), str(torch.folder / "venv" / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": searched, "PYTHONPATH": f"{ROOT}/python/src", "CUDA_VISIBLE_DEVICES": ""}
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_commands_run(torch: TorchEnvironment, folder: Path) -> None:
    [share] = [block for block in code("commands/rehearse.md", "python") if "def share" in block]
    (folder / "shares.py").write_text(share, encoding="utf-8")
    rehearsals = "".join(code("commands/rehearse.md", "text")).splitlines()
    [toml] = code("commands/rehearse.md", "toml")
    (folder / "memviz.toml").write_text(toml, encoding="utf-8")
    [workflow] = code("commands/rehearse.md", "yaml")
    steps = re.findall(r"^- run: (memviz .*)$", workflow, re.MULTILINE)
    [installed] = code("python.md", "sh")
    asked = [line for line in installed.splitlines() if not line.startswith("pip ")]
    assert (len(rehearsals), len(steps), len(asked)) == (5, 2, 2)
    shell(torch, folder, ["memviz rehearse", "memviz check", *steps, *rehearsals, asked[0]])
