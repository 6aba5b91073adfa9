"""Finds and runs the `memviz` binary of this package."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._errors import MemvizError, OptionValueError

__all__ = ["VARIABLE", "MemvizError", "Run", "binary", "call", "main", "run"]

#: Path of the binary to use instead of the one installed with this package.
VARIABLE = "MEMVIZ_BINARY"


def binary() -> Path:
    """Find the binary: the one named by `MEMVIZ_BINARY`, installed with this package, or on the PATH, in this order.

    Raises:
        MemvizError: if there is no binary.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if Path(named).is_file():
            return Path(named)
        raise MemvizError(f"expected a file in {VARIABLE}, found {named!r}")
    installed = next((path for path in _installed() if path.is_file()), None)
    if installed is not None:
        return installed
    on_path = shutil.which("memviz")
    if on_path is None:
        raise MemvizError("expected the memviz binary next to this package or on the PATH, found none")
    return Path(on_path)


def _installed() -> Iterator[Path]:
    """Yield the places where installers put the scripts of a package."""
    name = "memviz.exe" if sys.platform == "win32" else "memviz"
    yield Path(sysconfig.get_path("scripts")) / name
    yield Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))) / name
    # `pip install --target FOLDER`
    yield Path(__file__).parent.parent / "bin" / name


@dataclass(frozen=True)
class Run:
    """Output and exit code of a finished run of memviz."""

    stdout: str
    stderr: str
    exit_code: int

    def message(self) -> str:
        """Return the error message: the last line, after all warnings."""
        lines = self.stderr.strip().splitlines()
        return lines[-1].removeprefix("memviz: ") if lines else f"memviz exited with code {self.exit_code}"


def call(arguments: Sequence[str]) -> Run:
    """Run memviz and wait for it to finish.

    Raises:
        MemvizError: if the memviz binary is not found or does not run, or the system does not accept its arguments.
    """
    command, path, null = ["memviz", *arguments], binary(), subprocess.DEVNULL
    try:
        done = subprocess.run(command, executable=path, stdin=null, capture_output=True, encoding="utf-8", check=False)
    except OSError as error:
        raise _not_run(path, error) from None
    except UnicodeDecodeError:
        raise MemvizError(f"expected UTF-8 from {path}, found other bytes") from None
    except ValueError as error:
        # A NUL, or half of a surrogate pair.
        raise OptionValueError(f"expected paths and options that a command line can contain, found {error}") from None
    return Run(done.stdout, done.stderr, done.returncode)


def _not_run(path: Path, error: OSError) -> MemvizError:
    if error.errno == errno.E2BIG:
        return OptionValueError("expected paths and options that fit into a command line, found longer ones")
    return MemvizError(f"expected a program in {path}, found a file that does not run: {error.strerror}")


def run(arguments: Sequence[str], accepted: Sequence[int] = ()) -> str:
    """Run memviz and return its standard output.

    Raises:
        MemvizError: if memviz exits with a code that is not accepted, or with a nonzero code and no output. The message
            is memviz's error line.
    """
    done = call(arguments)
    if done.exit_code == 0 or (done.exit_code in accepted and done.stdout):
        return done.stdout
    raise MemvizError(done.message(), done.exit_code)


def main() -> int:
    """Replace this process with memviz, passing on its arguments. On Windows, run memviz and return its exit code."""
    try:
        # Commands that memviz suggests start with the name by which it was called.
        command, path = ["memviz", *sys.argv[1:]], str(binary())
    except MemvizError as error:
        print(f"memviz: {error}", file=sys.stderr)
        return error.exit_code
    try:
        if sys.platform != "win32":
            os.execv(path, command)
        return subprocess.run(command, executable=path, check=False).returncode
    except OSError as error:
        print(f"memviz: {_not_run(Path(path), error)}", file=sys.stderr)
        return 2
