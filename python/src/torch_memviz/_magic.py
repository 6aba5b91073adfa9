"""`%%memviz`: records a notebook cell and shows its memory use."""

from __future__ import annotations

import argparse
import importlib
import shlex
import tempfile
from pathlib import Path
from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Add `%%memviz` to a notebook: `%load_ext torch_memviz`."""

    def memviz(line: str, cell: str) -> None:
        _record(shell, line, cell)

    memviz.__doc__ = _parser().format_help()
    shell.register_magic_function(memviz, magic_kind="cell")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="%%memviz", description="Record a cell, and show its peak and its memory over time.", add_help=False
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the recording")
    parser.add_argument("--by", default="site", help="what to group by: site, category, module ... [site]")
    parser.add_argument("--top", type=int, default=10, help="number of rows [10]")
    return parser


def _record(shell: Any, line: str, cell: str) -> None:
    display = importlib.import_module("IPython.display").display
    from ._commands import peak, timeline
    from ._recording.recorder import record

    asked = _parser().parse_args(shlex.split(line))
    with tempfile.TemporaryDirectory(prefix="memviz-") as folder:
        path = asked.output or Path(folder) / "cell.pickle"
        with record(path, report=False, ledger=False) as recorder:
            ran = shell.run_cell(cell)
            # The notebook has already shown the error; show what was recorded before it.
            if ran.error_in_exec is not None:
                recorder.dump()
        if not recorder.files:
            return
        written = recorder.recording or recorder.files[-1]
        display(peak(written, by=asked.by, top=asked.top))
        display(timeline(written, by=asked.by))
