"""Builds the package with maturin, and on Linux first the stand-in for CUDA, which wheels contain.

`pip install ./python` calls these functions. A source distribution has no stand-in to build.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

#: The folder of the package, and the script that builds the stand-in.
PACKAGE = Path(__file__).parents[1]
SCRIPT = PACKAGE.parent / "rehearsal" / "build"


def build_wheel(*arguments: Any) -> str:
    """Build the stand-in, and then the wheel."""
    build_stand_in()
    return str(maturin.build_wheel(*arguments))


def build_editable(*arguments: Any) -> str:
    """Build the stand-in, and then a wheel that refers to the sources."""
    build_stand_in()
    return str(maturin.build_editable(*arguments))


def build_stand_in() -> None:
    """Build the stand-in. Where that fails, everything but rehearsals works, and these say what to run."""
    # What is next to the folder of a source distribution, which has a Cargo.toml of its own, belongs to someone else.
    is_clone = not (PACKAGE / "Cargo.toml").exists()
    if sys.platform == "linux" and is_clone and SCRIPT.is_file():
        subprocess.run([str(SCRIPT)], check=False)
