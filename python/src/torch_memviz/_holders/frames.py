"""Local variables of running functions, and the files of a program."""

from __future__ import annotations

import inspect
import os
import sys
import types
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

#: Frames of this package are not part of the program.
_HERE = str(Path(__file__).parents[1])

#: References to the variables of a frame while they are read: the frame's, ours, and that of the call that counts them.
_REFERENCES = 3


def is_own(frame: FrameType) -> bool:
    """Whether a frame belongs to this package."""
    return frame.f_code.co_filename.startswith(_HERE)


def local_variables(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the local variables of a function, without changing how long they live.

    Before Python 3.13, a frame keeps the dictionary that `f_locals` returns, and with it the values: they would outlive
    their variables. So it is emptied, unless the program has one by `locals()`, which is the same.
    """
    variables = frame.f_locals
    found = list(variables.items())
    if (
        sys.version_info < (3, 13)
        and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        and sys.getrefcount(variables) <= _REFERENCES
    ):
        variables.clear()
    return found


def source_file(module: ModuleType | None) -> str:
    """Return the file of a module, or nothing."""
    variables = types.ModuleType.__getattribute__(module, "__dict__") if module is not None else {}
    file = variables.get("__file__")
    if type(file) is str:
        return file
    # At exit, Python has removed it.
    is_main = variables.get("__name__") == "__main__"
    return os.path.abspath(sys.argv[0]) if is_main and sys.argv and os.path.isfile(sys.argv[0]) else ""


def is_library(file: str) -> bool:
    if not file or file.startswith("<"):
        return file != "<stdin>" and not file.startswith("<ipython")
    parts = file.replace("\\", "/")
    return "/site-packages/" in parts or "/dist-packages/" in parts or parts.startswith(_STANDARD)


_STANDARD = sys.modules["os"].__file__.rsplit("/", 1)[0] + "/" if sys.modules["os"].__file__ else "/usr/lib/python"
