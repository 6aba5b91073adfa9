"""Runs the code of the book's pages as a reader would, with what the pages leave to the reader."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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
    "_snapshot()": "import torch\ntorch.cuda.init()\n",
}


def code(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    text = (ROOT / "docs" / "src" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def before(block: str) -> str:
    return next((text for part, text in BEFORE.items() if part in block), "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory of the reader, with a program and a recording."""
    (tmp_path / "train.py").write_text(f'{TRAIN}\nif __name__ == "__main__":\n    main()\n', encoding="utf-8")
    shutil.copy(fixture("oom"), tmp_path / "snapshot.pickle")
    return tmp_path


@pytest.mark.parametrize("page", ["python.md", "commands/rehearse.md"])
def test_programs_run(page: str, torch: TorchEnvironment, folder: Path) -> None:
    # Recording has programs of its own, and so does the debug server.
    blocks = [block for block in code(page, "python") if re.search(r"\.peak\(|\.rehearse\(", block)]
    assert len(blocks) == (2 if page == "python.md" else 1)
    for number, block in enumerate(blocks):
        program = folder / f"block{number}.py"
        program.write_text(before(block) + block, encoding="utf-8")
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
