"""A test that is recorded, and judged by `memviz check`."""

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

#: What is said of a test whose memory cannot be judged.
UNKNOWN = "GPU memory is not known"


@dataclass(frozen=True)
class Figures:
    """What a test has used of the device that it has used most of, above what was in use before. In bytes."""

    peak: int
    reserved: int
    #: The line that holds most at the peak; empty where nothing does.
    largest: str


class Measurement:
    """The recording of a test, from its fixtures to its end."""

    def __init__(self, limits: Limits, path: Path, scratch: Path, keep: bool) -> None:
        """Get ready to record.

        Args:
            limits: What the test may use.
            path: Where its recording goes if it is kept.
            scratch: A folder of this process alone: what is judged there was recorded here.
            keep: Whether it is kept in any case.
        """
        self.limits, self.path, self.keep = limits, path, keep
        self.scratch = scratch
        self.recorder = record(scratch / path.name, report=False)
        #: What earlier tests have left, which is not this one's.
        self.before: in_use.InUse = {}

    def start(self) -> None:
        """Begin with nothing that earlier tests left to the allocator or the garbage collector."""
        for path in [*of_earlier_runs(self.path), self.path.with_suffix(".html")]:
            path.unlink(missing_ok=True)
        gc.collect()
        torch = release.torch()
        if torch.cuda.is_initialized():
            # Made for the first product of matrices in a process, and kept: whichever test comes first would pay.
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            torch.cuda.empty_cache()
            self.before = in_use.in_use()
        self.recorder.start()

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording."""
        self.recorder.stop(error)

    def repeated(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """Give a test that runs as often as its leaks ask for; each run is a step of the recording."""
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
        """Give what is wrong; None where every limit is kept. What cannot be judged is wrong, too."""
        if self.recorder.recording is None:
            return f"{UNKNOWN}: nothing was recorded"
        wrong = [said for said in self._judged(update_baseline) if said is not None]
        return "\n\n".join(wrong) or None

    def figures(self, recording: Input | None = None) -> Figures:
        """Give what the test has used, as a recording says: the finished one, or a snapshot.

        Raises:
            MemvizError: when that is not known.
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
            # What was in use before and is freed in the test makes it use less than nothing.
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
            # The file looks like one of no recording at all; it is known here that it ran, and lost nothing.
            held = max((held[counter] for held in self.before.values()), default=0) if limit.of == "process" else 0
            return None if held <= limit.limit else f"more GPU memory than allowed: {shown(held)} were in use before"
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
            f"\n\n{shown(held)} were in use when the test began: they are part of what was measured, and the limit of "
            f'{shown(limit.limit)} is that much higher here (of="process" counts them)'
        )

    def _leaks(self, limit: LeakLimit) -> str | None:
        if self.recorder.is_idle:
            return None
        wrong = self._check([f"--max-leak={limit.limit}B", "--steps=^step_"])
        # Whatever keeps leaks from being judged does so with and without what is ignored.
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
        # Summaries of pytest show the first line alone.
        reason = re.search(r"^(?:max|baseline)-.* on device .*$", said, re.MULTILINE)
        return f"{title}{f': {reason.group()}' if reason else ''}{more}\n\n{said}"

    def _devices(self) -> list[int]:
        """Devices that the recording has data of."""
        answer = json.loads(run(["peak", "--top=1", "--format=json", "--", str(self.recorder.recording)]))
        return [device["device"] for device in answer["devices"]]

    def _held(self, device: int, counter: str) -> int:
        return self.before.get(device, {}).get(counter, 0)

    @staticmethod
    def _no_baseline(limit: BaselineLimit) -> str:
        said = f"{UNKNOWN}: there is no baseline {limit.path}; --memviz-update-baselines writes it"
        if limit.old_path != limit.path and limit.old_path.is_file():
            said += f"\n\n{limit.old_path} may be that of another test with this name: tests have a baseline each now"
        return said

    @staticmethod
    def _forget_old_baseline(limit: BaselineLimit) -> None:
        """Remove the baseline that the new one replaces, which tests of one name in several classes shared."""
        if limit.old_path != limit.path and limit.old_path.is_file():
            limit.old_path.unlink(missing_ok=True)
            said = f"{limit.old_path} is now {limit.path}: tests have a baseline each"
            warnings.warn(said, UserWarning, stacklevel=1)

    def evidence(self) -> str:
        """Keep the recording, with a report beside it, and say where."""
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
        """Remove the recording, unless it is to be kept."""
        if self.keep:
            self._kept()
            return
        for path in self.recorder.files:
            path.unlink(missing_ok=True)

    def _kept(self) -> list[Path]:
        """Move the recordings to where they are looked for."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.recorder.files = [path.replace(self.path.with_name(path.name)) for path in self.recorder.files]
        self.keep = True
        return self.recorder.files


class Gauge:
    """GPU memory of the test so far, its fixtures included. Each figure is worked out when it is asked for."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    @property
    def peak(self) -> int:
        """Bytes that were allocated at most, above what was in use when the test began."""
        return self._figures().peak

    @property
    def reserved(self) -> int:
        """Bytes that were reserved at most, above what was reserved when the test began."""
        return self._figures().reserved

    @property
    def largest(self) -> str:
        """The line that holds most at the peak; empty where nothing does."""
        return self._figures().largest

    def _figures(self) -> Figures:
        return self._measurement.figures(self._measurement.recorder.snapshot())
