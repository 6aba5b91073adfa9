"""Inputs of a command: a file, bytes, a file object, or a snapshot from PyTorch."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ._errors import MemvizError


@runtime_checkable
class Readable(Protocol):
    """A file object."""

    def read(self) -> bytes:
        """Return its bytes."""
        ...


#: A recording: a file that memviz reads, its bytes, a file object, or what `torch.cuda.memory._snapshot` returns.
Input = str | os.PathLike[str] | bytes | bytearray | Readable | Mapping[str, Any]

#: Identifies a version of a file: its size, modification time and inode.
Version = tuple[int, int, int]


@dataclass(frozen=True)
class Source:
    """The recordings that a command reads, as files."""

    paths: tuple[str, ...]
    #: Their versions when the command ran; None for anything that is not a file, such as a folder.
    _versions: tuple[Version | None, ...]
    #: Temporary folders with the inputs that were not files. They exist as long as this object.
    _folders: tuple[Any, ...] = ()

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> Source:
        """Write inputs that are not files to temporary files."""
        folders: list[Any] = []
        paths = tuple(_path(value, folders) for value in inputs)
        return cls(paths, tuple(map(_version, paths)), tuple(folders))

    def check(self) -> None:
        """Check that each file is still the one that was analyzed.

        Raises:
            MemvizError: if a file has changed or no longer exists.
        """
        for path, version in zip(self.paths, self._versions, strict=True):
            if version is not None and _version(path) != version:
                raise MemvizError(f"{path}: expected the recording that was analyzed, found a different file or none")


def _path(value: Input, folders: list[Any]) -> str:
    if isinstance(value, str | os.PathLike):
        return os.path.expanduser(os.fspath(value))
    if isinstance(value, Mapping):
        value = pickle.dumps(dict(value))
    elif isinstance(value, Readable):
        value = value.read()
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"expected a path, bytes, a file or a snapshot of PyTorch, found {type(value).__name__}")
    folder = tempfile.TemporaryDirectory(prefix="memviz-")
    folders.append(folder)
    path = Path(folder.name) / "snapshot.pickle"
    path.write_bytes(value)
    return str(path)


def _version(path: str) -> Version | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if os.path.isfile(path) else None
