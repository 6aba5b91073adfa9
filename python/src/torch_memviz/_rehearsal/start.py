"""Starts rehearsals: in this process, in child processes of a rehearsed process, or for a command."""

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
    holders: bool = True,
    despite_gpu: bool = False,
) -> Rehearsal:
    """Run the rest of the program on a simulated GPU: PyTorch's CUDA build runs on a stand-in for CUDA.

    Call it before PyTorch is imported. From then on, this process has the selected GPU until it exits. Memory is
    accounted for as on the GPU, kernels do nothing, and every value read from the device is 0. Memory is recorded as by
    `record`, starting at the first use of the device::

        with torch_memviz.rehearse("run.pickle", gpu="a100-40gb"):
            import train

            train.main()

    Args:
        path: The recording.
        gpu: The kind of GPU, as `memviz rehearse --list` names it.
        memory: Device memory that PyTorch sees, for example `"24 GiB"`. Default: that of `gpu`.
        context: The part of it that CUDA itself uses.
        gpus: Number of devices.
        ranks: Run only rank 0 of a distributed program with this many ranks.
        steps: End the program after this many optimizer steps.
        time_limit: End the program after this many seconds.
        most_reads: End the program when one line has read this many values from the device, since it may be waiting for
            a nonzero value. 0 means no limit.
        stacks: As for `record`.
        placement: How segments are placed in memory: like the Linux driver, or like the driver of Windows and WSL.
        no_weights: Make `from_pretrained` of transformers read only the configuration, and no weights.
        assume: The share of elements that `nonzero` and masks find, such as `"nonzero=0.25"`, or a function that
            returns the share for a tensor, `"nonzero=FILE.py:FUNCTION"`. Default: they find none.
        holders: Record which variables, attributes and autograd nodes hold memory, as for `record`.
        despite_gpu: Rehearse on a machine that has a GPU. The GPU is not used.

    Raises:
        RehearsalError: if this cannot be rehearsed here. The message says what to do.
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
        holders=holders,
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
    holders: bool = True,
    files: str | None = None,
) -> Plan:
    """Store the settings of a rehearsal in the environment, for this process and its children.

    The arguments are those of `rehearse`, plus a file to which the names of the recordings are appended, one per line.
    Without `path`, only the program itself records.

    Raises:
        RehearsalError: if the arguments contradict each other, or a rehearsal is not possible here.
    """
    kind = named(gpu)
    try:
        total = kind.memory if memory is None else size(memory)
        taken = size(context)
    except ValueError as error:
        raise RehearsalError(str(error)) from None
    if taken >= total:
        raise RehearsalError(
            f"expected a device with more than the {shown(taken)} that CUDA uses, found {shown(total)}"
        )
    if min(gpus, ranks) < 1:
        raise RehearsalError(f"expected at least one device and one rank, found {gpus} and {ranks}")
    if assume is not None:
        Assumption.parse(assume)
    build = library.build()
    if not library.is_tried(build.version):
        log.warning(
            "rehearsal: PyTorch %s has not been compared with a GPU, only %s to %s have: compare a short run first",
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
        holders=holders,
        files=files,
    )
    plan.to_environment()
    return plan


class Rehearsal:
    """Returned by `rehearse`. As a context manager, it writes the recording at its end; otherwise at process exit."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def files(self) -> list[Path]:
        """Recordings written so far."""
        return self._session.all_files()

    def __enter__(self) -> Rehearsal:
        """Do nothing: the rehearsal has already started."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Write the recording."""
        self._session.end()


def in_new_process() -> None:
    """Continue the rehearsal of the parent process in this process."""
    plan = Plan.from_environment()
    if plan is None or os.environ.get(library.VARIABLE) is None or "torch" in sys.modules:
        return
    try:
        begin(plan)
    except (RehearsalError, OSError) as error:
        # Otherwise Python would continue without the rehearsal, and PyTorch would use a real GPU if there is one.
        print(f"memviz: {error}", file=sys.stderr, flush=True)
        os._exit(2)
