"""`record`: what memory did while a block of code ran, as files that memviz reads."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from .._binary import MemvizError, run
from . import observer, release, sizes
from .names import file_name, of_earlier_runs, rank, tell_of_groups
from .release import RecordingError
from .signals import OnSignal, named

if TYPE_CHECKING:
    from .steps import StepPeak

__all__ = ["Recorder", "RecordingError", "current", "record", "stop"]

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("torch_memviz")

#: Is called with a recorder when its recording has ended.
Hook = Callable[["Recorder"], object]

#: Failed requests that are kept. A program that looks for the largest batch by trial makes hundreds of them.
MOST_FAILURES = 4


def record(
    path: str | os.PathLike[str] = "memory.pickle",
    *,
    stacks: Literal["python", "all"] = "python",
    context: Literal["all", "alloc"] = "all",
    max_entries: int | None = None,
    ring: str | int = "2 GiB",
    on_oom: bool = True,
    on_signal: str | None = None,
    steps: tuple[int, int] | None = None,
    report: bool = True,
    hooks: Sequence[Hook] = (),
) -> Recorder:
    """Record GPU memory while a block runs; at its end `path` holds what was recorded.

    Enter it before the model is built: who made what is older is not known, and a warning says how much that is. Where
    nothing can be recorded, because there is no GPU for instance, it says so and does nothing. Once it has begun it
    never raises, so that neither a full disk nor a bug takes the place of what the block itself raises or returns.

    Files are named after `path`, and after the rank where there are several: `run_rank3.pickle`. All are in
    `Recorder.files`.

    Args:
        path: The recording. What an earlier run left under its name, and of failed requests beside it, is removed when
            recording begins.
        stacks: `"all"` has C++ frames as well, for `--by operator`; writing the file then takes many times as long.
        context: `"alloc"` leaves out who freed what, which makes recordings a little smaller.
        max_entries: Keep this many entries, the latest; instead of `ring`.
        ring: Keep as many entries as fit into this much of the host's memory. What is older is lost, and memviz says
            so.
        on_oom: Write `run_oom_attempt1.pickle` when a request fails, from inside the request; for the first four.
        on_signal: Write `run_signal_attempt1.pickle` when this signal comes, `"SIGUSR1"` for instance.
        steps: First and last step that `path` is to hold, as counted by `Recorder.step`; recording begins with the
            first. After the last, what follows is recorded for `on_oom` alone.
        report: Write a report beside each file of a request that failed, and say in one line what was recorded.
        hooks: Called with the recorder when the recording has ended, unless nothing was recorded: see
            `torch_memviz.hooks`.

    Raises:
        ValueError: when an argument is none of these.
    """
    if stacks not in ("python", "all"):
        raise ValueError(f"expected stacks of python or all, found {stacks!r}")
    if os.fspath(path).endswith((".gz", ".zst", ".zip")):
        raise ValueError(f"expected a name for a file that is not compressed, found {os.fspath(path)!r}")
    if steps is not None and not 0 <= steps[0] <= steps[1]:
        raise ValueError(f"expected a first step and a last one that is not before it, found {steps!r}")
    entries = max_entries if max_entries is not None else sizes.ring(ring, stacks)
    options = {"context": context, "stacks": stacks, "max_entries": entries}
    number = named(on_signal) if on_signal is not None else None
    return Recorder(Path(path), options, on_oom=on_oom, on_signal=number, steps=steps, report=report, hooks=hooks)


#: All there are, for processes that are forked.
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()

#: Those that have begun, or wait for their first step, and did not end yet; the latest is the last.
_running: list[Recorder] = []


def current() -> Recorder | None:
    """Give the recorder that runs, the latest of several; None where none does."""
    return _running[-1] if _running else None


def stop() -> list[Path]:
    """End the recording that runs, whoever has begun it; give its files.

    After an error in a notebook, for instance, which has ended a training whose callback was not told.
    """
    recorder = current()
    if recorder is None:
        return []
    recorder.stop()
    return recorder.files


def _leave_all() -> None:
    for recorder in list(_recorders):
        recorder.leave()


def _note_ranks() -> None:
    for recorder in list(_recorders):
        recorder.note_rank()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)


class Step:
    """A step that has begun. It ends where the next one begins, or its block does."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        """Do nothing: the step has begun already."""

    def __exit__(self, *_: object) -> None:
        """End the step."""
        self._recorder.end_step()


class Recorder:
    """What `record` gives. Use it as a block, or call `start` and `stop`."""

    def __init__(
        self,
        path: Path,
        options: dict[str, Any],
        *,
        on_oom: bool,
        on_signal: Signals | None,
        steps: tuple[int, int] | None,
        report: bool,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.path = path
        #: Recordings that were written.
        self.files: list[Path] = []
        #: The one of them that holds all until the end; None where there is no such file, or not yet.
        self.recording: Path | None = None
        #: Whether the last file has no entries because nothing was allocated or freed, and not because it lost them.
        self.is_idle = False
        #: Number of steps that have begun.
        self.steps_begun = 0
        #: Requests that failed, those included that no file was written for.
        self.failures = 0
        self._options, self._window, self._report, self._hooks = options, steps, report, tuple(hooks)
        self._on_oom, self._on_signal = on_oom, on_signal
        self._torch: Any = None
        self._is_recording = False
        self._is_written = False
        #: Requests served before recording began, by device.
        self._before: list[int] = []
        #: Called whenever a recording was written.
        self.on_dump: Callable[[], None] | None = None
        self._signals = 0
        self._signal: OnSignal | None = None
        self._range: Any = None
        #: Requests fail on any thread, and a signal may come while one is recorded.
        self._lock = threading.RLock()
        #: Whether the end of a block ends it.
        self._is_block = False
        #: How many recordings one callback or function has made, with this one.
        self.number = 1
        #: As far as it was known last: a group may be gone when something is written.
        self._rank: int | None = None
        #: Names under which nothing of an earlier run is left.
        self._cleared: set[Path] = set()
        #: A process that is forked is another one.
        self._process = os.getpid()
        _recorders.add(self)

    @property
    def is_recording(self) -> bool:
        """Whether memory is being recorded now."""
        return self._is_recording

    def start(self) -> Recorder:
        """Begin; with `steps` that begin later, get ready to.

        Raises:
            RecordingError: when PyTorch is missing or too old, or somebody else is recording.
        """
        self._torch, self._process = release.torch(), os.getpid()
        reason = release.why_not(self._torch)
        if reason is not None:
            log.warning("nothing is recorded: %s", reason)
            self._torch = None
            return self
        self._take_over()
        if self._window is None or self._window[0] == 0:
            try:
                self._begin()
            except BaseException:
                # What has not begun must not end: it would end what somebody else records.
                self._torch = None
                raise
        tell_of_groups(_note_ranks)
        self._forget_earlier_runs(self._name())
        if self._on_signal is not None:
            self._signal = OnSignal(self._on_signal, self._dump_for_signal)
        # A trainer may end without telling its callbacks.
        atexit.register(self.stop)
        _running.append(self)
        return self

    def __enter__(self) -> Recorder:
        """Begin."""
        self._is_block = True
        return self.start()

    def again(self) -> Recorder:
        """Give a recorder like this one for what comes after it: that of `run.pickle` has one of `run_run2.pickle`."""
        number = self.number + 1
        stem = self.path.stem.removesuffix(f"_run{self.number}")
        path = self.path.with_name(f"{stem}_run{number}{self.path.suffix}")
        recorder = Recorder(
            path,
            self._options,
            on_oom=self._on_oom,
            on_signal=self._on_signal,
            steps=self._window,
            report=self._report,
            hooks=self._hooks,
        )
        recorder.number = number
        return recorder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End, and let what was raised go on."""
        self.stop(error)

    def step(self) -> Step:
        """Say that a step begins: `with recorder.step():` around it, or a call of its own where it begins.

        It is an annotation `step_N` in recordings of PyTorch 2.6 and later, which `--each step` and `leaks` read.
        """
        self.end_step()
        number = self.steps_begun
        self.steps_begun += 1
        if self._torch is not None:
            if self._window is not None and self._window[0] == number and not self._is_recording:
                self._begin_late()
            self._range = self._torch.profiler.record_function(f"step_{number}")
            self._range.__enter__()
        return Step(self)

    def end_step(self) -> None:
        """Say that a step ends where nothing else does."""
        if self._range is None:
            return
        self._range.__exit__(None, None, None)
        self._range = None
        if self._window is not None and self.steps_begun > self._window[1] and not self._is_written:
            self._dump_at_the_end()
            if not self._on_oom:
                self._end()

    def dump(self, event: str = "") -> Path | None:
        """Write what was recorded so far, and go on; give the file, or None where nothing was written.

        Args:
            event: Becomes part of the name: `"warm_up"` makes `run_warm_up.pickle`.
        """
        with self._lock:
            if not self._is_recording or os.getpid() != self._process:
                return None
            try:
                path = self._name(event)
                self._forget_earlier_runs(self._name())
                self.is_idle = release.dump(self._torch, path, self._before)
            except Exception:
                log.exception("the recording was not written")
                return None
            if path not in self.files:
                self.files.append(path)
            if self.on_dump is not None:
                self.on_dump()
            return path

    def snapshot(self) -> dict[str, Any]:
        """Give what was recorded so far, for any function of this package, and go on.

        Raises:
            RecordingError: when nothing is being recorded.
        """
        with self._lock:
            if not self._is_recording:
                raise RecordingError("expected a recording that runs, found one that did not begin, or has ended")
            return release.snapshot(self._torch, self._before)

    @property
    def steps(self) -> list[StepPeak]:
        """The peak of each step that is recorded, from PyTorch 2.6 on: `recorder.steps[-1].peak`.

        memviz works it out when it is asked for: while recording, from a snapshot that is taken for it.

        Raises:
            MemvizError: when there is no such recording.
        """
        from .steps import of_steps

        return of_steps(self.snapshot() if self._is_recording else self.recording)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Record a function when it is called: `@torch_memviz.record("run.pickle")`.

        The first call is `run.pickle`, the second one `run_run2.pickle`.
        """
        following: list[Recorder] = [self]

        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            recorder = following.pop()
            following.append(recorder.again())
            with recorder:
                return function(*args, **kwargs)

        return recorded

    def note_rank(self) -> None:
        """Remember which of several processes this is, where that is known now."""
        known = rank()
        if known is not None:
            self._rank = known

    def stop(self, error: BaseException | None = None) -> None:
        """End: write the recording, unless `error` is that memory ran out, which was written when it did."""
        atexit.unregister(self.stop)
        if self._torch is None:
            return
        try:
            self.end_step()
            if self._is_recording and not self._is_written and not self._is_known(error):
                self._dump_at_the_end()
        finally:
            self._end()
            self._close()
        if self.failures > MOST_FAILURES:
            log.warning("%d requests failed, the first %d were kept", self.failures, MOST_FAILURES)
        if self._report:
            self._write_reports()
            self._say_what_was_recorded()
        self._call_hooks()

    def _take_over(self) -> None:
        """End what an earlier run of the same cell has begun, and an error kept from ending."""
        for other in list(_running):
            if not other._is_block and other.path.absolute() == self.path.absolute():
                log.warning("%s: a recording still ran, and begins again", other.path)
                other._abandon()

    def _abandon(self) -> None:
        """End without a file."""
        atexit.unregister(self.stop)
        self.end_step()
        self._end()
        self._close()

    def _close(self) -> None:
        if self._signal is not None:
            self._signal.close()
        self._torch = None
        if self in _running:
            _running.remove(self)

    def _begin(self) -> None:
        if release.is_recording(self._torch):
            others = (other for other in _running if other.is_recording)
            found, end = next(
                ((f"the recording of {other.path}", "torch_memviz.stop()") for other in others),
                ("one of PyTorch itself", "torch.cuda.memory._record_memory_history(None)"),
            )
            raise RecordingError(f"expected nobody else to record memory, found {found}, which {end} ends")
        for device, count in release.older(self._torch):
            message = "device %d: %s are older than the recording, which will not know who made them"
            log.warning(message, device, sizes.shown(count))
        release.start(self._torch, **self._options)
        self._before = release.requests(self._torch)
        self._is_recording = True
        if self._on_oom:
            observer.listen(self._torch, self._dump_for_failure)

    def _begin_late(self) -> None:
        """Begin where nobody expects an error."""
        try:
            self._begin()
        except Exception:
            log.exception("nothing is recorded")

    def _end(self) -> None:
        if not self._is_recording:
            return
        self._is_recording = False
        observer.forget(self._dump_for_failure)
        try:
            release.stop(self._torch)
        except Exception:
            log.exception("recording did not stop")

    def _is_known(self, error: BaseException | None) -> bool:
        """Whether an error is that memory ran out, with a file that tells of it."""
        return self.failures > 0 and isinstance(error, self._torch.cuda.OutOfMemoryError)

    def _dump_at_the_end(self) -> None:
        self._is_written = True
        self.recording = self.dump()

    def _name(self, event: str = "") -> Path:
        self.note_rank()
        return file_name(self.path, event, self._rank)

    def _forget_earlier_runs(self, name: Path) -> None:
        """Remove what an earlier run left under a name of this one: nobody could tell whose it is."""
        if name in self._cleared:
            return
        self._cleared.add(name)
        for path in of_earlier_runs(name):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s is of an earlier run, and cannot be removed: %s", path, error)

    def _dump_for_failure(self, device: int, requested: int) -> None:
        with self._lock:
            self.failures += 1
            number = self.failures
        if number > MOST_FAILURES:
            return
        path = self.dump(f"oom_attempt{number}")
        if path is not None:
            log.warning("device %d: no memory for %s; %s says why", device, sizes.shown(requested), path)

    def leave(self) -> None:
        """Have nothing to do with what the parent of this process records: the files and the GPU are its."""
        self._lock = threading.RLock()
        self._torch, self._range, self._is_recording, self._report = None, None, False, False
        atexit.unregister(self.stop)
        observer.forget(self._dump_for_failure)
        if self._signal is not None:
            self._signal.leave()
        _running.clear()

    def _dump_for_signal(self) -> None:
        self._signals += 1
        self.dump(f"signal_attempt{self._signals}")

    def _say_what_was_recorded(self) -> None:
        """Say in one line what the peak was, where, and what to type."""
        if not self.files or self._rank:
            return
        from .summary import summary

        print(summary(self.recording or self.files[-1]), file=sys.stderr)

    def _call_hooks(self) -> None:
        for hook in self._hooks if self.files else ():
            try:
                hook(self)
            except Exception:
                log.exception("%s: a hook of the recording failed", self.path)

    def _write_reports(self) -> None:
        for path in self.files:
            if "_oom_attempt" not in path.name:
                continue
            try:
                run(
                    [
                        "report",
                        "--format=html",
                        "--force",
                        "--quiet",
                        f"--output={path.with_suffix('.html')}",
                        # A file is no option, whatever it is called.
                        "--",
                        str(path),
                    ]
                )
            except (MemvizError, OSError) as error:
                log.warning("no report beside %s: %s", path, error)
