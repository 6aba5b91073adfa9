"""The peaks of steps, as memviz finds them in a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._commands import peak
from .._errors import MemvizError
from .._source import Input

#: The annotations that `Recorder.step` makes.
STEPS = r"annotation:^step_\d+$"


@dataclass(frozen=True)
class StepPeak:
    """The peak of a step on a device."""

    #: As `Recorder.step` counts, from 0.
    number: int
    device: int
    #: Bytes that were allocated at most.
    peak: int
    #: Bytes that were reserved then.
    reserved: int
    #: The line that holds most then; empty where nothing is known.
    largest: str


def of_steps(recording: Input | None) -> list[StepPeak]:
    """Give the steps of a recording, in order.

    Raises:
        MemvizError: when there is no recording, or it has no steps.
    """
    if recording is None:
        raise MemvizError("expected a recording that runs or was written, found none")
    found = [
        StepPeak(
            number=int(str(part.label).removeprefix("step_").partition("#")[0]),
            device=device.device,
            peak=part.peak.allocated_bytes,
            reserved=part.peak.reserved_bytes,
            largest=_largest(part),
        )
        for device in peak(recording, each=STEPS).devices
        for part in device.ranges or ()
    ]
    return sorted(found, key=lambda step: (step.number, step.device))


def _largest(part: Any) -> str:
    rows = part.top
    return str(rows[0].label) if rows else ""
