"""Records PyTorch GPU memory and shows which lines of code hold it.

Each command of memviz has a function, which returns the answer as dataclasses::

    import torch_memviz

    answer = torch_memviz.peak("run.pickle", by="category", at="oom")
    print(answer)
    for row in answer.devices[0].attribution.rows:
        print(row.label, row.bytes)

`record` makes the recordings::

    with torch_memviz.record("run.pickle") as recorder:
        for batch in batches:
            with recorder.step():
                train(batch)

Importing this package imports only the standard library, not PyTorch. Each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import answers, hooks
    from ._binary import binary
    from ._commands import (
        blocks,
        check,
        checkpoint,
        curve,
        diff,
        fit,
        fix,
        flamegraph,
        fragmentation,
        info,
        leaks,
        ledger,
        nsys,
        oom,
        peak,
        ranks,
        report,
        simulate,
        timeline,
        triage,
        view,
    )
    from ._errors import MemvizError
    from ._holders.now import Holder, holders
    from ._magic import load_ipython_extension
    from ._picture import Page, Picture
    from ._recording.categories import categories, category
    from ._recording.recorder import Recorder, current, record, stop
    from ._recording.release import RecordingError
    from ._recording.snapshot import snapshot
    from ._rehearsal.gpus import RehearsalError
    from ._rehearsal.start import Rehearsal, rehearse

    __version__: str

#: The module of each name.
_MODULES = {
    "Holder": "_holders.now",
    "MemvizError": "_errors",
    "Page": "_picture",
    "Picture": "_picture",
    "Recorder": "_recording.recorder",
    "RecordingError": "_recording.release",
    "Rehearsal": "_rehearsal.start",
    "RehearsalError": "_rehearsal.gpus",
    "binary": "_binary",
    "categories": "_recording.categories",
    "category": "_recording.categories",
    "current": "_recording.recorder",
    "holders": "_holders.now",
    "load_ipython_extension": "_magic",
    "record": "_recording.recorder",
    "rehearse": "_rehearsal.start",
    "snapshot": "_recording.snapshot",
    "stop": "_recording.recorder",
    **dict.fromkeys(
        (
            *(
                "blocks",
                "check",
                "checkpoint",
                "curve",
                "diff",
                "fit",
                "fix",
                "flamegraph",
                "fragmentation",
                "info",
                "leaks",
                "ledger",
                "nsys",
                "oom",
                "peak",
            ),
            *("ranks", "report", "simulate", "timeline", "triage", "view"),
        ),
        "_commands",
    ),
}

__all__ = [
    "Holder",
    "MemvizError",
    "Page",
    "Picture",
    "Recorder",
    "RecordingError",
    "Rehearsal",
    "RehearsalError",
    "__version__",
    "answers",
    "binary",
    "blocks",
    "categories",
    "category",
    "check",
    "checkpoint",
    "current",
    "curve",
    "diff",
    "fit",
    "fix",
    "flamegraph",
    "fragmentation",
    "holders",
    "hooks",
    "info",
    "leaks",
    "ledger",
    "load_ipython_extension",
    "nsys",
    "oom",
    "peak",
    "ranks",
    "record",
    "rehearse",
    "report",
    "simulate",
    "snapshot",
    "stop",
    "timeline",
    "triage",
    "view",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("torch-memviz")
    elif name in ("answers", "hooks"):
        value = importlib.import_module(f"{__name__}.{name}")
    elif name in _MODULES:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *__all__})
