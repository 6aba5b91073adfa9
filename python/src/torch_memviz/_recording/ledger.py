"""Samples of a whole device, which a recording does not cover: `run.device.json`, which `memviz ledger` reads."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from . import release
from .processes import Nvml, Process, Processes, of_nvidia_smi

#: Version of the file format.
VERSION = 1
#: Named points that are kept, the first ones.
MOST_POINTS = 100
#: A sample at the end of a step replaces the highest sample if it is higher by at least this many bytes.
NOTABLE = 1 << 20

Sample = dict[str, Any]


def path_of(recording: Path) -> Path:
    """Return the path of the file next to a recording: `run.device.json` for `run.pickle`."""
    return recording.with_suffix(".device.json")


class Ledger:
    """Samples of all devices that the program uses, taken while recording."""

    def __init__(self, module: ModuleType) -> None:
        self._torch = module
        self._nvml = Nvml.load()
        #: Samples by device: at the start, the highest so far, and the latest.
        self._start: dict[int, Sample] = {}
        self._highest: dict[int, Sample] = {}
        self._latest: dict[int, Sample] = {}
        #: Samples at named points.
        self._points: list[tuple[int, Sample]] = []
        #: Samples of pinned host memory, when those of devices are taken.
        self._host: dict[str, Sample | None] = {"start": self._pinned("start")}
        self._missing: dict[int, str] = {}
        self._source: str | None = None
        for device in self._devices():
            self._start[device] = self._sample(device, "start")

    def note(self) -> None:
        """Sample each device that holds more memory than in all earlier samples."""
        for device in self._devices():
            free, total = self._torch.cuda.mem_get_info(device)
            before = self._highest.get(device) or self._start.get(device)
            if before is None or total - free >= before["total_bytes"] - before["free_bytes"] + NOTABLE:
                self._highest[device] = self._sample(device, "peak")
                self._host["peak"] = self._pinned("peak")

    def point(self, name: str) -> None:
        """Sample all devices at a point of the program."""
        if len(self._points) < MOST_POINTS:
            self._points += [(device, {**self._sample(device, "point"), "name": name}) for device in self._devices()]

    def take(self, at: str) -> None:
        """Sample all devices for a recording that is about to be written.

        Args:
            at: Why it is written: `end`, `oom` or `dump`.
        """
        self._latest = {device: self._sample(device, at) for device in self._devices()}
        self._host["latest"] = self._pinned(at)

    def write(self, recording: Path) -> None:
        """Write all samples next to a recording."""
        devices = []
        for device, latest in self._latest.items():
            points = [sample for where, sample in self._points if where == device]
            known = [self._start.get(device), self._highest.get(device), *points, latest]
            samples = sorted((sample for sample in known if sample is not None), key=lambda sample: sample["time_us"])
            devices.append(
                {
                    "device": device,
                    "name": self._torch.cuda.get_device_properties(device).name,
                    "processes_missing": self._missing.get(device),
                    "samples": samples,
                }
            )
        content = {
            "format": "memviz device",
            "version": VERSION,
            "pid": os.getpid(),
            "processes_from": self._source,
            "devices": devices,
            "host": [sample for name in ("start", "peak", "latest") if (sample := self._host.get(name)) is not None],
        }
        with release.replacing(path_of(recording)) as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")

    def _devices(self) -> list[int]:
        """Return devices where this process has a context. Querying any other would create one, which takes memory."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return []
        count = cuda.device_count()
        # If there is only one device, the program uses it.
        return [device for device in range(count) if count == 1 or self._torch._C._cuda_hasPrimaryContext(device)]

    def _sample(self, device: int, at: str) -> Sample:
        cuda = self._torch.cuda
        free, total = cuda.mem_get_info(device)
        stats = cuda.memory_stats(device)
        processes = self._processes(device)
        if processes.missing is not None:
            self._missing[device] = processes.missing
        self._source = processes.source or self._source
        sample: Sample = {
            "at": at,
            "time_us": time.time_ns() // 1000,
            "total_bytes": total,
            "free_bytes": free,
            "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
            "memory_stats": _counters(stats),
            "nccl": [{"group": name, "bytes": held} for name, held in self._groups(device)],
        }
        if processes.listed is not None:
            sample["processes"] = [_row(process) for process in processes.listed]
        return sample

    def _pinned(self, at: str) -> Sample | None:
        """Sample the pinned host memory of this process; older releases of PyTorch do not count it."""
        cuda = self._torch.cuda
        if not cuda.is_initialized() or not hasattr(cuda, "host_memory_stats"):
            return None
        stats = cuda.host_memory_stats()
        if "active_bytes.current" in stats:
            reserved, active = stats["allocated_bytes.current"], stats["active_bytes.current"]
        elif "reserved_bytes.current" in stats:
            # Names of earlier releases.
            reserved, active = stats["reserved_bytes.current"], stats["allocated_bytes.current"]
        else:
            return None
        return {
            "at": at,
            "time_us": time.time_ns() // 1000,
            "reserved_bytes": reserved,
            "active_bytes": active,
            "memory_stats": _counters(stats),
        }

    def _processes(self, device: int) -> Processes:
        uuid = getattr(self._torch.cuda.get_device_properties(device), "uuid", None)
        if uuid is None:
            return Processes(None, missing="this PyTorch does not report the UUID of a GPU")
        found = Processes(None)
        for name in (f"GPU-{uuid}", f"MIG-{uuid}"):
            found = of_nvidia_smi(name) if isinstance(self._nvml, str) else self._nvml.processes(name)
            if found.listed is not None:
                break
        if isinstance(self._nvml, str) and found.missing is not None:
            return Processes(None, missing=f"{self._nvml}; {found.missing}")
        return found

    def _groups(self, device: int) -> list[tuple[str, int]]:
        """Return NCCL's memory by process group. Requires PyTorch 2.12 and NCCL 2.29.7 or later."""
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        # Communicators are on the current device of the process.
        if c10d is None or not self._torch.distributed.is_initialized() or self._torch.cuda.current_device() != device:
            return []
        groups = []
        for group, name in list(c10d._world.pg_names.items()):
            try:
                stats = group._get_backend(self._torch.device("cuda")).memory_stats()
            except (AttributeError, RuntimeError, TypeError):
                # Another backend, or one that does not report its memory.
                continue
            if "total" in stats:
                groups.append((str(name), int(stats["persist"] if stats.get("suspended") else stats["total"])))
        return groups


def _counters(stats: dict[str, Any]) -> dict[str, int]:
    """Return the counters of an allocator that are not zero."""
    return {name: value for name, value in stats.items() if isinstance(value, int) and value != 0}


def _row(process: Process) -> dict[str, Any]:
    return {"pid": process.pid, "name": process.name, "bytes": process.bytes}
