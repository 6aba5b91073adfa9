"""What memory is for, said by the program instead of inferred from its recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import release

#: Categories that memviz knows, except those that say that nothing is known.
CATEGORIES = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "activation",
    "kv_cache",
    "temporary",
    "input",
    "communication",
    "workspace",
)


def categories(model: Any, optimizer: Any = None) -> int:
    """Say in the recording which memory holds parameters, buffers, gradients and optimizer states; give their number.

    Call it while recording, when the states are there: after a step of the optimizer. Memory that the optimizer or
    `zero_grad` makes anew later has to be named again. From PyTorch 2.15 on; earlier releases have no way to say it
    afterwards, nothing happens, and memviz infers it.
    """
    torch = release.torch()
    annotate = getattr(torch.cuda.memory, "_annotate_tensor", None)
    if annotate is None or release.why_not(torch) is not None:
        return 0
    seen: set[tuple[Any, int]] = set()
    for category, held in _owned(torch, model, optimizer):
        # What is spread over devices has its part here.
        tensor = held.to_local() if hasattr(held, "to_local") else held
        if not tensor.is_cuda:
            continue
        # Views and tied weights share what was allocated, which the first of them names. FSDP lets go of it at times.
        storage = (tensor.device, tensor.untyped_storage().data_ptr())
        if storage not in seen and storage[1] != 0:
            seen.add(storage)
            annotate(tensor, f"category={category}")
    return len(seen)


def _owned(torch: Any, model: Any, optimizer: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a model and its optimizer, with what they are."""
    parameters = list(model.parameters())
    yield from (("parameter", parameter) for parameter in parameters)
    yield from (("buffer", buffer) for buffer in model.buffers())
    yield from (("gradient", parameter.grad) for parameter in parameters if parameter.grad is not None)
    states = optimizer.state.values() if optimizer is not None else ()
    yield from (("optimizer_state", held) for state in states for held in state.values() if torch.is_tensor(held))


@contextlib.contextmanager
def category(name: str) -> Iterator[None]:
    """Say in the recording what the memory is for that this thread allocates inside.

    From PyTorch 2.10 on; with earlier releases nothing happens, and memviz infers it.

    Raises:
        ValueError: when memviz knows no such category.
    """
    if name not in CATEGORIES:
        raise ValueError(f"expected one of {', '.join(CATEGORIES)}, found {name!r}")
    memory = release.torch().cuda.memory
    if not hasattr(memory, "_set_memory_metadata") or release.why_not(release.torch()) is not None:
        yield
        return
    before = memory._get_memory_metadata()
    memory._set_memory_metadata(f"category={name}")
    try:
        yield
    finally:
        memory._set_memory_metadata(before)
