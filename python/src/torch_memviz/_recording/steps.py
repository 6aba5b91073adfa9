"""The peaks of steps in a recording, computed by memviz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._commands import peak
from .._errors import MemvizError
from .._source import Input

#: The annotations that `Recorder.step` adds.
STEPS = r"annotation:^step_\d+$"


@dataclass(frozen=True)
class StepPeak:
    """The peak of a step on a device."""

    #: Number of the step, counted by `Recorder.step` from 0.
    number: int
    device: int
    #: Peak allocated bytes.
    peak: int
    #: Reserved bytes at that time.
    reserved: int
    #: The line that holds the most memory at that time; empty if unknown.
    largest: str


def of_steps(recording: Input | None) -> list[StepPeak]:
    """Return the steps of a recording, in order.

    Raises:
        MemvizError: if there is no recording, or it has no steps.
    """
    if recording is None:
        raise MemvizError("expected a running or finished recording, found none")
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
