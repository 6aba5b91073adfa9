"""Tests the pages for PyTorch's debug server with a real PyTorch."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

import torch_memviz

from .conftest import PROGRAMS, TorchEnvironment


def preformatted(page: str) -> str:
    """Return the text of the only block of a page."""
    [text] = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    return html.unescape(str(text))


def test_the_debug_server_shows_memory(torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has("tabulate") or not torch.has("requests"):
        pytest.skip("the environment lacks what the debug server needs")
    done = torch.run(PROGRAMS / "debug_server.py", "run.pickle", cwd=tmp_path)
    said = json.loads(done.stdout.splitlines()[-1])

    assert "MiB allocated" in preformatted(said["triage"]) or "KiB allocated" in preformatted(said["triage"])
    figures = json.loads(preformatted(said["summary"]))
    [device] = figures["devices"]
    assert figures["is_recording"]
    assert (device["allocated_bytes"], device["reserved_bytes"]) == (said["allocated"], said["reserved"])
    assert "what=dump" in said["links"]
    assert said["links"].count("<button>") == 1

    # The snapshot has the history so far, with the same figures.
    assert said["status"] == 200
    [downloaded] = torch_memviz.peak(tmp_path / "dump.pickle", at="end").devices
    assert downloaded.attribution.total_bytes == said["allocated"]
    assert downloaded.complete_history
    assert said["wrong"] == [500, 500]

    [file] = said["files"]
    assert file.startswith("memory_")
    assert "allocated" in (tmp_path / "dumps" / file).read_text()
    # The recording itself goes on.
    assert torch_memviz.info(tmp_path / "run_rank0.pickle").devices
