"""The `memviz` binary of this package: where it is, and how it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._errors import MemvizError

__all__ = ["VARIABLE", "MemvizError", "Run", "binary", "call", "main", "run"]

#: Names another binary than the one that was installed with this package.
VARIABLE = "MEMVIZ_BINARY"


def binary() -> Path:
    """Find the binary: what `MEMVIZ_BINARY` names, what was installed with this package, or the one on the PATH.

    Raises:
        MemvizError: when there is none.
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
        raise MemvizError("expected the memviz binary beside this package or on the PATH, found none")
    return Path(on_path)


def _installed() -> Iterator[Path]:
    """Where installers put the scripts of a package."""
    name = "memviz.exe" if sys.platform == "win32" else "memviz"
    yield Path(sysconfig.get_path("scripts")) / name
    yield Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))) / name
    # `pip install --target FOLDER`
    yield Path(__file__).parent.parent / "bin" / name


@dataclass(frozen=True)
class Run:
    """What a finished run of memviz left behind."""

    stdout: str
    stderr: str
    exit_code: int

    def message(self) -> str:
        """Give the line that says what went wrong, which comes behind all warnings."""
        lines = self.stderr.strip().splitlines()
        return lines[-1].removeprefix("memviz: ") if lines else f"memviz ended with {self.exit_code}"


def call(arguments: Sequence[str]) -> Run:
    """Run memviz to its end.

    Raises:
        MemvizError: when there is no memviz.
    """
    command = [str(binary()), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False)
    return Run(done.stdout, done.stderr, done.returncode)


def run(arguments: Sequence[str], accepted: Sequence[int] = ()) -> str:
    """Run memviz to its end and give what it prints.

    Raises:
        MemvizError: when it exits with a code that is not accepted, or answers nothing with another one than 0; the
            message is the line that it says.
    """
    done = call(arguments)
    if done.exit_code == 0 or (done.exit_code in accepted and done.stdout):
        return done.stdout
    raise MemvizError(done.message(), done.exit_code)


def main() -> int:
    """Run memviz in the place of this process, with the arguments of this process; give its exit code."""
    try:
        command = [str(binary()), *sys.argv[1:]]
    except MemvizError as error:
        print(f"memviz: {error}", file=sys.stderr)
        return error.exit_code
    if sys.platform != "win32":
        os.execv(command[0], command)
    return subprocess.run(command, check=False).returncode
