"""Errors of the commands as Python exceptions."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable


class MemvizError(Exception):
    """memviz failed. Holds its one-line message and its exit code.

    Exit codes are those of the command: 1 if a requested check failed, 2 if an error occurred. The error is also a
    FileNotFoundError if the recording is missing, a TypeError if an option does not exist, and a ValueError if an
    option does not accept its value.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


# Tracebacks show the public name.
MemvizError.__module__ = "torch_memviz"


class MissingFileError(MemvizError, FileNotFoundError):
    """A recording does not exist."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.errno, self.strerror, self.filename = errno.ENOENT, os.strerror(errno.ENOENT), path


class OptionError(MemvizError, TypeError):
    """A command does not have this option."""


class OptionValueError(MemvizError, ValueError):
    """An option does not accept this value."""


def in_python(error: MemvizError, function: str, paths: Iterable[str]) -> MemvizError:
    """Convert an error of a command to the matching Python exception.

    Args:
        error: The error of memviz.
        function: The name of the function that was called.
        paths: The recordings that were passed to it.
    """
    message = error.message
    if isinstance(error, OptionValueError):
        return error
    unknown = re.match(r"unexpected argument '--([\w-]+)'", message)
    if unknown is not None:
        tip = re.search(r"similar argument exists: '--([\w-]+)'", message)
        said = f"{function}() got an unexpected keyword argument {_keyword(unknown)!r}"
        return OptionError(f"{said}. Did you mean {_keyword(tip)!r}?" if tip is not None else said, error.exit_code)
    if message.startswith(("invalid value", "a value is required")):
        return OptionValueError(re.sub(r"--([\w-]+)(?: <[^>]*>)?", _keyword, message), error.exit_code)
    missing = next((path for path in paths if _is_about(message, path) and not os.path.exists(path)), None)
    if missing is not None:
        return MissingFileError(message, missing)
    return error


def _is_about(message: str, path: str) -> bool:
    """Whether a message starts with a path, in which memviz escapes characters that a terminal would not show."""
    shown = (re.escape(character) if character.isprintable() else ".+?" for character in path)
    return re.match(f"{''.join(shown)}: ", message) is not None


def _keyword(found: re.Match[str]) -> str:
    """Return the keyword argument for an option."""
    return found.group(1).replace("-", "_")
