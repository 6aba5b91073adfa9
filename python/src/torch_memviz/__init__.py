"""Records GPU memory of PyTorch, and tells which lines of code hold it.

A function for each command of memviz gives its answer as dataclasses::

    import torch_memviz

    answer = torch_memviz.peak("run.pickle", by="category", at="oom")
    for row in answer.devices[0].attribution.rows:
        print(row.label, row.bytes)

and `record` makes the recordings::

    with torch_memviz.record("run.pickle") as recorder:
        for batch in batches:
            with recorder.step():
                train(batch)

Importing this package imports neither PyTorch nor anything else that is not Python's own.
"""

from . import answers
from ._binary import MemvizError, binary
from ._commands import (
    check,
    checkpoint,
    diff,
    fit,
    flamegraph,
    fragmentation,
    info,
    leaks,
    oom,
    peak,
    ranks,
    report,
    simulate,
    timeline,
    triage,
    view,
)
from ._picture import Picture
from ._recording.categories import categories, category
from ._recording.recorder import Recorder, RecordingError, current, record, stop
from ._rehearsal.gpus import RehearsalError
from ._rehearsal.start import Rehearsal, rehearse

__all__ = [
    "MemvizError",
    "Picture",
    "Recorder",
    "RecordingError",
    "Rehearsal",
    "RehearsalError",
    "answers",
    "binary",
    "categories",
    "category",
    "check",
    "checkpoint",
    "current",
    "diff",
    "fit",
    "flamegraph",
    "fragmentation",
    "info",
    "leaks",
    "oom",
    "peak",
    "ranks",
    "record",
    "rehearse",
    "report",
    "simulate",
    "stop",
    "timeline",
    "triage",
    "view",
]

# Errors are shown by the name that they are caught by.
for _error in (MemvizError, RecordingError, RehearsalError):
    _error.__module__ = __name__
