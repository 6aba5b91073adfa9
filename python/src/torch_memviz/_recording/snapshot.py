"""What the allocator of this process holds now, and what was recorded of it."""

from __future__ import annotations

from typing import Any

from . import release
from .recorder import current
from .release import RecordingError


def snapshot() -> dict[str, Any]:
    """Give a snapshot of this process, for any function of this package: `peak(snapshot())`.

    Without a recording that runs it has what is allocated now, and no history.

    Raises:
        RecordingError: when there is no GPU, or PyTorch is missing or too old.
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
