"""The GPUs that can be rehearsed, from `gpus.csv`, which `memviz fit --gpu` also reads.

Memory is the total capacity of the device in PyTorch's error messages: the lowest value printed by programs that ran
out of memory (`measured`), or the value of a GPU with the same memory, or the value in the data sheet minus what
drivers reserve on such devices. All other values are from NVIDIA's data sheets and from the table of compute
capabilities in the CUDA programming guide.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

#: Memory that CUDA itself uses on a device, in bytes: the value that `memviz fit` uses if it is unknown.
CONTEXT = 500 << 20


class RehearsalError(Exception):
    """The requested rehearsal is not possible."""


# Tracebacks show the public name.
RehearsalError.__module__ = "torch_memviz"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU."""

    key: str
    name: str
    #: Memory in bytes, and whether it was measured.
    memory: int
    measured: bool
    #: Compute capability times ten.
    capability: int
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    cache: int
    bus: int


def gpus() -> list[Gpu]:
    """Return all known GPUs, the most common ones first."""
    with Path(__file__).with_name("gpus.csv").open(newline="", encoding="utf-8") as file:
        return [_gpu(row) for row in csv.DictReader(file)]


def _gpu(row: dict[str, str]) -> Gpu:
    number = {key: int(value) for key, value in row.items() if value.isdecimal()}
    return Gpu(
        key=row["key"],
        name=row["name"],
        memory=number["memory_mib"] << 20,
        measured=row["measured"] == "yes",
        capability=number["capability"],
        multiprocessors=number["multiprocessors"],
        shared_per_block=number["shared_block_kib"] << 10,
        shared_per_multiprocessor=number["shared_kib"] << 10,
        threads_per_multiprocessor=number["threads"],
        blocks_per_multiprocessor=number["blocks"],
        cache=number["cache_mib"] << 20,
        bus=number["bus"],
    )


def named(key: str) -> Gpu:
    """Return the GPU with this name, ignoring case and hyphens. A unique prefix is enough.

    Raises:
        RehearsalError: if no GPU or more than one matches.
    """
    known, wanted = gpus(), _plain(key)
    found = [gpu for gpu in known if _plain(gpu.key) == wanted]
    found = found or [gpu for gpu in known if _plain(gpu.key).startswith(wanted)]
    if len(found) != 1:
        names = ", ".join(gpu.key for gpu in (found or known))
        raise RehearsalError(f"expected one of {names}, found {key!r}")
    return found[0]


def _plain(name: str) -> str:
    """Normalize a name for comparison: `RTX 3090` and `rtx-3090` are `rtx3090`."""
    return re.sub(r"[\s_-]", "", name.lower()).removeprefix("nvidia")
