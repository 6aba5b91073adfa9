"""Paths of the recording and the baseline of a test. Two tests never share a file."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

#: Environment variable with the name of the pytest-xdist worker.
WORKER = "PYTEST_XDIST_WORKER"

#: Maximum length of the readable part of a name: file systems allow 255 bytes, and suffixes follow.
LONGEST = 120


def recording(item: pytest.Item, worker: str | None = None) -> Path:
    """Return the path of a test's recording, relative to the folder of all recordings.

    It contains the folders of the node id and the pytest-xdist worker: `unit/test_model.TestStep.test_it.gw1.pickle`.
    """
    file, _, test = item.nodeid.partition("::")
    folders = Path(file).parent
    if folders.is_absolute() or ".." in folders.parts:
        # The file is outside of pytest's root directory.
        test, folders = item.nodeid, Path("elsewhere")
    worker = os.environ.get(WORKER) if worker is None else worker
    return folders / f"{name(Path(file).stem, test)}{f'.{worker}' if worker else ''}.pickle"


def baseline(item: pytest.Item) -> Path:
    """Return the path of a test's baseline, in the folder `gpu-memory` next to the test file."""
    return item.path.parent / "gpu-memory" / f"{name(item.path.stem, item.nodeid.partition('::')[2])}.json"


def old_baseline(item: pytest.Item) -> Path:
    """Return the baseline path of earlier versions: without the class, so that tests of several classes shared it."""
    test = re.sub(r"[^\w.-]+", "-", item.name).strip("-")
    return item.path.parent / "gpu-memory" / f"{item.path.stem}.{test}.json"


def name(file: str, test: str) -> str:
    """Return the name of a test as a valid file name.

    Args:
        file: The stem of its file.
        test: The rest of its node id: classes, function, and parameters.
    """
    readable = f"{file}.{test.replace('::', '.')}"
    function, _, parameters = test.partition("[")
    # On some systems, parameters that differ only in case would give the same file name.
    is_unique = "." not in file and re.fullmatch(r"[\w:]+", f"{file}{function}") and not parameters
    if is_unique and len(readable) <= LONGEST:
        return readable
    escaped = re.sub(r"[^\w.-]+", "-", readable)[:LONGEST].strip("-.")
    return f"{escaped}.{hashlib.sha256(f'{file}::{test}'.encode()).hexdigest()[:10]}"
