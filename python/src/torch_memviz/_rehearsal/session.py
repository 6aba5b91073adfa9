"""A rehearsal in this process: loads the stand-in, changes PyTorch, records, and ends the program."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import logging
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from .._importing import WhenImported
from .._recording.recorder import Recorder, record
from . import library, torch_changes, weights
from .assumptions import Assumption
from .reads import Reads

log = logging.getLogger("torch_memviz")

#: Passes the `Plan` as JSON to processes that the program starts.
PLAN = "MEMVIZ_REHEARSAL_PLAN"

#: Seconds that a program has for cleanup.
PATIENCE = 10.0

#: Seconds between two attempts to end it.
PAUSE = 0.5


class Ended(SystemExit):
    """Ends the program at the end of its rehearsal."""


@dataclass(frozen=True)
class Plan:
    """The settings of a rehearsal."""

    gpu: str
    #: Memory of each device, and the part of it that CUDA uses, in bytes.
    memory: int
    context: int
    #: The recording; None if the program records itself.
    path: str | None
    #: Number of optimizer steps after which the rehearsal ends; None: no limit.
    steps: int | None = None
    #: Time limit in seconds; None: no limit.
    time_limit: float | None = None
    #: Number of reads by one line after which its loop is assumed to wait for a value; 0: no limit.
    most_reads: int = 10_000
    #: Number of ranks, of which only this process runs; 1: the program starts its own ranks.
    ranks: int = 1
    stacks: str = "python"
    #: Whether models of transformers are built without loading weights.
    no_weights: bool = False
    #: The assumption about sizes that depend on values, as parsed by `Assumption`.
    assume: str | None = None
    #: Whether the recording shows which variables hold memory.
    holders: bool = True
    #: A file to which the names of the recordings are appended, one per line.
    files: str | None = None

    def to_environment(self) -> None:
        """Pass the plan to child processes, where `from_environment` reads it."""
        os.environ[PLAN] = json.dumps(asdict(self))
        here = str(Path(__file__).with_name("site"))
        there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if here not in there:
            os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, there)])

    @classmethod
    def from_environment(cls) -> Plan | None:
        """Read the plan that the parent process has passed on."""
        text = os.environ.get(PLAN)
        return cls(**json.loads(text)) if text else None


class Session:
    """The rehearsal of this process. It starts recording when PyTorch first uses a device."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.recorder: Recorder | None = None
        #: What PyTorch does on a GPU, but was omitted here.
        self.left_out: set[str] = set()
        #: Models that were built without loading weights.
        self.without_weights: list[str] = []
        #: Recordings that the program itself wrote.
        self.files: list[Path] = []
        self._listed: set[Path] = set()
        #: Why the rehearsal ended before the program did.
        self.ended = ""
        self._process = os.getpid()
        self._assumption = Assumption.parse(plan.assume) if plan.assume is not None else None
        self._overrides: Any = None
        self._library = library.Library()
        self._reads = Reads(plan.most_reads, self._too_many_reads)
        self._library.on_read(self._reads.note)
        # Runs after all other exit handlers: later reads have no Python to call.
        atexit.register(self._library.on_no_read)
        self._lock = threading.Lock()
        #: Whether the rehearsal is ending, and whether everything is written.
        self._is_ended = self._is_written = False
        #: Whether another thread has raised an exception in the main thread, which may be yet to arrive.
        self._is_raised = False

    def facts(self) -> dict[str, Any]:
        """Return the facts about the rehearsal that a recording stores."""
        return {
            "version": 1,
            "gpu": self.plan.gpu,
            "memory": self.plan.memory,
            "context": self.plan.context,
            "ranks": self.plan.ranks,
            "reads": self._reads.lines(),
            "refused": [*self._library.refused(), *sorted(self.left_out)],
            "assumed": self._assumption.text if self._assumption is not None else "",
            "without_weights": self.without_weights,
            **self._library.cudnn(),
            "ended": self.ended,
        }

    def prepare(self, torch: ModuleType) -> None:
        """Apply the changes to PyTorch, and start recording at the first use of a device."""
        torch_changes.apply(torch, self)
        if self._assumption is not None:
            self._overrides = self._assumption.apply(torch, self._library)
        torch.cuda._lazy_call(self._begin)
        atexit.register(self.end)
        if self.plan.time_limit is not None:
            threading.Thread(target=self._watch, args=(self.plan.time_limit,), daemon=True).start()

    def stop_program(self, reason: str) -> None:
        """End the rehearsal and the program. Call it from the main thread.

        Raises:
            Ended: always.
        """
        self.ended = reason
        self.end()
        raise Ended(0)

    def end(self) -> None:
        """Write the recording, once."""
        while not self._is_written and os.getpid() == self._process:
            # An exception raised from another thread may arrive here, when the program is already ending.
            with contextlib.suppress(Ended):
                self._write()

    def _write(self) -> None:
        with self._lock:
            self._is_ended = True
        if self._is_raised and threading.current_thread() is threading.main_thread():
            self._is_raised = False
            _receive_exceptions()
        self._is_written = True
        if self.ended:
            print(f"memviz: the rehearsal ends here: {self.ended}", file=sys.stderr)
        if self.recorder is not None:
            self.recorder.stop()
        self._list_files()

    def yield_to(self, other: str) -> None:
        """Stop this recording so that the program can make its own: PyTorch has only one history."""
        if self.recorder is not None and self.recorder.is_recording:
            log.warning("rehearsal: %s, and PyTorch has only one history: the rehearsal's recording ends here", other)
            self.recorder.stop()

    def all_files(self) -> list[Path]:
        """Return all recordings written so far, those of the program itself last."""
        return [*(self.recorder.files if self.recorder is not None else []), *self.files]

    def _list_files(self) -> None:
        if self.plan.files is None:
            return
        files = [path.absolute() for path in self.all_files()]
        with Path(self.plan.files).open("a", encoding="utf-8") as file:
            file.writelines(f"{path}\n" for path in files if path not in self._listed)
        self._listed.update(files)

    def _begin(self) -> None:
        if os.getpid() != self._process or self.recorder is not None or self.plan.path is None:
            return
        stacks: Literal["python", "all"] = "all" if self.plan.stacks == "all" else "python"
        self.recorder = record(
            self.plan.path, stacks=stacks, on_signal="SIGTERM", report=False, ledger=False, holders=self.plan.holders
        )
        # A signal may end the process right after the recording is written.
        self.recorder.on_dump = self._list_files
        self.recorder.is_rehearsal = True
        with torch_changes.our_own():
            self.recorder.start()
        # The recorder has its own exit handler. This one runs first, so that no exception from outside interrupts it.
        atexit.unregister(self.end)
        atexit.register(self.end)

    def _too_many_reads(self, line: str) -> None:
        reason = f"{line} has read {self.plan.most_reads} values: its loop may wait for one that is not 0"
        # PyTorch is in the middle of a copy here.
        threading.Thread(target=self._stop_from_outside, args=(reason,), daemon=True).start()

    def _watch(self, seconds: float) -> None:
        time.sleep(seconds)
        self._stop_from_outside(f"the time limit of {seconds:g} s was reached")

    def _stop_from_outside(self, reason: str) -> None:
        """Make the main thread end the program. If it does not react, end the process."""
        self.ended = reason
        # An exception raised in a callback of the library would be lost.
        self._library.on_no_read()
        for _ in range(int(PATIENCE / PAUSE)):
            with self._lock:
                if self._is_ended:
                    return
                self._is_raised = True
                _raise_in_main_thread(Ended)
            time.sleep(PAUSE)
        if self.recorder is not None and self.recorder.is_recording:
            self.recorder.dump()
        self._list_files()
        sys.stdout.flush()
        os._exit(0)


def _raise_in_main_thread(error: type[BaseException]) -> None:
    """Raise an exception in the main thread the next time it runs Python."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(error))


def _receive_exceptions() -> None:
    """Wait for an exception that another thread may have raised in this one, the main thread, and drop it.

    To cancel it would make Python look for it forever: Python 3.11 would then loop in the next function that is
    profiled, as those are that a walk over holders refuses to run.
    """
    with contextlib.suppress(Ended):
        # If it has arrived before, this one does.
        _raise_in_main_thread(Ended)
        while True:
            time.sleep(0)


def begin(plan: Plan) -> Session:
    """Load the stand-in, and prepare the rehearsal for when PyTorch is imported."""
    session = Session(plan)
    sys.meta_path.insert(0, WhenImported("torch", session.prepare))
    if plan.no_weights:
        leave_out = functools.partial(weights.leave_out, names=session.without_weights)
        sys.meta_path.insert(0, WhenImported("transformers.modeling_utils", leave_out))
    return session
