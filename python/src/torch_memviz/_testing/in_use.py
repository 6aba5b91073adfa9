"""Memory in use when a test started, which does not belong to the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .._recording import release

#: memviz's names for the counters of `torch.cuda.memory_stats`.
COUNTERS = {
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "active_bytes": "active_bytes.all.current",
    "requested_bytes": "requested_bytes.all.current",
}

#: The row for memory that is older than a recording.
OLDER = "(before recording)"

#: Bytes in use, by device and counter.
InUse = dict[int, dict[str, int]]


def in_use() -> InUse:
    """Return the memory in use now."""
    cuda = release.torch().cuda
    if not cuda.is_initialized():
        return {}
    return {
        device: {name: int(stats.get(key, 0)) for name, key in COUNTERS.items()}
        for device, stats in ((device, cuda.memory_stats(device)) for device in range(cuda.device_count()))
    }


def without(answer: dict[str, Any], before: InUse) -> dict[str, Any]:
    """Subtract memory in use before the test from an answer of `memviz check`."""
    return _shifted(answer, before, -1)


def within(answer: dict[str, Any], before: InUse) -> dict[str, Any]:
    """Add memory in use before the test to an answer of `memviz check`, to compare with it in this process."""
    return _shifted(answer, before, 1)


def nothing(path: Path) -> dict[str, Any]:
    """Return the answer of `memviz check` for the recording of a test that allocated nothing."""
    from ..answers import SCHEMA_VERSION

    counters = dict.fromkeys(COUNTERS, 0)
    device = {
        "device": 0,
        "baseline_bytes": 0,
        "metric": "allocated",
        "peak": counters,
        "maxima": counters,
        "end": counters,
        "attribution": {"by": "site", "total_bytes": 0, "rows": []},
        "certainty": dict.fromkeys(("allocated_bytes", "reserved_bytes"), "exact"),
    }
    return {"schema_version": SCHEMA_VERSION, "command": "check", "input": {"path": str(path)}, "devices": [device]}


def write(path: Path, answer: dict[str, Any]) -> None:
    """Write an answer."""
    path.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """Read an answer."""
    answer = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(answer, dict)
    return answer


def _shifted(answer: dict[str, Any], before: InUse, sign: int) -> dict[str, Any]:
    for device in answer["devices"]:
        held = before.get(device["device"], {})
        for part in ("peak", "maxima", "end"):
            changed = {name: device[part][name] + sign * held.get(name, 0) for name in COUNTERS}
            device[part] = {**device[part], **changed}
        allocated = held.get("allocated_bytes", 0)
        attribution = device["attribution"]
        older = {"label": OLDER, "bytes": allocated, "blocks": 0, "inferred": False, "stack": []}
        rows = [row for row in attribution["rows"] if row["label"] != OLDER]
        attribution["rows"] = rows + ([older] if sign > 0 and allocated else [])
        attribution["total_bytes"] += sign * allocated
        device["baseline_bytes"] = allocated if sign > 0 else 0
    return answer
