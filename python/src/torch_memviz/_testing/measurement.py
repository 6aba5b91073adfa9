"""Records a test and judges it with `memviz check`."""

from __future__ import annotations

import functools
import gc
import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._binary import MemvizError, call, run
from .._recording import release
from .._recording.names import of_earlier_runs
from .._recording.recorder import record
from .._recording.sizes import shown
from .._source import Input, Source
from . import in_use
from .limits import BaselineLimit, LeakLimit, Limits, MemoryLimit

#: Message for a test whose memory cannot be judged.
UNKNOWN = "GPU memory is not known"


@dataclass(frozen=True)
class Figures:
    """Memory that a test used on its most-used device, excluding memory in use before the test. In bytes."""

    peak: int
    reserved: int
    #: The line that holds the most memory at the peak; empty if there is none.
    largest: str


class Measurement:
    """The recording of a test, from fixture setup to its end."""

    def __init__(self, limits: Limits, path: Path, scratch: Path, keep: bool) -> None:
        """Prepare the recording.

        Args:
            limits: What the test may use.
            path: Where to move the recording if it is kept.
            scratch: A folder used only by this process, so that only its own recordings are judged.
            keep: Whether to always keep the recording.
        """
        self.limits, self.path, self.keep = limits, path, keep
        self.scratch = scratch
        self.recorder = record(scratch / path.name, report=False, ledger=False)
        #: Memory in use before the test, which does not belong to it.
        self.before: in_use.InUse = {}

    def start(self) -> None:
        """Collect garbage and empty the allocator's cache, then start recording."""
        for path in [*of_earlier_runs(self.path), self.path.with_suffix(".html")]:
            path.unlink(missing_ok=True)
        gc.collect()
        torch = release.torch()
        if torch.cuda.is_initialized():
            # PyTorch keeps these after the first matrix product: they would count for whichever test runs first.
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            torch.cuda.empty_cache()
            self.before = in_use.in_use()
        self.recorder.start()

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording."""
        self.recorder.stop(error)

    def repeated(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a test so that it runs as often as its leak limit requires. Each run is a step of the recording."""
        leaks = self.limits.leaks
        assert leaks is not None

        @functools.wraps(test)
        def run_it(*args: Any, **kwargs: Any) -> None:
            for _ in range(leaks.runs):
                with self.recorder.step():
                    test(*args, **kwargs)
                    gc.collect()

        return run_it

    def judge(self, update_baseline: bool) -> str | None:
        """Return what is wrong, or None if all limits are met. A limit that cannot be judged also counts as wrong."""
        if self.recorder.recording is None:
            return f"{UNKNOWN}: nothing was recorded"
        wrong = [said for said in self._judged(update_baseline) if said is not None]
        return "\n\n".join(wrong) or None

    def figures(self, recording: Input | None = None) -> Figures:
        """Return the memory that the test used, from the finished recording or from a snapshot.

        Raises:
            MemvizError: if that is unknown.
        """
        recording = recording if recording is not None else self.recorder.recording
        if recording is None:
            raise MemvizError("nothing was recorded")
        source = Source.of([recording])
        answer = json.loads(run(["peak", "--top=2", "--format=json", "--", *source.paths]))
        found = [self._figures(device) for device in answer["devices"] if device["device"] >= 0]
        return max(found, key=lambda figures: figures.peak, default=Figures(0, 0, ""))

    def _figures(self, device: dict[str, Any]) -> Figures:
        def above(counter: str) -> int:
            # If the test frees memory that was in use before, the difference can be negative.
            return max(0, int(device["maxima"][counter]) - self._held(device["device"], counter))

        labels = [row["label"] for row in device["attribution"]["rows"] if row["label"] != in_use.OLDER]
        peak = above("allocated_bytes")
        return Figures(peak, above("reserved_bytes"), labels[0] if labels and peak else "")

    def _judged(self, update_baseline: bool) -> Iterator[str | None]:
        for limit in self.limits.memory:
            yield self._memory(limit)
        if self.limits.leaks is not None:
            yield self._leaks(self.limits.leaks)
        if self.limits.baseline is not None:
            judge = self._update if update_baseline else self._compare
            yield judge(self.limits.baseline)

    def _memory(self, limit: MemoryLimit) -> str | None:
        counter = f"{limit.metric}_bytes"
        if self.recorder.is_idle:
            # The file looks as if nothing had been recorded, but the recording did run and lost nothing.
            held = max((held[counter] for held in self.before.values()), default=0) if limit.of == "process" else 0
            return None if held <= limit.limit else f"more GPU memory than allowed: {shown(held)} was in use before"
        if limit.of == "process" or not any(held[counter] for held in self.before.values()):
            return self._check([limit.flag(0)])
        devices = self._devices()
        if len(devices) == 1:
            return self._check([limit.flag(self._held(devices[0], counter))], self._not_counted(limit, devices))
        wrong = (
            self._check(
                [limit.flag(self._held(device, counter)), f"--device={device}"], self._not_counted(limit, [device])
            )
            for device in devices
        )
        return "\n\n".join(said for said in wrong if said is not None) or None

    def _not_counted(self, limit: MemoryLimit, devices: list[int]) -> str:
        held = sum(self._held(device, f"{limit.metric}_bytes") for device in devices)
        if not held:
            return ""
        return (
            f"\n\n{shown(held)} was in use when the test began: the measured value includes it, and the limit of "
            f'{shown(limit.limit)} is raised by it here (of="process" counts it)'
        )

    def _leaks(self, limit: LeakLimit) -> str | None:
        if self.recorder.is_idle:
            return None
        wrong = self._check([f"--max-leak={limit.limit}B", "--steps=^step_"])
        # If leaks cannot be judged, ignoring some stacks does not help.
        if wrong is None or limit.ignore is None or wrong.startswith(UNKNOWN):
            return wrong
        flags = ["--steps=^step_", f"--exclude={limit.ignore}", "--format=json"]
        answer = json.loads(run(["leaks", *flags, "--", str(self.recorder.recording)]))
        left = max(device["leaking"]["bytes_per_step"] for device in answer["devices"])
        return None if left <= limit.limit else f"{wrong}\n\n{shown(left)} without what {limit.ignore!r} matches"

    def _compare(self, limit: BaselineLimit) -> str | None:
        if not limit.path.is_file():
            return self._no_baseline(limit)
        if self.recorder.is_idle and limit.of == "test":
            return None
        path = limit.path
        if limit.of == "test" and any(self.before.values()):
            path = self.scratch / limit.path.name
            in_use.write(path, in_use.within(in_use.read(limit.path), self.before))
        return self._check([f"--baseline={path}", f"--tolerance={limit.tolerance}"])

    def _update(self, limit: BaselineLimit) -> str | None:
        limit.path.parent.mkdir(parents=True, exist_ok=True)
        if self.recorder.is_idle and limit.of == "test":
            in_use.write(limit.path, in_use.nothing(self.path))
            self._forget_old_baseline(limit)
            return None
        wrong = self._check([f"--baseline={limit.path}", "--update-baseline"])
        if wrong is None:
            if limit.of == "test" and any(self.before.values()):
                in_use.write(limit.path, in_use.without(in_use.read(limit.path), self.before))
            self._forget_old_baseline(limit)
        return wrong

    def _check(self, flags: list[str], more: str = "") -> str | None:
        done = call(["check", *flags, "--", str(self.recorder.recording)])
        if done.exit_code == 0:
            return None
        title = "more GPU memory than allowed" if done.exit_code == 1 else UNKNOWN
        said = (done.stdout or done.message()).strip()
        # pytest's summary shows only the first line.
        reason = re.search(r"^(?:max|baseline)-.* on device .*$", said, re.MULTILINE)
        return f"{title}{f': {reason.group()}' if reason else ''}{more}\n\n{said}"

    def _devices(self) -> list[int]:
        """Return the devices in the recording."""
        answer = json.loads(run(["peak", "--top=1", "--format=json", "--", str(self.recorder.recording)]))
        return [device["device"] for device in answer["devices"]]

    def _held(self, device: int, counter: str) -> int:
        return self.before.get(device, {}).get(counter, 0)

    @staticmethod
    def _no_baseline(limit: BaselineLimit) -> str:
        said = f"{UNKNOWN}: there is no baseline {limit.path}; --memviz-update-baselines writes it"
        if limit.old_path != limit.path and limit.old_path.is_file():
            said += f"\n\n{limit.old_path} may be that of another test with this name: each test now has its own"
        return said

    @staticmethod
    def _forget_old_baseline(limit: BaselineLimit) -> None:
        """Remove the old baseline, which tests with the same name in several classes shared."""
        if limit.old_path != limit.path and limit.old_path.is_file():
            limit.old_path.unlink(missing_ok=True)
            said = f"{limit.old_path} is now {limit.path}: each test has its own baseline"
            warnings.warn(said, UserWarning, stacklevel=1)

    def evidence(self) -> str:
        """Keep the recording with a report next to it, and return their paths as text."""
        lines = []
        for path in self._kept():
            lines.append(f"recording: {path}")
            page = path.with_suffix(".html")
            try:
                run(["report", "--format=html", "--force", "--quiet", f"--output={page}", "--", str(path)])
                lines.append(f"report: {page}")
            except MemvizError as error:
                lines.append(f"no report: {error}")
        return "\n".join(lines)

    def forget(self) -> None:
        """Remove the recording, unless it must be kept."""
        if self.keep:
            self._kept()
            return
        for path in self.recorder.files:
            path.unlink(missing_ok=True)

    def _kept(self) -> list[Path]:
        """Move the recordings to their final folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.recorder.files = [path.replace(self.path.with_name(path.name)) for path in self.recorder.files]
        self.keep = True
        return self.recorder.files


class Gauge:
    """GPU memory of the test so far, including its fixtures. Each value is computed on access."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    @property
    def peak(self) -> int:
        """Peak allocated bytes above what was in use when the test started."""
        return self._figures().peak

    @property
    def reserved(self) -> int:
        """Peak reserved bytes above what was reserved when the test started."""
        return self._figures().reserved

    @property
    def largest(self) -> str:
        """The line that holds the most memory at the peak; empty if there is none."""
        return self._figures().largest

    def _figures(self) -> Figures:
        return self._measurement.figures(self._measurement.recorder.snapshot())
