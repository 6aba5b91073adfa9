"""Tests hooks with their experiment trackers and a real PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import torch_memviz

from .conftest import PROGRAMS, TorchEnvironment


def logged(library: str, torch: TorchEnvironment, folder: Path) -> tuple[Any, str]:
    """Return what a tracker received from a training run of three steps, and the log."""
    if not torch.has(library):
        pytest.skip(f"the environment has no {library}")
    done = torch.run(PROGRAMS / "hooks.py", library, cwd=folder)
    return json.loads(done.stdout.splitlines()[-2]), done.stderr


def expected(folder: Path) -> dict[str, list[list[int]]]:
    """Return the metrics that memviz computes from the recording."""
    [device] = torch_memviz.peak(folder / "run.pickle", each="annotation:^step_").devices
    ranges = device.ranges or ()
    assert len(ranges) == 3
    return {
        "gpu_memory/device0/peak_bytes": [[at, it.peak.allocated_bytes] for at, it in enumerate(ranges)],
        "gpu_memory/device0/reserved_bytes": [[at, it.peak.reserved_bytes] for at, it in enumerate(ranges)],
        "gpu_memory/device0/max_allocated_bytes": [[0, device.maxima.allocated_bytes]],
        "gpu_memory/device0/max_reserved_bytes": [[0, device.maxima.reserved_bytes]],
        "gpu_memory/device0/complete_history": [[0, int(device.complete_history)]],
    }


def test_tensorboard_has_scalars_and_the_report(torch: TorchEnvironment, tmp_path: Path) -> None:
    said, log = logged("tensorboard", torch, tmp_path)
    assert said["metrics"] == expected(tmp_path)
    assert said["report"] == torch_memviz.report(tmp_path / "run.pickle", format="markdown").text
    # An exception in one hook does not prevent the others from being called.
    assert "run.pickle: a hook of the recording failed" in log


def test_mlflow_has_metrics_and_the_report(torch: TorchEnvironment, tmp_path: Path) -> None:
    said, log = logged("mlflow", torch, tmp_path)
    assert said["metrics"] == expected(tmp_path)
    assert said["report"] == torch_memviz.report(tmp_path / "run.pickle").text
    assert log.count("nothing is logged to MLflow: expected an active run, found none") == 1


def test_wandb_has_a_chart_and_the_report(torch: TorchEnvironment, tmp_path: Path) -> None:
    said, log = logged("wandb", torch, tmp_path)
    last = {name: values[-1][1] for name, values in expected(tmp_path).items()}
    assert said["summary"] == {"gpu_memory/step": 2, **last}
    [kept] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert all(name in kept.read_bytes() for name in (b"gpu-memory-run", b"run.html"))
    assert log.count("nothing is logged to W&B: expected an active run, found none") == 1
