"""The device that tests are rehearsed on: a GPU by name, or the one in `[rehearse]` of `memviz.toml`."""

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
    # pytest depends on it with these versions of Python.
    tomllib = importlib.import_module("tomli")

#: The file in pytest's root directory. Used as a device name, it selects the device that the file describes.
CONFIG = "memviz.toml"

#: The GPU if the file does not name one, as for `memviz rehearse`.
USUAL = "h100-80gb"


@dataclass(frozen=True)
class Device:
    """A kind of GPU with a given amount of memory."""

    gpu: str
    #: Bytes.
    memory: int
    #: Its name on the command line.
    text: str = field(compare=False)

    @classmethod
    def of(cls, text: str, root: Path) -> Device:
        """Return the device for a text: the name of a GPU, or `memviz.toml`.

        Raises:
            RehearsalError: if there is no such GPU, or the file does not describe a device.
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
