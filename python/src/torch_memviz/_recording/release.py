"""What the PyTorch that is there can record, from 2.1 on."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

OLDEST = (2, 1)

#: The key of a snapshot that says whether entries were lost.
OVERFLOWED = "trace_alloc_overflowed"

#: From here on, ranges of `record_function` are part of a recording.
ANNOTATIONS = (2, 6)


class RecordingError(Exception):
    """Nothing can be recorded as it was asked for."""


# It is shown by the name that it is caught by.
RecordingError.__module__ = "torch_memviz"


def torch() -> ModuleType:
    """PyTorch, imported when something is recorded and not before.

    Raises:
        RecordingError: when it is missing or too old.
    """
    try:
        module = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise RecordingError("expected PyTorch, which is not installed") from None
    if version(module) < OLDEST:
        raise RecordingError(f"expected PyTorch 2.1 or later, found {module.__version__}")
    return module


def version(module: ModuleType) -> tuple[int, int]:
    """The release, without what follows its second number."""
    found = re.match(r"(\d+)\.(\d+)", str(module.__version__))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def why_not(module: ModuleType) -> str | None:
    """Why nothing would be recorded here; None where something is."""
    if not module.cuda.is_available():
        return "there is no CUDA device"
    if module.cuda.memory.get_allocator_backend() != "native":
        return "the allocator is not PyTorch's own, which alone records"
    return None


def is_recording(module: ModuleType) -> bool:
    """Whether somebody records already."""
    # Asked before there is an allocator, PyTorch crashes.
    return bool(module.cuda.is_initialized() and module._C._cuda_isHistoryEnabled())


def start(module: ModuleType, **options: Any) -> None:
    """Begin recording, forgetting what was recorded before."""
    memory = module.cuda.memory
    known = inspect.signature(getattr(memory, "_record_memory_history_impl", memory._record_memory_history)).parameters
    if "clear_history" in known:
        options["clear_history"] = True
    # Before its first use there is no allocator that could be told.
    module.cuda.init()
    memory._record_memory_history(enabled="all", **options)


def stop(module: ModuleType) -> None:
    """Stop recording, and forget what was recorded."""
    module.cuda.memory._record_memory_history(enabled=None)


def requests(module: ModuleType) -> list[int]:
    """How many requests the allocator of each device has served, recorded or not."""
    devices = range(module.cuda.device_count())
    return [module.cuda.memory_stats(device).get("allocation.all.allocated", 0) for device in devices]


def lost(kept: Sequence[int], least: Sequence[int], most: Sequence[int]) -> bool | None:
    """Whether entries are missing that were recorded; None where it cannot be told.

    A ring buffer drops them, and so does a program that records by itself. The file does not say: blocks that are older
    than what it holds look the same where they were made while something else recorded, and that is no loss.

    Args:
        kept: Requests that the recording has, by device.
        least: Requests that were served before it was taken.
        most: Requests that were served until then, other threads having gone on. Who resets the statistics makes both
            too low.
    """
    if any(held < count for held, count in zip(kept, least, strict=False)):
        return True
    return False if list(kept) == list(most) else None


def snapshot(module: ModuleType, before: list[int]) -> dict[str, Any]:
    """Take a snapshot, which says whether entries were lost where that is known.

    Args:
        module: PyTorch.
        before: What `requests` gave when recording began.
    """

    def served() -> list[int]:
        return [now - then for now, then in zip(requests(module), before, strict=True)]

    least = served()
    taken: dict[str, Any] = module.cuda.memory._snapshot()
    kept = [sum(entry["action"] == "alloc" for entry in trace) for trace in taken["device_traces"]]
    is_lost = lost(kept, least, served())
    if is_lost is not None:
        # As PyTorch's own viewer calls it.
        taken[OVERFLOWED] = is_lost
    return taken


def dump(module: ModuleType, path: Path, before: list[int]) -> bool:
    """Write what was recorded; give whether it is known that nothing was allocated or freed.

    A file of this name is replaced when the new one is complete, and not before.

    Args:
        module: PyTorch.
        path: The file.
        before: What `requests` gave when recording began.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    taken = snapshot(module, before)
    with replacing(path) as file:
        pickle.dump(taken, file)
    return taken.get(OVERFLOWED) is False and not any(taken["device_traces"])


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the place of `path` when all is written, and is gone when that fails.

    Nobody can foresee its name, and it is new: a link that somebody put there leads nowhere.
    """
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    # As `open` makes files: what the umask leaves of it.
    descriptor = os.open(partial, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            # The name must not get to the disk before what it is the name of.
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def older(module: ModuleType) -> list[tuple[int, int]]:
    """Devices with what is allocated on them before anything is recorded."""
    if not module.cuda.is_initialized():
        return []
    devices = [(device, int(module.cuda.memory_allocated(device))) for device in range(module.cuda.device_count())]
    return [(device, count) for device, count in devices if count]
