"""Recording with the installed PyTorch, 2.1 or later."""

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

from . import counters
from .counters import Counters

OLDEST = (2, 1)

#: The key of a snapshot that says whether entries were lost.
OVERFLOWED = "trace_alloc_overflowed"

#: The first release whose recordings contain the ranges of `record_function`.
ANNOTATIONS = (2, 6)


class RecordingError(Exception):
    """The requested recording is not possible."""


# Tracebacks show the public name.
RecordingError.__module__ = "torch_memviz"


def torch() -> ModuleType:
    """Import PyTorch, which happens only when something is recorded.

    Raises:
        RecordingError: if PyTorch is missing or too old.
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
    """Return the major and minor version."""
    found = re.match(r"(\d+)\.(\d+)", str(module.__version__))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def why_not(module: ModuleType) -> str | None:
    """Return why recording is not possible here, or None if it is."""
    if not module.cuda.is_available():
        return "there is no CUDA device"
    if module.cuda.memory.get_allocator_backend() != "native":
        return "only PyTorch's native allocator can be recorded, found another one"
    return None


def is_recording(module: ModuleType) -> bool:
    """Whether PyTorch is recording already."""
    # PyTorch crashes if this is called before the allocator exists.
    return bool(module.cuda.is_initialized() and module._C._cuda_isHistoryEnabled())


def start(module: ModuleType, **options: Any) -> Counters:
    """Start recording, and discard what was recorded before. Returns the counters of PyTorch at that instant."""
    memory = module.cuda.memory
    known = inspect.signature(getattr(memory, "_record_memory_history_impl", memory._record_memory_history)).parameters
    if "clear_history" in known:
        options["clear_history"] = True
    # The allocator exists only once CUDA is initialized.
    module.cuda.init()
    before = counters.read(module)
    memory._record_memory_history(enabled="all", **options)
    return Counters(before, counters.read(module))


def stop(module: ModuleType) -> None:
    """Stop recording, and discard what was recorded."""
    module.cuda.memory._record_memory_history(enabled=None)


def lost(kept: Sequence[int], least: Sequence[int], most: Sequence[int]) -> bool | None:
    """Whether recorded entries were lost; None if this is unknown.

    A full ring buffer drops entries, and so does a program that starts a recording itself. The file does not show it:
    blocks older than its entries look the same if they were allocated during an earlier recording, which is no loss.

    Args:
        kept: Requests in the recording, by device.
        least: Requests served before the snapshot was taken.
        most: Requests served until after the snapshot, since other threads may continue. If the program resets the
            statistics, both are too low.
    """
    if any(held < count for held, count in zip(kept, least, strict=False)):
        return True
    return False if list(kept) == list(most) else None


def snapshot(module: ModuleType, start: Counters) -> dict[str, Any]:
    """Take a snapshot, and add the counters of PyTorch, and whether entries were lost if that is known.

    Args:
        module: PyTorch.
        start: What `start` returned.
    """
    before = counters.read(module)
    taken: dict[str, Any] = module.cuda.memory._snapshot()
    after = counters.read(module)
    kept = [sum(entry["action"] == "alloc" for entry in trace) for trace in taken["device_traces"]]
    is_lost = lost(kept, start.served(before), start.served(after))
    if is_lost is not None:
        # The key that PyTorch's own viewer uses.
        taken[OVERFLOWED] = is_lost
    taken[counters.KEY] = start.to_json(before, after)
    return taken


def dump(module: ModuleType, path: Path, start: Counters, more: dict[str, str]) -> bool:
    """Write the recording, and return whether it is certain that nothing was allocated or freed.

    An existing file is replaced only when the new one is complete.

    Args:
        module: PyTorch.
        path: The file.
        start: What `start` returned.
        more: Further keys of the snapshot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    taken = snapshot(module, start) | more
    with replacing(path) as file:
        pickle.dump(taken, file)
    return taken.get(OVERFLOWED) is False and not any(taken["device_traces"])


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` on success and is removed on failure.

    Its name is unpredictable, and the file must not exist yet, so a link planted there has no effect.
    """
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    # The mode that `open` uses; the umask applies.
    descriptor = os.open(partial, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            # The contents must reach the disk before the new name does.
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def older(module: ModuleType) -> list[tuple[int, int]]:
    """Return devices with memory allocated before recording started, and the bytes."""
    if not module.cuda.is_initialized():
        return []
    devices = [(device, int(module.cuda.memory_allocated(device))) for device in range(module.cuda.device_count())]
    return [(device, count) for device, count in devices if count]
