"""Where the recording and the baseline of a test lie: two tests never share a file."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

#: The worker of pytest-xdist that runs this process.
WORKER = "PYTEST_XDIST_WORKER"

#: The longest part of a name that is readable: file systems allow 255 bytes, and suffixes follow.
LONGEST = 120


def recording(item: pytest.Item, worker: str | None = None) -> Path:
    """Give the path of a test's recording, relative to the folder of all recordings.

    It has the folders of the node id and the worker of pytest-xdist: `unit/test_model.TestStep.test_it.gw1.pickle`.
    """
    file, _, test = item.nodeid.partition("::")
    folders = Path(file).parent
    if folders.is_absolute() or ".." in folders.parts:
        # A file outside of pytest's root directory.
        test, folders = item.nodeid, Path("elsewhere")
    worker = os.environ.get(WORKER) if worker is None else worker
    return folders / f"{name(Path(file).stem, test)}{f'.{worker}' if worker else ''}.pickle"


def baseline(item: pytest.Item) -> Path:
    """Give the baseline of a test: in the folder `gpu-memory` beside its file."""
    return item.path.parent / "gpu-memory" / f"{name(item.path.stem, item.nodeid.partition('::')[2])}.json"


def old_baseline(item: pytest.Item) -> Path:
    """Give the name that the baseline had before it had the class: tests of several classes shared it."""
    test = re.sub(r"[^\w.-]+", "-", item.name).strip("-")
    return item.path.parent / "gpu-memory" / f"{item.path.stem}.{test}.json"


def name(file: str, test: str) -> str:
    """Give the name of a test, as one of a file.

    Args:
        file: The stem of its file.
        test: The rest of its node id: classes, function, and parameters.
    """
    readable = f"{file}.{test.replace('::', '.')}"
    function, _, parameters = test.partition("[")
    # Parameters that differ in case alone are one name on some systems.
    is_unique = "." not in file and re.fullmatch(r"[\w:]+", f"{file}{function}") and not parameters
    if is_unique and len(readable) <= LONGEST:
        return readable
    escaped = re.sub(r"[^\w.-]+", "-", readable)[:LONGEST].strip("-.")
    return f"{escaped}.{hashlib.sha256(f'{file}::{test}'.encode()).hexdigest()[:10]}"
