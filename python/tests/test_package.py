"""Tests the files that ship with the code: licenses and the notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_memviz._binary import binary

from .conftest import ROOT

EXPORTS = ["a.pb.gz", "a.pftrace", "a.speedscope.json", "a.firefox.json", "a.folded", "a.parquet", "a.prom"]
NOTEBOOK = ROOT / "python" / "notebooks" / "first_look.ipynb"


@pytest.mark.parametrize("name", ["LICENSE-MIT", "LICENSE-APACHE"])
@pytest.mark.parametrize("package", ["python", "crates/recording"])
def test_licences_are_those_of_the_project(package: str, name: str) -> None:
    # A package contains only files next to its manifest.
    assert (ROOT / package / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_notebook_runs() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "a notebook is committed without what it printed"
    environment = {**os.environ, "MEMVIZ_BINARY": str(binary())}
    source = ROOT / "python" / "src"
    if "site-packages" not in str(Path(sys.modules["torch_memviz"].__file__ or "")):
        environment["PYTHONPATH"] = str(source)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": NOTEBOOK.parent}})
    client.execute(env=environment)
    shown = json.dumps([output for cell in notebook.cells for output in cell.get("outputs", [])])
    assert "image/svg+xml" in shown
    assert "data:image/svg+xml;base64," in shown
    assert "4453794816" in shown


@pytest.mark.parametrize("name", [*EXPORTS, "ranks.parquet"])
def test_the_binary_writes_every_export(tmp_path: Path, name: str) -> None:
    recording = ROOT / "fixtures" / "snapshots" / "tiny" / "snapshot.pickle.gz"
    command = "ranks" if name.startswith("ranks") else "export"
    subprocess.run([binary(), command, recording, "-o", tmp_path / name], check=True)
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("command", ["nsys", "mcp", "view", "ledger", "check"])
def test_the_binary_has_every_command(command: str) -> None:
    subprocess.run([binary(), command, "--help"], check=True, capture_output=True)
