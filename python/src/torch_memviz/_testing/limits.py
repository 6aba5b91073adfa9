"""The limits that markers set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .._recording.sizes import size
from .._rehearsal import library
from .._rehearsal.gpus import RehearsalError
from . import files
from .device import CONFIG, Device

#: With fewer runs, a leak cannot be distinguished from memory that is allocated once.
FEWEST_RUNS = 5

FLAGS = {"allocated": "--max-peak", "reserved": "--max-reserved"}

#: What a limit counts: only the increase during the test, or all memory of the process.
OF = ("test", "process")


class MarkerError(Exception):
    """A marker has invalid arguments."""


@dataclass(frozen=True)
class MemoryLimit:
    """The maximum memory that a test may use."""

    metric: str
    #: Bytes.
    limit: int
    #: Whether memory in use before the test counts.
    of: str

    def flag(self, before: int) -> str:
        """Return the option of `memviz check` for this limit on a device where `before` bytes were already in use."""
        return f"{FLAGS[self.metric]}={self.limit + (before if self.of == 'test' else 0)}B"


@dataclass(frozen=True)
class LeakLimit:
    """The maximum memory that each run of a test may leak."""

    #: Bytes.
    limit: int
    #: Number of runs of the test.
    runs: int
    #: A regular expression for frames. Stacks with a matching frame do not count.
    ignore: str | None


@dataclass(frozen=True)
class BaselineLimit:
    """The committed peak of a test."""

    path: Path
    #: Path used by earlier versions. The file may belong to another test.
    old_path: Path
    tolerance: str
    of: str


@dataclass(frozen=True)
class Limits:
    """The limits of a test."""

    memory: tuple[MemoryLimit, ...] = ()
    leaks: LeakLimit | None = None
    baseline: BaselineLimit | None = None
    #: The device to rehearse the test on; None: run it on the real device.
    rehearse: Device | None = None


def limits(item: pytest.Item) -> Limits | None:
    """Return the limits of a test, or None if it has none.

    Raises:
        MarkerError: if a marker has invalid arguments.
    """
    devices: list[Device] = []

    def arguments(marker: pytest.Mark) -> dict[str, Any]:
        kwargs = dict(marker.kwargs)
        asked = kwargs.pop("rehearse", False)
        if asked is not False:
            devices.append(Device.of(CONFIG if asked is True else str(asked), item.config.rootpath))
        return kwargs

    memory: dict[str, MemoryLimit] = {}
    leaks: LeakLimit | None = None
    baseline: BaselineLimit | None = None
    name = ""
    try:
        name = "limit_gpu_memory"
        for marker in _markers(item, name):
            limit = _memory(*marker.args, **arguments(marker))
            # The closest marker comes first, and overrides those of the class or module.
            memory.setdefault(limit.metric, limit)
        name = "limit_gpu_leaks"
        for marker in list(_markers(item, name))[:1]:
            leaks = _leaks(*marker.args, **arguments(marker))
        name = "gpu_memory_baseline"
        for marker in list(_markers(item, name))[:1]:
            usual = str(item.config.getini("memviz_tolerance"))
            tolerance, of = _baseline(usual, *marker.args, **arguments(marker))
            baseline = BaselineLimit(files.baseline(item), files.old_baseline(item), tolerance, of)
        name = "rehearse"
        if len(set(devices)) > 1:
            found = " and ".join(device.text for device in devices)
            raise ValueError(f"expected one GPU to rehearse on, found {found}")
    except (TypeError, ValueError, RehearsalError) as error:
        # Python's message names the function that parses the marker.
        said = re.sub(r"^_(memory|leaks|baseline)\(\)", "", str(error))
        raise MarkerError(f"{name}:{'' if said.startswith(' ') else ' '}{said}") from None
    if not memory and leaks is None and baseline is None:
        return None
    if not devices:
        devices = _usual_devices(item.config)
    return Limits(tuple(memory.values()), leaks, baseline, devices[0] if devices else None)


def _usual_devices(config: pytest.Config) -> list[Device]:
    """Return the device to rehearse tests with limits on if there is no GPU."""
    name = str(config.getini("memviz_rehearse") or "")
    if not name or library.has_gpu():
        return []
    try:
        return [Device.of(name, config.rootpath)]
    except RehearsalError as error:
        raise MarkerError(f"memviz_rehearse: {error}") from None


def _markers(item: pytest.Item, name: str) -> Iterator[pytest.Mark]:
    """Yield the markers of a test, those of its parameters first. pytest puts them after those of the function."""
    of_parameters = [mark for mark in getattr(getattr(item, "callspec", None), "marks", ()) if mark.name == name]
    yield from of_parameters
    yield from (mark for mark in item.iter_markers(name) if all(mark is not other for other in of_parameters))


def _memory(limit: str | int, metric: str = "allocated", of: str = "test") -> MemoryLimit:
    if metric not in FLAGS:
        raise ValueError(f"expected a metric of {' or '.join(FLAGS)}, found {metric!r}")
    return MemoryLimit(metric, size(limit), _of(of))


def _leaks(limit: str | int, runs: int = FEWEST_RUNS + 1, ignore: str | None = None) -> LeakLimit:
    if runs < FEWEST_RUNS:
        raise ValueError(f"expected at least {FEWEST_RUNS} runs, found {runs}")
    try:
        re.compile(ignore or "")
    except re.error as error:
        raise ValueError(f"expected a regular expression to ignore, found {ignore!r}: {error}") from None
    return LeakLimit(size(limit), runs, ignore)


def _baseline(usual: str, tolerance: Any = None, of: str = "test") -> tuple[str, str]:
    return str(tolerance if tolerance is not None else usual), _of(of)


def _of(of: str) -> str:
    if of not in OF:
        raise ValueError(f"expected of={' or of='.join(map(repr, OF))}, found {of!r}")
    return of
