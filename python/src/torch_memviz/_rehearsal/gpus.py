"""The GPUs that can be rehearsed, from `gpus.csv`, which `memviz fit --gpu` reads, too.

Memory is what PyTorch's messages name as the total capacity of the device: the least that programs that ran out of
memory printed (`measured`), or what a GPU with the same memory names, or the data sheet's less what drivers keep of
such devices. The rest is from NVIDIA's data sheets and from the table of compute capabilities in the CUDA programming
guide.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

#: What CUDA itself keeps of a device, in bytes: what `memviz fit` takes where it is not known.
CONTEXT = 500 << 20


class RehearsalError(Exception):
    """Nothing can be rehearsed as it was asked for."""


# It is shown by the name that it is caught by.
RehearsalError.__module__ = "torch_memviz"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU."""

    key: str
    name: str
    #: Bytes, and whether they are measured.
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
    """Give all that are known, those first that recordings most likely come from."""
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
    """Give the GPU of this name, in any case, with hyphens or without: a beginning that one GPU alone has will do.

    Raises:
        RehearsalError: when there is none, or more than one.
    """
    known, wanted = gpus(), _plain(key)
    found = [gpu for gpu in known if _plain(gpu.key) == wanted]
    found = found or [gpu for gpu in known if _plain(gpu.key).startswith(wanted)]
    if len(found) != 1:
        names = ", ".join(gpu.key for gpu in (found or known))
        raise RehearsalError(f"expected one of {names}, found {key!r}")
    return found[0]


def _plain(name: str) -> str:
    """A name as it is compared: `RTX 3090` and `rtx-3090` are `rtx3090`."""
    return re.sub(r"[\s_-]", "", name.lower()).removeprefix("nvidia")
