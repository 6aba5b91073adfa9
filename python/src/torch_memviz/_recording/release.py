"""What the PyTorch that is there can record, from 2.1 on."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

OLDEST = (2, 1)

#: From here on, ranges of `record_function` are part of a recording.
ANNOTATIONS = (2, 6)


class RecordingError(Exception):
    """Nothing can be recorded as it was asked for."""


def torch() -> ModuleType:
    """PyTorch, imported when something is recorded and not before.

    Raises:
        RecordingError: when it is missing or too old.
    """
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        raise RecordingError("expected PyTorch, which is not installed") from error
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


def dump(module: ModuleType, path: Path) -> None:
    """Write what was recorded. A file of this name is replaced when the new one is complete, and not before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        module.cuda.memory._dump_snapshot(str(partial))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def older(module: ModuleType) -> list[tuple[int, int]]:
    """Devices with what is allocated on them before anything is recorded."""
    if not module.cuda.is_initialized():
        return []
    devices = [(device, int(module.cuda.memory_allocated(device))) for device in range(module.cuda.device_count())]
    return [(device, count) for device, count in devices if count]
