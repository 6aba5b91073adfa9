"""What the documentation says to write for torchtitan and torchtune, in their own training loops."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

import torch_memviz

from .conftest import PROGRAMS, ROOT, TorchEnvironment, torch_with

PAGE = ROOT / "docs" / "src" / "frameworks.md"

#: A training of one rank. The stand-in has no NCCL.
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
    """The first block of Python in a section of the page on frameworks."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}$.*?^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def assert_first_steps(path: Path) -> None:
    """A recording of the first five steps, from before the model was built."""
    answer = torch_memviz.info(path)
    assert answer.input.complete_history
    assert answer.input.anomalies.total == 0
    assert answer.devices[0].baseline_bytes == 0
    assert answer.devices[0].steps == 5
    assert {f"step_{step}" for step in range(5)} <= {annotation.name for annotation in answer.annotations}


def run_titan(
    environment: TorchEnvironment, *arguments: str, cwd: Path, code: int = 0, mib: int = 8192
) -> subprocess.CompletedProcess[str]:
    """Run a script of torchtitan as torchrun would."""
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
        # The stand-in compiles no kernels.
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
    # Its own lines, where it is installed and no checkout.
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
    # It begins behind the model.
    assert torch_memviz.info(path).devices[0].baseline_bytes > 0


#: A model, its optimizer and its data, as the page leaves them to the reader.
BUILD = """
import torch

def build():
    model = torch.nn.Linear(1024, 1024)
    loader = torch.utils.data.DataLoader(torch.zeros(64, 1024), batch_size=8)
    return model, torch.optim.AdamW(model.parameters()), loader

"""


def test_accelerate(torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has("accelerate"):
        pytest.skip("the environment has no accelerate")
    (tmp_path / "train.py").write_text(BUILD + code("accelerate"), encoding="utf-8")
    torch.run("train.py", cwd=tmp_path)
    assert_first_steps(tmp_path / "accelerate.pickle")


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
