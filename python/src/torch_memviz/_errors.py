"""Errors of the commands, in Python's words."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable


class MemvizError(Exception):
    """memviz could not do its work: the one line it says, and the code it exits with.

    Exit codes are those of the command: 1 for a requested check that failed, 2 for work that could not be done. If the
    recording is missing, it is also a FileNotFoundError; if an option does not exist, a TypeError; if an option cannot
    have its value, a ValueError.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


# It is shown by the name that it is caught by.
MemvizError.__module__ = "torch_memviz"


class MissingFileError(MemvizError, FileNotFoundError):
    """A recording is not there."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.errno, self.strerror, self.filename = errno.ENOENT, os.strerror(errno.ENOENT), path


class OptionError(MemvizError, TypeError):
    """A command has no such option."""


class OptionValueError(MemvizError, ValueError):
    """An option cannot have this value."""


def in_python(error: MemvizError, function: str, paths: Iterable[str]) -> MemvizError:
    """Give an error of a command as Python would say it.

    Args:
        error: What memviz says.
        function: The name of the function that was called.
        paths: The recordings that it was called with.
    """
    message = error.message
    unknown = re.match(r"unexpected argument '--([\w-]+)'", message)
    if unknown is not None:
        tip = re.search(r"similar argument exists: '--([\w-]+)'", message)
        said = f"{function}() got an unexpected keyword argument {_keyword(unknown)!r}"
        return OptionError(f"{said}. Did you mean {_keyword(tip)!r}?" if tip is not None else said, error.exit_code)
    if message.startswith(("invalid value", "a value is required")):
        return OptionValueError(re.sub(r"--([\w-]+)(?: <[^>]*>)?", _keyword, message), error.exit_code)
    missing = next((path for path in paths if message.startswith(f"{path}: ") and not os.path.exists(path)), None)
    if missing is not None:
        return MissingFileError(message, missing)
    return error


def _keyword(found: re.Match[str]) -> str:
    """The argument of a function that an option is."""
    return found.group(1).replace("-", "_")
