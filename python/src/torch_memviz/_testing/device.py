"""The device that tests are rehearsed on: a GPU by its name, or what `[rehearse]` of `memviz.toml` says."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._recording.sizes import size
from .._rehearsal.gpus import RehearsalError, named

if sys.version_info >= (3, 11):
    import tomllib
else:
    # pytest needs it there.
    tomllib = importlib.import_module("tomli")

#: The file, in pytest's root directory; where a device is named, its name stands for what it says.
CONFIG = "memviz.toml"

#: The GPU where the file names none, as for `memviz rehearse`.
USUAL = "h100-80gb"


@dataclass(frozen=True)
class Device:
    """A kind of GPU with so much memory."""

    gpu: str
    #: Bytes.
    memory: int
    #: What stands for it on the command line.
    text: str = field(compare=False)

    @classmethod
    def of(cls, text: str, root: Path) -> Device:
        """Give the device that a text stands for: the name of a GPU, or `memviz.toml`.

        Raises:
            RehearsalError: when there is no such GPU, or the file does not name one.
        """
        if text != CONFIG:
            gpu = named(text)
            return cls(gpu.key, gpu.memory, gpu.key)
        table = _table(root / CONFIG)
        gpu = named(str(table.get("gpu", USUAL)))
        try:
            return cls(gpu.key, size(table.get("memory", gpu.memory)), CONFIG)
        except (TypeError, ValueError) as error:
            raise RehearsalError(f"{root / CONFIG}: {error}") from None


def _table(path: Path) -> dict[str, Any]:
    try:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RehearsalError(f"{path}: {error}") from None
    table = file.get("rehearse")
    if not isinstance(table, dict):
        raise RehearsalError(f"expected [rehearse] in {path}, found none")
    return table
