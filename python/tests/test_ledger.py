"""Tests the samples of whole devices next to a recording, and the driver's list of processes."""

from __future__ import annotations

import ctypes
import json
import stat
from pathlib import Path
from typing import Any

import pytest

import torch_memviz
from torch_memviz._recording.processes import Nvml, Process, of_nvidia_smi

from .conftest import PROGRAMS, TorchEnvironment


class Driver:
    """A fake NVML with one GPU."""

    def __init__(self, compute: list[tuple[int, int]], graphics: list[tuple[int, int]] | None = None) -> None:
        self.processes = {"Compute": compute, "Graphics": graphics or []}
        self.asked: list[int] = []

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
        return 0 if uuid == b"GPU-1" else 6

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, infos: Any) -> int:  # noqa: N802
        return self._list("Compute", count._obj, infos)

    def nvmlDeviceGetGraphicsRunningProcesses_v2(self, handle: Any, count: Any, infos: Any) -> int:  # noqa: N802
        return self._list("Graphics", count._obj, infos)

    def _list(self, kind: str, count: ctypes.c_uint, infos: Any) -> int:
        listed = self.processes[kind]
        self.asked.append(count.value)
        if len(listed) > count.value:
            count.value = len(listed)
            return 7
        count.value = len(listed)
        for info, (pid, used) in zip(infos, listed, strict=False):
            info.pid, info.used = pid, used
        return 0

    def nvmlSystemGetProcessName(self, pid: Any, buffer: Any, length: Any) -> int:  # noqa: N802
        if pid.value == 9:
            return 6
        buffer.value = b"/home/ada/secret/bin/python3 train.py --token=1"
        return 0


def test_processes_are_those_of_the_driver() -> None:
    driver = Driver([(8, 1 << 30), (7, 2**64 - 1)], [(9, 4096), (8, 1)])
    found = Nvml(driver).processes("GPU-1")
    assert found.source == "nvml"
    # Neither the folder nor the arguments of a program are stored.
    assert found.listed == [Process(7, "python3", None), Process(8, "python3", 1 << 30), Process(9, None, 4096)]


def test_a_list_that_does_not_fit_is_asked_for_again() -> None:
    driver = Driver([(pid, 4096) for pid in range(100, 500)])
    found = Nvml(driver).processes("GPU-1").listed
    assert found is not None
    assert len(found) == 400
    assert driver.asked[:2] == [64, 800]


def test_a_driver_that_fails_is_said() -> None:
    assert Nvml(Driver([])).processes("GPU-2").missing == "NVML returned error 6 for GPU-2"
    assert Nvml(Driver([])).processes("GPU-1").listed == []


def test_nvidia_smi_lists_in_mebibytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert of_nvidia_smi("GPU-1").missing == "neither NVML nor nvidia-smi is available"
    program = tmp_path / "nvidia-smi"
    rows = ["GPU-1, 7, /usr/bin/python3, 512", "GPU-2, 8, other, 1", "GPU-1, 9, [Not Found], [N/A]"]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    found = of_nvidia_smi("GPU-1")
    assert found.listed == [Process(7, "python3", 512 << 20), Process(9, "[Not", None)]
    assert found.source == "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert (of_nvidia_smi("GPU-1").missing or "").startswith("nvidia-smi failed")


def test_without_the_library_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", fails)
    assert "cannot be loaded: cannot open shared object file" in str(Nvml.load())


def test_samples_are_what_pytorch_said(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "ledger.py", cwd=tmp_path)
    said = json.loads(done.stdout.splitlines()[0])
    [device] = torch_memviz.ledger(tmp_path / "run.pickle").devices
    assert [(sample.at, sample.name) for sample in device.samples] == [
        ("start", None), ("point", "built"), ("peak", None), ("end", None),
    ]  # fmt: skip
    point = device.samples[1]
    assert [point.total_bytes - point.used_bytes, point.allocated_bytes] == said["point"]
    there = torch_memviz.peak(tmp_path / "run.pickle", at="annotation:built").devices[0]
    assert there.peak.allocated_bytes == point.allocated_bytes
    free = [sample.total_bytes - sample.used_bytes for sample in device.samples]
    assert (free[0], free[-1]) == (said["start"], said["end"])
    end = device.samples[-1]
    assert (end.rows[0].bytes, end.allocated_bytes) == (said["reserved"], said["allocated"])
    assert end.memory_stats == {name: value for name, value in said["stats"].items() if value}
    if said["host"] is not None:
        assert [sample.at for sample in device.pinned_samples] == ["start", "peak", "end"]
        pinned = device.pinned_samples[-1]
        assert pinned.active_bytes >= 4_000_000
        assert {pinned.reserved_bytes, pinned.active_bytes} <= set(said["host"].values())
    # The segments of the recording add up to the counter, so pools are known.
    assert sum(pool.bytes for pool in end.pools) == said["reserved"]
    for sample in device.samples:
        assert sum(row.bytes for row in sample.rows) == sample.used_bytes


def test_process_groups_that_report_their_memory_have_rows(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "groups.py", cwd=tmp_path)
    names = json.loads(done.stdout.splitlines()[-1])["names"]
    recording = next(tmp_path.glob("run*.pickle"))
    [device] = torch_memviz.ledger(recording).devices
    assert [sample.at for sample in device.samples] == ["start", "end"]
    for sample in device.samples:
        groups = {row.label: row.bytes for row in sample.rows if row.holder == "nccl"}
        assert groups == {f"NCCL, group {names[0]}": 96 << 20, f"NCCL, group {names[1]}": 8 << 20}
        rest = sum(row.bytes for row in sample.rows if row.holder not in ("nccl", "pytorch"))
        assert rest >= 0, "the driver counts what the groups report"
        assert sum(row.bytes for row in sample.rows) == sample.used_bytes


def test_a_request_that_fails_has_its_own_sample(torch: TorchEnvironment, tmp_path: Path) -> None:
    torch.run(PROGRAMS / "ledger.py", "oom", cwd=tmp_path)
    assert not (tmp_path / "run.device.json").exists()
    recording = tmp_path / "run_oom_attempt1.pickle"
    [device] = torch_memviz.oom(recording).devices
    assert device.ledger is not None
    assert device.ledger.at == "oom"
    assert device.ledger.total_bytes - device.ledger.used_bytes == device.ooms[0].device_free_bytes


@pytest.mark.parametrize("way", ["without", "broken"])
def test_a_recording_needs_no_samples(torch: TorchEnvironment, tmp_path: Path, way: str) -> None:
    # Files of an earlier run are not samples of this run.
    (tmp_path / "run.device.json").write_text("{}")
    done = torch.run(PROGRAMS / "ledger.py", way, cwd=tmp_path)
    assert ("no driver" in done.stderr) == (way == "broken")
    assert [path.name for path in tmp_path.iterdir()] == ["run.pickle"]
    assert torch_memviz.peak(tmp_path / "run.pickle").input.complete_history
