"""Names of recordings: those of several ranks stay apart, and `memviz ranks` reads the rank from them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def tell_of_groups(listener: Callable[[], None]) -> None:
    """Have a listener called whenever `torch.distributed` has a group. At its end a program often has none any more."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    # What `init_process_group` ends with, wherever that was imported from.
    update = getattr(c10d, "_update_default_pg", None)
    if update is None or hasattr(update, "tells_memviz"):
        return

    def update_and_tell(group: Any) -> Any:
        result = update(group)
        listener()
        return result

    update_and_tell.tells_memviz = True  # type: ignore[attr-defined]
    c10d._update_default_pg = update_and_tell  # type: ignore[union-attr]


def restarts() -> int:
    """How often torchrun has started this job again."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def file_name(path: Path, event: str = "", number: int | None = None) -> Path:
    """The name of a recording beside `path`: `run.pickle`, `run_rank3.pickle`, `run_rank3_oom_attempt1.pickle`.

    A job that torchrun started again leaves what it wrote before alone: `run_rank3_restart1.pickle`.

    Args:
        path: What was asked for.
        event: What the recording is of, where it is not the whole one.
        number: The rank, where `rank` does not know it any more.
    """
    number, again = number if number is not None else rank(), restarts()
    parts = [path.stem, f"rank{number}" if number is not None else "", f"restart{again}" if again else "", event]
    return path.with_name("_".join(part for part in parts if part) + (path.suffix or ".pickle"))


def of_earlier_runs(path: Path) -> list[Path]:
    """Files that an earlier run left, and that this one would write under the same names, or its next attempts.

    Args:
        path: The recording as `file_name` names it.
    """
    again = "" if restarts() else r"(_restart\d+)?"
    suffix = re.escape(path.suffix)
    events = rf"({suffix}|_oom_attempt\d+({suffix}|\.html)|_signal_attempt\d+{suffix})"
    pattern = re.compile(re.escape(path.stem) + again + events)
    try:
        return [found for found in path.parent.iterdir() if pattern.fullmatch(found.name)]
    except OSError:
        return []
