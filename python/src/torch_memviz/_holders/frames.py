"""Local variables of running functions, and the files of a program."""

from __future__ import annotations

import dis
import inspect
import os
import sys
import types
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

#: Frames of this package are not part of the program.
_HERE = str(Path(__file__).parents[1])

#: Instructions at which a function starts and ends.
_ENDS = frozenset(dis.opmap[name] for name in ("RESUME", "RETURN_VALUE") if name in dis.opmap)

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
    is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    variables = frame.f_locals
    if not is_function and type(variables) is not dict:
        # The namespace of a class in the making can be an object of the program.
        return []
    found = list(variables.items())
    if (
        sys.version_info < (3, 13)
        and is_function
        and sys.getrefcount(variables) <= _REFERENCES
        and not _is_traced(frame)
    ):
        variables.clear()
    return found


def _is_traced(frame: FrameType) -> bool:
    """Whether a debugger or profiler may be looking at a frame.

    If it is, Python copies the dictionary back into the variables of the function when it has looked.
    """
    if frame.f_trace is not None:
        return True
    # It looks before the first and at the last instruction even if it does not trace the others.
    at = frame.f_lasti
    return at < 0 or frame.f_code.co_code[at] in _ENDS


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
