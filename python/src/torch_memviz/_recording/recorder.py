"""`record`: records GPU memory while a block of code runs, as files that memviz reads."""

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
from .._holders.record import KEY, Holders
from . import counters, observer, release, sizes
from .counters import Counters
from .ledger import Ledger
from .names import file_name, of_earlier_runs, rank, tell_of_groups
from .release import RecordingError
from .signals import OnSignal, named

if TYPE_CHECKING:
    from .steps import StepPeak

__all__ = ["Recorder", "RecordingError", "current", "record", "stop"]

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("torch_memviz")

#: Called with the recorder when its recording has ended.
Hook = Callable[["Recorder"], object]

#: Maximum number of failed requests to keep. A program that searches for the largest batch has hundreds of them.
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
    ledger: bool = True,
    holders: bool | None = None,
    hooks: Sequence[Hook] = (),
) -> Recorder:
    """Record GPU memory while a block runs, and write the recording to `path` at its end.

    Enter the block before the model is built. The code that allocated older memory is unknown; a warning shows how much
    memory that is. If recording is not possible, for example without a GPU, it logs a warning and does nothing. After
    recording has started, it never raises, so that a full disk or a bug does not replace the result or the exception of
    the block itself.

    File names are based on `path`, and on the rank if there are several: `run_rank3.pickle`. `Recorder.files` lists all
    files.

    Args:
        path: The recording. When recording starts, files of an earlier run with this name are removed, including those
            of its failed requests.
        stacks: `"all"` also records C++ frames, for `--by operator`. Writing the file then takes many times longer.
        context: `"alloc"` omits the stacks of frees, which makes recordings slightly smaller.
        max_entries: Keep this many of the latest entries, instead of limiting them with `ring`.
        ring: Keep as many of the latest entries as fit into this much host memory. Older entries are lost, and memviz
            reports that.
        on_oom: When a request fails, write `run_oom_attempt1.pickle` from inside the request. Only the first four
            failed requests are written.
        on_signal: Write `run_signal_attempt1.pickle` when this signal arrives, for example `"SIGUSR1"`.
        steps: First and last step to write to `path`, as counted by `Recorder.step`. Recording starts with the first
            step. After the last step, recording continues only for `on_oom`.
        report: Write a report next to the file of each failed request, and print a one-line summary of the recording.
        ledger: Write `run.device.json` next to each recording, for `memviz ledger`: the memory of the whole device,
            including memory outside of PyTorch's allocator, and the processes that use it.
        holders: Record which variables, attributes and autograd nodes hold the memory. By default, when a request fails
            and when the recording is written; `True`: also at new maxima around forward, backward and optimizer steps,
            which takes up to some seconds in all; `False`: never. Recordings contain names of the program's variables.
        hooks: Called with the recorder when the recording has ended, unless nothing was recorded. See
            `torch_memviz.hooks`.

    Raises:
        ValueError: if an argument has an invalid value.
    """
    if stacks not in ("python", "all"):
        raise ValueError(f"expected stacks of python or all, found {stacks!r}")
    if os.fspath(path).endswith((".gz", ".zst", ".zip")):
        raise ValueError(f"expected the name of an uncompressed file, found {os.fspath(path)!r}")
    if steps is not None and not 0 <= steps[0] <= steps[1]:
        raise ValueError(f"expected a first step and a last step that is not before it, found {steps!r}")
    entries = max_entries if max_entries is not None else sizes.ring(ring, stacks)
    options = {"context": context, "stacks": stacks, "max_entries": entries}
    number = named(on_signal) if on_signal is not None else None
    return Recorder(
        Path(path),
        options,
        on_oom=on_oom,
        on_signal=number,
        steps=steps,
        report=report,
        ledger=ledger,
        holders=holders,
        hooks=hooks,
    )


#: All recorders, so that forked processes can detach them.
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()

#: Recorders that are running or wait for their first step; the latest is last.
_running: list[Recorder] = []


def current() -> Recorder | None:
    """Return the running recorder (the latest if there are several), or None if there is none."""
    return _running[-1] if _running else None


def stop() -> list[Path]:
    """Stop the running recording, wherever it was started, and return its files.

    Call it, for example, after an error in a notebook has ended a training run without notifying its callback.
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


def _occasion(event: str) -> str:
    """Return why a recording is written, as named by `memviz ledger`."""
    if event.startswith("oom_attempt"):
        return "oom"
    return "dump" if event else "end"


class Step:
    """A step that has started. It ends when the next step starts or its block ends."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        """Do nothing: the step has already started."""

    def __exit__(self, *_: object) -> None:
        """End the step."""
        self._recorder.end_step()


class Recorder:
    """Returned by `record`. Use it as a context manager, or call `start` and `stop`."""

    def __init__(
        self,
        path: Path,
        options: dict[str, Any],
        *,
        on_oom: bool,
        on_signal: Signals | None,
        steps: tuple[int, int] | None,
        report: bool,
        ledger: bool = True,
        holders: bool | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.path = path
        #: All recordings written so far.
        self.files: list[Path] = []
        #: The full recording among them; None if it does not exist, or not yet.
        self.recording: Path | None = None
        #: Whether the last file has no entries because nothing was allocated or freed, not because entries were lost.
        self.is_idle = False
        #: Number of steps that have started.
        self.steps_begun = 0
        #: Number of failed requests, including those without a file.
        self.failures = 0
        self._options, self._window, self._report, self._hooks = options, steps, report, tuple(hooks)
        self._on_oom, self._on_signal = on_oom, on_signal
        self._wants_ledger = ledger
        self._ledger: Ledger | None = None
        self._wants_holders = holders
        self._holders: Holders | None = None
        #: Whether no GPU waits for the recorder.
        self.is_rehearsal = False
        self._torch: Any = None
        self._is_recording = False
        self._is_written = False
        #: The counters of PyTorch when recording started.
        self._start = Counters([], [])
        #: Called after each recording is written.
        self.on_dump: Callable[[], None] | None = None
        self._signals = 0
        self._signal: OnSignal | None = None
        self._range: Any = None
        #: Requests can fail on any thread, and a signal can arrive while one is being recorded.
        self._lock = threading.RLock()
        #: Whether it was started as a context manager.
        self._is_block = False
        #: Number of this recording among those of one callback or function, from 1.
        self.number = 1
        #: The last known rank: the process group may be gone when something is written.
        self._rank: int | None = None
        #: Names whose files of earlier runs have been removed.
        self._cleared: set[Path] = set()
        #: Used to detect forked processes.
        self._process = os.getpid()
        _recorders.add(self)

    @property
    def is_recording(self) -> bool:
        """Whether memory is being recorded now."""
        return self._is_recording

    def start(self) -> Recorder:
        """Start recording, or wait for the first step if `steps` starts later.

        Raises:
            RecordingError: if PyTorch is missing or too old, or another recording is running.
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
                # A recording that did not start must not be stopped: that would stop another recording.
                self._torch = None
                raise
        tell_of_groups(_note_ranks)
        self._forget_earlier_runs(self._name())
        if self._on_signal is not None:
            self._signal = OnSignal(self._on_signal, self._dump_for_signal)
        # A trainer may end without notifying its callbacks.
        atexit.register(self.stop)
        _running.append(self)
        return self

    def __enter__(self) -> Recorder:
        """Start recording."""
        self._is_block = True
        return self.start()

    def again(self) -> Recorder:
        """Return a recorder with the same options for the next recording: `run_run2.pickle` follows `run.pickle`."""
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
            ledger=self._wants_ledger,
            holders=self._wants_holders,
            hooks=self._hooks,
        )
        recorder.number = number
        return recorder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Stop recording. An exception propagates."""
        self.stop(error)

    def step(self) -> Step:
        """Mark the start of a step: use `with recorder.step():` around the step, or call it where the step starts.

        With PyTorch 2.6 or later, it adds an annotation `step_N` to the recording, which `--each step` and `leaks` use.
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
        """Mark the end of a step. Not needed if the step is a block or another step follows."""
        if self._range is None:
            return
        self._range.__exit__(None, None, None)
        self._range = None
        self._ask_ledger(Ledger.note)
        if self._window is not None and self.steps_begun > self._window[1] and not self._is_written:
            self._dump_at_the_end()
            if not self._on_oom:
                self._end()

    def point(self, name: str) -> None:
        """Name this point of the program: `memviz ledger` shows the memory of the whole device there.

        With PyTorch 2.6 or later, it adds an annotation of this name to the recording, so that `--at annotation:NAME`
        finds it.

        Args:
            name: `"after_forward"`. The first hundred points are sampled.
        """
        if self._torch is not None and self._is_recording:
            with self._torch.profiler.record_function(name):
                self._ask_ledger(lambda ledger: ledger.point(name))

    def dump(self, event: str = "") -> Path | None:
        """Write the recording so far and continue. Returns the file, or None if nothing was written.

        Args:
            event: Part of the file name: `"warm_up"` writes `run_warm_up.pickle`.
        """
        with self._lock:
            if not self._is_recording or os.getpid() != self._process:
                return None
            try:
                path = self._name(event)
                self._forget_earlier_runs(self._name())
                self._ask_ledger(lambda ledger: ledger.take(_occasion(event)))
                self.note_holders(_occasion(event))
                self.is_idle = release.dump(self._torch, path, self._start, self._holders_as_key())
                self._ask_ledger(lambda ledger: ledger.write(path))
            except Exception:
                log.exception("the recording was not written")
                return None
            if path not in self.files:
                self.files.append(path)
            if self.on_dump is not None:
                self.on_dump()
            return path

    def snapshot(self) -> dict[str, Any]:
        """Return the recording so far, for any function of this package, and continue recording.

        Raises:
            RecordingError: if nothing is being recorded.
        """
        with self._lock:
            if not self._is_recording:
                raise RecordingError("expected a running recording, found one that has not started or has ended")
            self.note_holders("dump")
            return release.snapshot(self._torch, self._start) | self._holders_as_key()

    @property
    def steps(self) -> list[StepPeak]:
        """The peak of each recorded step: `recorder.steps[-1].peak`. Requires PyTorch 2.6 or later.

        memviz computes it on each access. While recording, each access takes a snapshot.

        Raises:
            MemvizError: if there is no recording, or it has no steps.
        """
        from .steps import of_steps

        return of_steps(self.snapshot() if self._is_recording else self.recording)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Record each call to a function: `@torch_memviz.record("run.pickle")`.

        The first call writes `run.pickle`, the second `run_run2.pickle`.
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
        """Store the rank of this process if it is currently known."""
        known = rank()
        if known is not None:
            self._rank = known

    def stop(self, error: BaseException | None = None) -> None:
        """Stop and write the recording, unless `error` is an out-of-memory error that was already written."""
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
            log.warning("%d requests failed; the first %d were kept", self.failures, MOST_FAILURES)
        if self._report:
            self._write_reports()
            self._say_what_was_recorded()
        self._call_hooks()

    def _take_over(self) -> None:
        """Stop a recording that an earlier run of the same notebook cell left running after an error."""
        for other in list(_running):
            if not other._is_block and other.path.absolute() == self.path.absolute():
                log.warning("%s: a recording was still running; starting it again", other.path)
                other._abandon()

    def _abandon(self) -> None:
        """Stop without writing a file."""
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
                ("one started through PyTorch itself", "torch.cuda.memory._record_memory_history(None)"),
            )
            raise RecordingError(f"expected no other running recording, found {found}; {end} stops it")
        for device, count in release.older(self._torch):
            message = "device %d: %s were allocated before the recording started; their stacks are unknown"
            log.warning(message, device, sizes.shown(count))
        self._start = release.start(self._torch, **self._options)
        self._begin_ledger()
        self._is_recording = True
        if self._wants_holders is not False:
            self._holders = Holders(
                self._torch,
                self._counted,
                at_borders=self._wants_holders is True,
                is_rehearsal=self.is_rehearsal,
            )
        if self._on_oom:
            observer.listen(self._torch, self._dump_for_failure)

    def note_holders(self, at: str) -> None:
        """Record which variables hold the memory now. Its errors must not stop the recording."""
        if self._holders is None:
            return
        try:
            self._holders.note(at)
        except Exception:
            log.exception("what holds the memory is not recorded")

    def _holders_as_key(self) -> dict[str, str]:
        return {} if self._holders is None else {KEY: self._holders.to_json()}

    def _counted(self) -> dict[str, list[int]]:
        """Return how many requests each device has served since recording started, and how many frees it has seen."""
        served = self._start.served(counters.read(self._torch))
        return {"requests": served, "frees": counters.frees(self._torch)}

    def _begin_ledger(self) -> None:
        try:
            self._ledger = Ledger(self._torch) if self._wants_ledger else None
        except Exception:
            log.exception("what the device holds is not recorded")

    def _ask_ledger(self, ask: Callable[[Ledger], None]) -> None:
        """Call the ledger if there is one. Its errors must not stop the recording."""
        try:
            if self._ledger is not None:
                ask(self._ledger)
        except Exception:
            self._ledger = None
            log.exception("what the device holds is not recorded")

    def _begin_late(self) -> None:
        """Start where the caller does not expect an exception."""
        try:
            self._begin()
        except Exception:
            log.exception("nothing is recorded")

    def _end(self) -> None:
        if not self._is_recording:
            return
        self._is_recording = False
        if self._holders is not None:
            self._holders.close()
        observer.forget(self._dump_for_failure)
        try:
            release.stop(self._torch)
        except Exception:
            log.exception("recording did not stop")

    def _is_known(self, error: BaseException | None) -> bool:
        """Whether an error is an out-of-memory error that was recorded."""
        return self.failures > 0 and isinstance(error, self._torch.cuda.OutOfMemoryError)

    def _dump_at_the_end(self) -> None:
        self._is_written = True
        self.recording = self.dump()

    def _name(self, event: str = "") -> Path:
        self.note_rank()
        return file_name(self.path, event, self._rank)

    def _forget_earlier_runs(self, name: Path) -> None:
        """Remove files of an earlier run that have this run's names: they would be mistaken for this run's files."""
        if name in self._cleared:
            return
        self._cleared.add(name)
        for path in of_earlier_runs(name):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s is left from an earlier run and cannot be removed: %s", path, error)

    def _dump_for_failure(self, device: int, requested: int) -> None:
        with self._lock:
            self.failures += 1
            number = self.failures
        if number > MOST_FAILURES:
            return
        path = self.dump(f"oom_attempt{number}")
        if path is not None:
            log.warning("device %d: no memory for %s; %s shows why", device, sizes.shown(requested), path)

    def leave(self) -> None:
        """Detach from the parent's recording in a forked process: the files and the GPU belong to the parent."""
        self._lock = threading.RLock()
        self._torch, self._range, self._is_recording, self._report = None, None, False, False
        if self._holders is not None:
            self._holders.close()
        atexit.unregister(self.stop)
        observer.forget(self._dump_for_failure)
        if self._signal is not None:
            self._signal.leave()
        _running.clear()

    def _dump_for_signal(self) -> None:
        self._signals += 1
        self.dump(f"signal_attempt{self._signals}")

    def _say_what_was_recorded(self) -> None:
        """Print one line with the peak, the code that holds most of it, and the command to run next."""
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
                        # So that a file name is never parsed as an option.
                        "--",
                        str(path),
                    ]
                )
            except (MemvizError, OSError) as error:
                log.warning("no report written for %s: %s", path, error)
