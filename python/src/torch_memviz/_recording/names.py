"""Names of recordings: those of several ranks stay apart, and `memviz ranks` reads the rank from them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Variables that say which of several processes this is, with those that say how many there are.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def rank() -> int | None:
    """The rank of this process: as `torch.distributed` says, or else the launcher; None for a process on its own."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for variable, size in LAUNCHERS:
        number, count = os.environ.get(variable, ""), os.environ.get(size, "")
        # torchrun gives a single process a rank, too; SLURM and MPI give one to what is not distributed at all.
        if number.isdecimal() and (variable == "RANK" or (count.isdecimal() and int(count) > 1)):
            return int(number)
    return None


def restarts() -> int:
    """How often torchrun has started this job again."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def file_name(path: Path, event: str = "") -> Path:
    """The name of a recording beside `path`: `run.pickle`, `run_rank3.pickle`, `run_rank3_oom_attempt1.pickle`.

    A job that torchrun started again leaves what it wrote before alone: `run_rank3_restart1.pickle`.
    """
    number, again = rank(), restarts()
    parts = [path.stem, f"rank{number}" if number is not None else "", f"restart{again}" if again else "", event]
    return path.with_name("_".join(part for part in parts if part) + (path.suffix or ".pickle"))
