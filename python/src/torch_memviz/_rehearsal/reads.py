"""Counts the values that a program reads from a device, by line of code. All values are 0."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

#: Why a value is read, in the library's numbering: a copy to the host, a single value, or the size of a result.
KINDS = ("copy", "value", "size")

#: Code that is not the user's: this package, the standard library and installed packages.
_NOT_THEIRS = (
    str(Path(__file__).parents[1]),
    *filter(None, map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))),
)


class Reads:
    """Counts reads by line, and reports a line that reads so often that its loop may never end."""

    def __init__(self, most: int, too_many: Callable[[str], None]) -> None:
        """Call `too_many` with any line that has read `most` values, unless `most` is 0."""
        self._most, self._too_many = most, too_many
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, int, str, str], int] = {}

    def note(self, _bytes: int, kind: int) -> None:
        """Count a read by this thread."""
        frame = _theirs(sys._getframe(1) if sys._getframe(0).f_back is not None else None)
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else ("", 0, "backward")
        key = (*place, KINDS[kind])
        with self._lock:
            self._counts[key] = count = self._counts.get(key, 0) + 1
        if count == self._most and kind != 0:
            self._too_many(f"{_short(place[0])}:{place[1]} {_code(place[0], place[1])}")

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines that read values: first those that determine sizes, then those with the most reads."""
        with self._lock:
            counts = sorted(self._counts.items(), key=lambda item: (item[0][3] != "size", -item[1], item[0]))
        return [
            {"file": file, "line": line, "function": function, "code": _code(file, line), "kind": kind, "count": count}
            for (file, line, function, kind), count in counts
        ]


def _theirs(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's code, or else the innermost frame."""
    innermost = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *_NOT_THEIRS)) and "site-packages" not in name:
            return frame
        frame = frame.f_back
    return innermost


def _code(file: str, line: int) -> str:
    return linecache.getline(file, line).strip() if file else ""


def _short(file: str) -> str:
    return file.rsplit("/", 1)[-1]
