"""PyTorch's own counters, written into recordings: memviz compares its figures with them, and notices lost entries."""

from __future__ import annotations

import json
from types import ModuleType

#: Key of the counters in a snapshot, and the version of their format.
KEY = "memory_stats"
VERSION = 1

#: The number of requests that a device has served.
REQUESTS = "allocation.all.allocated"
#: The number of frees that the program has requested on a device.
FREES = "allocation.all.freed"
METRICS = ("allocated", "active", "requested", "reserved")
#: The counters that are written.
NAMES = (REQUESTS, *(f"{metric}_bytes.all.{kind}" for metric in METRICS for kind in ("current", "peak")))

#: Counters by device.
Counted = list[dict[str, int]]


def read(module: ModuleType) -> Counted:
    """Return the counters of all devices. Those that this release does not have are left out."""
    stats = (module.cuda.memory_stats(device) for device in range(module.cuda.device_count()))
    return [{name: int(one[name]) for name in NAMES if name in one} for one in stats]


def frees(module: ModuleType) -> list[int]:
    """Return how many frees the program has requested on each device."""
    devices = range(module.cuda.device_count())
    return [int(module.cuda.memory_stats(device).get(FREES, 0)) for device in devices]


class Counters:
    """The counters from the start of a recording on."""

    def __init__(self, before: Counted, start: Counted) -> None:
        """Take the counters right before and right after recording started."""
        self._before, self._start = before, start

    def served(self, now: Counted) -> list[int]:
        """Return how many requests each device has served since then, recorded or not."""
        return [one.get(REQUESTS, 0) - then.get(REQUESTS, 0) for one, then in zip(now, self._start, strict=True)]

    def to_json(self, before: Counted, after: Counted) -> str:
        """Return what is written into a snapshot, given the counters right before and right after it was taken.

        Counters that other threads changed in between belong to no instant of the recording, and are left out.
        """
        devices = zip(self._before, self._start, before, after, strict=True)
        content = [
            {"start": start if was == start else None, "end": end if end == now else None}
            for was, start, end, now in devices
        ]
        return json.dumps({"version": VERSION, "devices": content}, separators=(",", ":"))
