"""Takes a snapshot of this process, with the history that was recorded."""

from __future__ import annotations

from typing import Any

from . import release
from .recorder import current
from .release import RecordingError


def snapshot() -> dict[str, Any]:
    """Return a snapshot of this process, for any function of this package: `peak(snapshot())`.

    If nothing is being recorded, it contains only the current allocations and no history.

    Raises:
        RecordingError: if there is no GPU, or PyTorch is missing or too old.
    """
    torch = release.torch()
    reason = release.why_not(torch)
    if reason is not None:
        raise RecordingError(f"expected a GPU to take a snapshot of: {reason}")
    recorder = current()
    if recorder is not None and recorder.is_recording:
        return recorder.snapshot()
    torch.cuda.init()
    taken: dict[str, Any] = torch.cuda.memory._snapshot()
    return taken
