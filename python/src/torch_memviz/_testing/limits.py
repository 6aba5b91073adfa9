"""What markers ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .._recording.sizes import size
from .._rehearsal.gpus import RehearsalError
from . import files
from .device import CONFIG, Device

#: The markers, as `pytest --markers` shows them.
MARKERS = (
    'limit_gpu_memory(limit, metric="allocated"): fail when more GPU memory is allocated (or reserved) than "4 GiB"; '
    'rehearse="h100-80gb", here and below, runs the test without a GPU, and rehearse=True on that of memviz.toml',
    'limit_gpu_leaks(limit, runs=6): run the test several times, and fail when each leaks more than "1 MiB"',
    'gpu_memory_baseline(tolerance="0%"): fail when the peak grows beyond that of the baseline beside the test',
)

#: Fewer cannot tell a leak from what is made once.
FEWEST_RUNS = 5

FLAGS = {"allocated": "--max-peak", "reserved": "--max-reserved"}


@dataclass(frozen=True)
class Limits:
    """The limits of a test, as options of `memviz check`."""

    flags: tuple[str, ...]
    #: How often the test is run.
    runs: int = 1
    #: Its baseline, and the tolerance.
    baseline: Path | None = None
    #: Where an earlier version kept it, which may be another test's.
    old_baseline: Path | None = None
    tolerance: str = ""
    #: The device that it is rehearsed on; None: it runs on the one that is there.
    rehearse: Device | None = None


def limits(item: pytest.Item) -> Limits | None:
    """Give the limits of a test; None where it has none.

    Raises:
        pytest.UsageError: when a marker is used in another way.
    """
    flags: list[str] = []
    runs, baseline, old_baseline, tolerance = 1, None, None, ""
    devices: list[Device] = []

    def arguments(marker: pytest.Mark) -> dict[str, Any]:
        kwargs = dict(marker.kwargs)
        asked = kwargs.pop("rehearse", False)
        if asked is not False:
            devices.append(Device.of(CONFIG if asked is True else str(asked), item.config.rootpath))
        return kwargs

    try:
        for marker in item.iter_markers("limit_gpu_memory"):
            flags.append(_memory(*marker.args, **arguments(marker)))
        for marker in _closest(item, "limit_gpu_leaks"):
            flag, runs = _leaks(*marker.args, **arguments(marker))
            flags += [flag, "--steps=^step_"]
        for marker in _closest(item, "gpu_memory_baseline"):
            tolerance = _tolerance(*marker.args, **arguments(marker))
            baseline, old_baseline = files.baseline(item), files.old_baseline(item)
        if len(set(devices)) > 1:
            found = " and ".join(device.text for device in devices)
            raise ValueError(f"expected one GPU to rehearse on, found {found}")
    except (TypeError, ValueError, RehearsalError) as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from error
    # The closest marker comes first, and replaces what the class or module says.
    flags = [flag for at, flag in enumerate(flags) if flag.split("=")[0] not in {f.split("=")[0] for f in flags[:at]}]
    if not flags and not baseline:
        return None
    return Limits(tuple(flags), runs, baseline, old_baseline, tolerance, devices[0] if devices else None)


def _closest(item: pytest.Item, name: str) -> Iterator[pytest.Mark]:
    marker = item.get_closest_marker(name)
    if marker is not None:
        yield marker


def _memory(limit: str | int, metric: str = "allocated") -> str:
    if metric not in FLAGS:
        raise ValueError(f"limit_gpu_memory: expected a metric of {' or '.join(FLAGS)}, found {metric!r}")
    return f"{FLAGS[metric]}={size(limit)}B"


def _leaks(limit: str | int, runs: int = FEWEST_RUNS + 1) -> tuple[str, int]:
    if runs < FEWEST_RUNS:
        raise ValueError(f"limit_gpu_leaks: expected at least {FEWEST_RUNS} runs, found {runs}")
    return f"--max-leak={size(limit)}B", runs


def _tolerance(tolerance: Any = "0%") -> str:
    return str(tolerance)
