"""Tests callbacks with their libraries and a real PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torch_memviz

from .conftest import PROGRAMS, TorchEnvironment

CALLBACKS = [("transformers", "trainer"), ("lightning", "lightning_trainer")]


@pytest.mark.parametrize(("library", "program"), CALLBACKS)
def test_the_first_steps_of_a_training(library: str, program: str, torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has(library):
        pytest.skip(f"the environment has no {library}")
    done = torch.run(PROGRAMS / f"{program}.py", cwd=tmp_path)
    name = f"{program.split('_')[0]}.pickle"
    assert json.loads(done.stdout.splitlines()[-1])["files"] == [name]
    answer = torch_memviz.info(tmp_path / name)
    assert answer.input.complete_history
    assert answer.input.anomalies.total == 0
    assert {f"step_{step}" for step in range(4)} <= {annotation.name for annotation in answer.annotations}
    assert answer.devices[0].baseline_bytes == 0
    assert "allocated before the recording started" not in done.stderr


@pytest.mark.parametrize(("library", "program"), CALLBACKS)
def test_running_out_of_memory_later(library: str, program: str, torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has(library):
        pytest.skip(f"the environment has no {library}")
    done = torch.run(PROGRAMS / f"{program}.py", "oom", cwd=tmp_path, mib=2048)
    name = program.split("_")[0]
    assert done.stdout.splitlines()[-2] == "out of memory"
    assert json.loads(done.stdout.splitlines()[-1])["files"] == [f"{name}.pickle", f"{name}_oom_attempt1.pickle"]
    answer = torch_memviz.oom(tmp_path / f"{name}_oom_attempt1.pickle")
    assert answer.input.complete_history
    assert len(answer.devices[0].ooms) == 1


@pytest.mark.parametrize(("library", "program"), CALLBACKS)
def test_a_second_training_is_recorded_too(library: str, program: str, torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has(library):
        pytest.skip(f"the environment has no {library}")
    done = torch.run(PROGRAMS / f"{program}.py", "again", cwd=tmp_path)
    name = f"{program.split('_')[0]}_run2.pickle"
    assert json.loads(done.stdout.splitlines()[-1])["files"] == [name]
    assert f"training 2 is recorded as {name}" in done.stderr
    assert torch_memviz.info(tmp_path / name).devices[0].steps == 4


def test_the_cell_of_a_notebook_runs_again_after_it_ran_out_of_memory(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "notebook.py", cwd=tmp_path, mib=2048)
    assert done.stdout.splitlines() == [
        "out of memory: ['run_oom_attempt1.pickle']",
        "stopped: ['run.pickle', 'run_oom_attempt1.pickle']",
        "out of memory: ['run_oom_attempt1.pickle']",
        "again: ['run_oom_attempt1.pickle']",
        "refused: found the recording of run.pickle; torch_memviz.stop() stops it",
        "smaller: ['run.pickle']",
    ]
    assert "run.pickle: a recording was still running; starting it again" in done.stderr
