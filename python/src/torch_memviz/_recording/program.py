"""`python -m torch_memviz run train.py`: records an unmodified program."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from .._importing import WhenImported
from .recorder import Recorder, record


def main() -> int:
    """Run a program in this process, and record it from its first use of a GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_memviz run",
        description="Record a program from its first use of a GPU to its end, and every failed request.",
        epilog="Several ranks: torchrun --nproc-per-node=8 -m torch_memviz run train.py",
    )
    parser.add_argument("-o", "--output", default="memory.pickle", metavar="FILE", help="the recording")
    parser.add_argument("--stacks", choices=("python", "all"), default="python", help="all also records C++ frames")
    parser.add_argument("--ring", default="2 GiB", metavar="SIZE", help="host memory for the latest entries")
    parser.add_argument("--on-signal", metavar="NAME", help="write the recording so far on this signal: SIGUSR1")
    parser.add_argument("-m", "--module", action="store_true", help="PROGRAM is a module, as for python -m")
    parser.add_argument("program", metavar="PROGRAM", help="a script, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of PROGRAM")
    asked = parser.parse_args(sys.argv[2:])
    try:
        recorder = record(asked.output, stacks=asked.stacks, ring=asked.ring, on_signal=asked.on_signal)
    except ValueError as wrong:
        parser.error(str(wrong))
    # The program may change its working directory.
    recorder.path = recorder.path.absolute()
    sys.meta_path.insert(0, WhenImported("torch", lambda torch: _record_when_used(torch, recorder)))
    sys.argv = [asked.program, *asked.arguments]
    try:
        _run(asked.program, asked.module)
    except BaseException as error:
        _end(recorder, error)
        raise
    _end(recorder, None)
    return 0


def _end(recorder: Recorder, error: BaseException | None) -> None:
    recorder.stop(error)
    if not recorder.files:
        print("memviz: nothing was recorded: the program did not use a GPU", file=sys.stderr)


def _record_when_used(torch: ModuleType, recorder: Recorder) -> None:
    """Start recording when the program first uses a GPU. Until then, it may select devices."""
    process = os.getpid()

    def begin() -> None:
        # Do not record forked workers.
        if os.getpid() == process:
            recorder.start()

    lazily: Callable[[Callable[[], None]], None] = torch.cuda._lazy_call
    lazily(begin)


def _run(program: str, is_module: bool) -> None:
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(program).resolve().parent))
    runpy.run_path(program, run_name="__main__")
