"""Names of recordings. Each rank has its own file name, from which `memviz ranks` reads the rank."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Environment variables with the rank of this process, and those with the number of processes.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def rank() -> int | None:
    """Return the rank of this process from `torch.distributed` or else from the launcher; None for a single process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for variable, size in LAUNCHERS:
        number, count = os.environ.get(variable, ""), os.environ.get(size, "")
        # torchrun sets a rank even for a single process; SLURM and MPI also do for programs that are not distributed.
        if number.isdecimal() and (variable == "RANK" or (count.isdecimal() and int(count) > 1)):
            return int(number)
    return None


def tell_of_groups(listener: Callable[[], None]) -> None:
    """Call a listener whenever `torch.distributed` sets the default group, which is often gone when a program ends."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    # `init_process_group` calls it last, wherever that function was imported from.
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
    """Return how many times torchrun has restarted this job."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def file_name(path: Path, event: str = "", number: int | None = None) -> Path:
    """Name a recording based on `path`: `run.pickle`, `run_rank3.pickle`, `run_rank3_oom_attempt1.pickle`.

    A job that torchrun restarted keeps its earlier files: `run_rank3_restart1.pickle`.

    Args:
        path: The requested path.
        event: What the recording captures, if it is not the full recording.
        number: The rank, if `rank` no longer knows it.
    """
    number, again = number if number is not None else rank(), restarts()
    parts = [path.stem, f"rank{number}" if number is not None else "", f"restart{again}" if again else "", event]
    return path.with_name("_".join(part for part in parts if part) + (path.suffix or ".pickle"))


def of_earlier_runs(path: Path) -> list[Path]:
    """Return files of an earlier run that have the names of this recording or of its later attempts.

    Args:
        path: The recording, as named by `file_name`.
    """
    again = "" if restarts() else r"(_restart\d+)?"
    suffix = re.escape(path.suffix)
    # Each recording may have a file for `memviz ledger` next to it.
    files = rf"({suffix}|\.device\.json)"
    events = rf"({files}|_oom_attempt\d+({files}|\.html)|_signal_attempt\d+{files})"
    pattern = re.compile(re.escape(path.stem) + again + events)
    try:
        return [found for found in path.parent.iterdir() if pattern.fullmatch(found.name)]
    except OSError:
        return []
