"""Rehearsals: what can be asked for, and a program that runs without a GPU."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torch_memviz import RehearsalError, rehearse
from torch_memviz._rehearsal import library
from torch_memviz._rehearsal.gpus import gpus, named

from .conftest import PROGRAMS, ROOT, TorchEnvironment


def rehearsed(
    torch: TorchEnvironment, folder: Path, *arguments: str, code: int = 0, **options: Any
) -> tuple[dict[str, Any], str]:
    """Rehearse the program of these tests, and give the recording and what was printed."""
    plan = {"gpu": "h100-80gb", "path": str(folder / "run.pickle"), **options}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    python = str(torch.folder / "venv" / "bin" / "python")
    command = [
        python,
        "-m",
        "torch_memviz._rehearsal",
        json.dumps(plan),
        python,
        str(PROGRAMS / "rehearsed.py"),
        *arguments,
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    recording = pickle.loads((folder / "run.pickle").read_bytes())
    assert isinstance(recording, dict)
    return recording, done.stdout


def facts(recording: dict[str, Any]) -> dict[str, Any]:
    """What a recording says of its rehearsal."""
    said = json.loads(recording["rehearsal"])
    assert isinstance(said, dict)
    return said


def peak(recording: dict[str, Any]) -> int:
    """The highest sum of requested bytes."""
    now = most = 0
    for entry in recording["device_traces"][0]:
        now += {"alloc": entry["size"], "free_completed": -entry["size"]}.get(entry["action"], 0)
        most = max(most, now)
    return most


def test_gpus_are_named_by_the_beginning_of_their_names() -> None:
    assert named("H100").key == "h100-80gb"
    assert len({gpu.key for gpu in gpus()}) == len(gpus())
    with pytest.raises(RehearsalError, match="expected one of v100-16gb, v100-32gb, found 'v100'"):
        named("v100")


def test_a_process_that_has_imported_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(RehearsalError, match="has not imported PyTorch yet"):
        rehearse(despite_gpu=True)


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "expected Linux" in str(library.why_not(despite_gpu=False))


def test_what_is_installed_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    version = package / "version.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    version.write_text("from typing import Optional\n__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n")
    with pytest.raises(RehearsalError, match=r"expected PyTorch's build for CUDA, found 2\.11\.0\+cpu"):
        library.build()
    version.write_text("__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n")
    assert library.build() == library.Build("2.6.0+cu124", 12040)
    monkeypatch.setenv(library.FOLDER, str(tmp_path))
    with pytest.raises(RehearsalError, match=r"expected libmemviz_rehearsal\.so"):
        library.folder()


def test_importing_the_package_loads_no_stand_in() -> None:
    code = "import torch_memviz; print('memviz_rehearsal' in open('/proc/self/maps').read())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "False\n"


def test_a_training_is_recorded_and_says_what_it_read(any_installation: TorchEnvironment, tmp_path: Path) -> None:
    recording, printed = rehearsed(any_installation, tmp_path)
    assert f"peak {peak(recording)}" in printed.splitlines()
    said = facts(recording)
    reads = [(read["code"], read["kind"], read["count"]) for read in said["reads"]]
    assert reads == [("print(output[output > 0].shape)", "size", 1), ("print(loss.item())", "value", 3)]
    assert said["cudnn_operations"] > 0
    assert said["refused"] == []


def test_a_program_ends_after_its_steps(installation: TorchEnvironment, tmp_path: Path) -> None:
    said = facts(rehearsed(installation, tmp_path, steps=2)[0])
    assert said["ended"] == "2 steps were taken"
    assert [read["count"] for read in said["reads"]] == [1]


def test_a_loop_that_waits_for_a_value_is_ended(installation: TorchEnvironment, tmp_path: Path) -> None:
    said = facts(rehearsed(installation, tmp_path, "forever", most_reads=100)[0])
    assert "while not bool((counter > 0).all()):" in said["ended"]


def test_a_device_runs_out_of_memory(installation: TorchEnvironment, tmp_path: Path) -> None:
    rehearsed(installation, tmp_path, code=1, memory=(500 << 20) + (64 << 20))
    recording = pickle.loads((tmp_path / "run_oom_attempt1.pickle").read_bytes())
    assert [entry["action"] for entry in recording["device_traces"][0]][-1] == "oom"
