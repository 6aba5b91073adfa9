"""A rehearsal in this process: what is loaded, what is changed in PyTorch, what is recorded, and how it ends."""

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

#: How a process that the program starts learns what to do: `Plan` as JSON.
PLAN = "MEMVIZ_REHEARSAL_PLAN"

#: Seconds that a program has for its own cleaning up.
PATIENCE = 10.0

#: Seconds between two tries to end it.
PAUSE = 0.5


class Ended(SystemExit):
    """The program has done what is rehearsed of it."""


@dataclass(frozen=True)
class Plan:
    """What is rehearsed, and how far."""

    gpu: str
    #: Bytes of each device, and what CUDA keeps of them.
    memory: int
    context: int
    #: The recording; None where the program makes its own.
    path: str | None
    #: The first so many steps of an optimizer; None: all that the program does.
    steps: int | None = None
    #: Seconds; None: as long as it takes.
    time_limit: float | None = None
    #: Reads of one line before its loop is taken to wait for a value; 0: any number.
    most_reads: int = 10_000
    #: Ranks of which this process is one, on its own; 1: as many as the program starts.
    ranks: int = 1
    stacks: str = "python"
    #: Whether models of transformers are built without their weights.
    no_weights: bool = False
    #: What is assumed of sizes that follow from values, as `Assumption` reads it.
    assume: str | None = None
    #: A file that gets the names of the recordings, a line each.
    files: str | None = None

    def to_environment(self) -> None:
        """Say it to processes that this one starts, as `from_environment` reads it there."""
        os.environ[PLAN] = json.dumps(asdict(self))
        here = str(Path(__file__).with_name("site"))
        there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if here not in there:
            os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, there)])

    @classmethod
    def from_environment(cls) -> Plan | None:
        """What the process that started this one says."""
        text = os.environ.get(PLAN)
        return cls(**json.loads(text)) if text else None


class Session:
    """The rehearsal of this process. It begins to record where PyTorch first uses a device."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.recorder: Recorder | None = None
        #: What PyTorch would do, and was left out.
        self.left_out: set[str] = set()
        #: Models that were built without their weights.
        self.without_weights: list[str] = []
        #: Recordings that the program itself has written.
        self.files: list[Path] = []
        self._listed: set[Path] = set()
        #: Why it ended before the program did.
        self.ended = ""
        self._process = os.getpid()
        self._assumption = Assumption.parse(plan.assume) if plan.assume is not None else None
        self._overrides: Any = None
        self._library = library.Library()
        self._reads = Reads(plan.most_reads, self._too_many_reads)
        self._library.on_read(self._reads.note)
        # Last of all: what reads after that has no Python to tell.
        atexit.register(self._library.on_no_read)
        self._lock = threading.Lock()
        #: Whether the end has begun, and whether it is written.
        self._is_ended = self._is_written = False

    def facts(self) -> dict[str, Any]:
        """What a recording says of its rehearsal."""
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
            "cudnn_operations": self._library.cudnn_operations(),
            "ended": self.ended,
        }

    def prepare(self, torch: ModuleType) -> None:
        """Change what has to be another thing in PyTorch, and record from the first use of a device on."""
        torch_changes.apply(torch, self)
        if self._assumption is not None:
            self._overrides = self._assumption.apply(torch, self._library)
        torch.cuda._lazy_call(self._begin)
        atexit.register(self.end)
        if self.plan.time_limit is not None:
            threading.Thread(target=self._watch, args=(self.plan.time_limit,), daemon=True).start()

    def stop_program(self, reason: str) -> None:
        """End the rehearsal, and with it the program; called by the main thread.

        Raises:
            Ended: always.
        """
        self.ended = reason
        self.end()
        raise Ended(0)

    def end(self) -> None:
        """Write what was recorded, once."""
        while not self._is_written and os.getpid() == self._process:
            # One that was raised from outside may arrive here, where it has nothing to end any more.
            with contextlib.suppress(Ended):
                self._write()

    def _write(self) -> None:
        with self._lock:
            self._is_ended = True
        _raise_in_main_thread(None)
        self._is_written = True
        if self.ended:
            print(f"memviz: the rehearsal ends here: {self.ended}", file=sys.stderr)
        if self.recorder is not None:
            self.recorder.stop()
        self._list_files()

    def yield_to(self, other: str) -> None:
        """Let the program record by itself: PyTorch has one history."""
        if self.recorder is not None and self.recorder.is_recording:
            log.warning("rehearsal: %s, and PyTorch has one history: the rehearsal's recording ends here", other)
            self.recorder.stop()

    def all_files(self) -> list[Path]:
        """Recordings that were written, those last that the program itself has written."""
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
        self.recorder = record(self.plan.path, stacks=stacks, on_signal="SIGTERM", report=False)
        # A signal may end the process right after that.
        self.recorder.on_dump = self._list_files
        with torch_changes.our_own():
            self.recorder.start()
        # The recorder ends by itself as well: this comes first, and has nothing raised from outside meanwhile.
        atexit.unregister(self.end)
        atexit.register(self.end)

    def _too_many_reads(self, line: str) -> None:
        reason = f"{line} has read {self.plan.most_reads} values: its loop may wait for one that is not 0"
        # Here PyTorch is in the middle of a copy.
        threading.Thread(target=self._stop_from_outside, args=(reason,), daemon=True).start()

    def _watch(self, seconds: float) -> None:
        time.sleep(seconds)
        self._stop_from_outside(f"the time limit of {seconds:g} s was reached")

    def _stop_from_outside(self, reason: str) -> None:
        """Have the main thread end the program; where it does not come to it, end the process."""
        self.ended = reason
        # What is raised in a callback of the library is lost.
        self._library.on_no_read()
        for _ in range(int(PATIENCE / PAUSE)):
            with self._lock:
                if self._is_ended:
                    return
                _raise_in_main_thread(Ended)
            time.sleep(PAUSE)
        if self.recorder is not None and self.recorder.is_recording:
            self.recorder.dump()
        self._list_files()
        sys.stdout.flush()
        os._exit(0)


def _raise_in_main_thread(error: type[BaseException] | None) -> None:
    """Have an error raised in the main thread, where it runs Python next; None takes back what was not raised yet."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(error) if error is not None else None)


def begin(plan: Plan) -> Session:
    """Load the stand-in, and wait for PyTorch."""
    session = Session(plan)
    sys.meta_path.insert(0, WhenImported("torch", session.prepare))
    if plan.no_weights:
        leave_out = functools.partial(weights.leave_out, names=session.without_weights)
        sys.meta_path.insert(0, WhenImported("transformers.modeling_utils", leave_out))
    return session
