"""Changes to PyTorch during a rehearsal. None of them affects what is allocated on a GPU."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

#: Functions that fill tensors with random numbers, which takes most of the time to build a model on the host.
INITIALIZERS = (
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
)

_is_ours = False


@contextlib.contextmanager
def our_own() -> Iterator[None]:
    """Mark a recording started in this block as the rehearsal's own, not the program's."""
    global _is_ours
    before, _is_ours = _is_ours, True
    try:
        yield
    finally:
        _is_ours = before


def apply(torch: ModuleType, session: Session) -> None:
    """Apply all changes, once."""
    _skip_initializers(torch)
    _mark_snapshots(torch, session)
    _note_streams(torch, session)
    _yield_history(torch, session)
    _count_steps(session)
    _agree_with_other_ranks(torch, session)
    if session.plan.ranks > 1:
        _be_one_of(torch, session.plan.ranks)


def _skip_initializers(torch: ModuleType) -> None:
    """Do not initialize host tensors: their values are never used."""

    def skip(function: Any) -> Any:
        @functools.wraps(function)
        def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return tensor if tensor.device.type == "cpu" else function(tensor, *args, **kwargs)

        return fill

    for name in INITIALIZERS:
        setattr(torch.nn.init, name, skip(getattr(torch.nn.init, name)))


def _mark_snapshots(torch: ModuleType, session: Session) -> None:
    """Add the facts about the rehearsal to each snapshot, and keep a list of snapshots that the program writes."""
    memory = torch.cuda.memory
    take, dump = memory._snapshot, memory._dump_snapshot

    @functools.wraps(take)
    def snapshot(*args: Any, **kwargs: Any) -> Any:
        taken = take(*args, **kwargs)
        taken["rehearsal"] = json.dumps(session.facts())
        return taken

    @functools.wraps(dump)
    def dump_snapshot(filename: Any = "dump_snapshot.pickle", *args: Any, **kwargs: Any) -> Any:
        result = dump(filename, *args, **kwargs)
        session.files.append(Path(filename))
        return result

    memory._snapshot, memory._dump_snapshot = snapshot, dump_snapshot


def _note_streams(torch: ModuleType, session: Session) -> None:
    """Note if the allocator would wait for another stream before freeing a block: here all work is done immediately."""
    record = torch.Tensor.record_stream

    @functools.wraps(record)
    def record_stream(tensor: Any, stream: Any) -> None:
        session.left_out.add("the time until other streams are done with a block (record_stream)")
        record(tensor, stream)

    torch.Tensor.record_stream = record_stream


def _yield_history(torch: ModuleType, session: Session) -> None:
    memory = torch.cuda.memory
    start = memory._record_memory_history

    # Keep the signature: the recorder inspects it for the arguments that this release accepts.
    @functools.wraps(start)
    def record_memory_history(*args: Any, **kwargs: Any) -> Any:
        if not _is_ours and not _stops_ours(session):
            session.yield_to("the program records memory itself")
        return start(*args, **kwargs)

    memory._record_memory_history = record_memory_history


def _stops_ours(session: Session) -> bool:
    return session.recorder is None or not session.recorder.is_recording


def _count_steps(session: Session) -> None:
    """End the program after the given number of steps by any one optimizer."""
    wanted = session.plan.steps
    if wanted is None:
        return
    taken: dict[int, int] = {}

    def count(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        taken[id(optimizer)] = taken.get(id(optimizer), 0) + 1
        if taken[id(optimizer)] >= wanted:
            session.stop_program(f"{wanted} steps were taken")

    # `torch.optim` has a class with the name of this module.
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(count)


def _agree_with_other_ranks(torch: ModuleType, session: Session) -> None:
    """Make `DistributedDataParallel` ignore the values from other ranks, which are read as 0.

    Shapes are not compared. After the first step, it would rebuild its buckets in the order of the first rank: this is
    omitted, and reported as such.
    """
    if torch.distributed.is_available():
        for name in ("torch.distributed.utils", "torch.nn.parallel.distributed"):
            module = importlib.import_module(name)
            if hasattr(module, "_verify_param_shape_across_processes"):
                setattr(module, "_verify_param_shape_across_processes", lambda *_: True)  # noqa: B010

        def rebuild_buckets(_reducer: Any) -> bool:
            session.left_out.add("the second layout of DistributedDataParallel's buckets")
            return False

        torch.distributed.Reducer._rebuild_buckets = rebuild_buckets


def _be_one_of(torch: ModuleType, ranks: int) -> None:
    """Run only the first of several ranks: collectives complete immediately and transfer nothing."""
    distributed = importlib.import_module("torch.distributed")
    start = distributed.init_process_group
    importlib.import_module("torch.testing._internal.distributed.fake_pg")
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": min(ranks, 8)}.items():
        os.environ[name] = str(value)

    @functools.wraps(start)
    def init_process_group(*_args: Any, **kwargs: Any) -> Any:
        known = {key: kwargs[key] for key in ("timeout", "device_id", "pg_options") if key in kwargs}
        return start("cpu:fake,cuda:nccl", store=distributed.HashStore(), rank=0, world_size=ranks, **known)

    for name in ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"):
        module = importlib.import_module(name)
        if hasattr(module, "init_process_group"):
            setattr(module, "init_process_group", init_process_group)  # noqa: B010
