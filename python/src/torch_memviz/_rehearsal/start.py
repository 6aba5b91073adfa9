"""How rehearsals begin: in this process, in one that a rehearsed process starts, or for a command."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Literal

from .._recording.sizes import shown, size
from . import library
from .assumptions import Assumption
from .gpus import CONTEXT, RehearsalError, named
from .session import Plan, Session, begin

log = logging.getLogger("torch_memviz")


def rehearse(
    path: str | os.PathLike[str] = "memory.pickle",
    *,
    gpu: str = "h100-80gb",
    memory: str | int | None = None,
    context: str | int = CONTEXT,
    gpus: int = 1,
    ranks: int = 1,
    steps: int | None = None,
    time_limit: float | None = None,
    most_reads: int = 10_000,
    stacks: Literal["python", "all"] = "python",
    placement: Literal["linux", "windows"] = "linux",
    no_weights: bool = False,
    assume: str | None = None,
    despite_gpu: bool = False,
) -> Rehearsal:
    """Rehearse what follows on a GPU that is not there: PyTorch's CUDA build runs on a stand-in for CUDA.

    Call it before PyTorch is imported. From then on and to its end, this process has the GPU that was asked for.
    Memory is accounted for as on the GPU, kernels do nothing, and every value that is read from the device is 0.
    Memory is recorded as by `record`, from the first use of the device on::

        with torch_memviz.rehearse("run.pickle", gpu="a100-40gb"):
            import train

            train.main()

    Args:
        path: The recording.
        gpu: The kind of GPU, as `memviz rehearse --list` names it.
        memory: What PyTorch is to see as the device's memory, `"24 GiB"` for instance, instead of that of `gpu`.
        context: What CUDA itself keeps of it.
        gpus: Number of devices.
        ranks: Run only rank 0 of a distributed program with this many ranks.
        steps: End the program after this many optimizer steps.
        time_limit: End the program after this many seconds.
        most_reads: End the program when one line has read so many values from the device: it may wait for one that is
            not 0. 0 is any number.
        stacks: As for `record`.
        placement: Where segments lie: as the driver of Linux places them, or that of Windows and WSL.
        no_weights: Have `from_pretrained` of transformers read the configuration alone, and no weights.
        assume: What `nonzero` and masks find, which are no elements without it: a share such as `"nonzero=0.25"`, or
            `"nonzero=FILE.py:FUNCTION"`, a function that gives one for a tensor.
        despite_gpu: Rehearse where there is a GPU, which is not used then.

    Raises:
        RehearsalError: when this cannot be rehearsed here; it says what to do.
    """
    reason = library.why_not(despite_gpu)
    if reason is not None:
        raise RehearsalError(reason)
    prepared = prepare(
        path=path,
        gpu=gpu,
        memory=memory,
        context=context,
        gpus=gpus,
        ranks=ranks,
        steps=steps,
        time_limit=time_limit,
        most_reads=most_reads,
        stacks=stacks,
        placement=placement,
        no_weights=no_weights,
        assume=assume,
    )
    return Rehearsal(begin(prepared))


def prepare(
    *,
    path: str | os.PathLike[str] | None,
    gpu: str,
    memory: str | int | None = None,
    context: str | int = CONTEXT,
    gpus: int = 1,
    ranks: int = 1,
    steps: int | None = None,
    time_limit: float | None = None,
    most_reads: int = 10_000,
    stacks: str = "python",
    placement: str = "linux",
    no_weights: bool = False,
    assume: str | None = None,
    files: str | None = None,
) -> Plan:
    """Say in the environment what processes are to rehearse.

    The arguments are those of `rehearse`, and a file that gets the names of the recordings, a line each. Without
    `path` nothing is recorded but by the program itself.

    Raises:
        RehearsalError: when they do not fit together, or nothing can be rehearsed here.
    """
    kind = named(gpu)
    try:
        total = kind.memory if memory is None else size(memory)
        taken = size(context)
    except ValueError as error:
        raise RehearsalError(str(error)) from None
    if taken >= total:
        raise RehearsalError(
            f"expected a device with more than the {shown(taken)} that CUDA keeps, found {shown(total)}"
        )
    if min(gpus, ranks) < 1:
        raise RehearsalError(f"expected at least one device and one rank, found {gpus} and {ranks}")
    if assume is not None:
        Assumption.parse(assume)
    build = library.build()
    if not library.is_tried(build.version):
        log.warning(
            "rehearsal: nobody has compared PyTorch %s with a GPU, %s to %s were: compare a short run first",
            build.version,
            *(".".join(map(str, release)) for release in library.TRIED),
        )
    library.folder()
    os.environ[library.VARIABLE] = library.describe(kind, total, taken, gpus, placement)
    plan = Plan(
        gpu=kind.key,
        memory=total,
        context=taken,
        path=str(Path(path).absolute()) if path is not None else None,
        steps=steps,
        time_limit=time_limit,
        most_reads=most_reads,
        ranks=ranks,
        stacks=stacks,
        no_weights=no_weights,
        assume=assume,
        files=files,
    )
    plan.to_environment()
    return plan


class Rehearsal:
    """What `rehearse` gives: use it as a block, whose end writes the recording; else the end of the process does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def files(self) -> list[Path]:
        """Recordings that were written."""
        return self._session.all_files()

    def __enter__(self) -> Rehearsal:
        """Go on."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Write the recording."""
        self._session.end()


def in_new_process() -> None:
    """Rehearse what the process that started this one does."""
    plan = Plan.from_environment()
    if plan is None or os.environ.get(library.VARIABLE) is None or "torch" in sys.modules:
        return
    try:
        begin(plan)
    except (RehearsalError, OSError) as error:
        # Python would go on without it, and PyTorch with whatever GPU there is.
        print(f"memviz: {error}", file=sys.stderr, flush=True)
        os._exit(2)
