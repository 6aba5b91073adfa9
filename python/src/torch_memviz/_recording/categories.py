"""Categories of memory that the program sets, so that memviz does not need to infer them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import release

#: Categories that memviz knows, except those for unknown memory.
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
    """Mark parameters, buffers, gradients and optimizer states in the recording, and return the number marked.

    Call it while recording, after an optimizer step, so that the states exist. If the optimizer or `zero_grad` later
    allocates new memory, call it again. Requires PyTorch 2.15 or later. Earlier releases cannot annotate existing
    memory: the call does nothing, and memviz infers the categories.
    """
    torch = release.torch()
    annotate = getattr(torch.cuda.memory, "_annotate_tensor", None)
    if annotate is None or release.why_not(torch) is not None:
        return 0
    seen: set[tuple[Any, int]] = set()
    for category, held in _owned(torch, model, optimizer):
        # A tensor that is distributed over devices has its local part here.
        tensor = held.to_local() if hasattr(held, "to_local") else held
        if not tensor.is_cuda:
            continue
        # Views and tied weights share an allocation, which the first of them names. FSDP frees it temporarily.
        storage = (tensor.device, tensor.untyped_storage().data_ptr())
        if storage not in seen and storage[1] != 0:
            seen.add(storage)
            annotate(tensor, f"category={category}")
    return len(seen)


def _owned(torch: Any, model: Any, optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a model and its optimizer with their categories."""
    parameters = list(model.parameters())
    yield from (("parameter", parameter) for parameter in parameters)
    yield from (("buffer", buffer) for buffer in model.buffers())
    yield from (("gradient", parameter.grad) for parameter in parameters if parameter.grad is not None)
    states = optimizer.state.values() if optimizer is not None else ()
    yield from (("optimizer_state", held) for state in states for held in state.values() if torch.is_tensor(held))


@contextlib.contextmanager
def category(name: str) -> Iterator[None]:
    """Set the category of memory that this thread allocates inside the block.

    Requires PyTorch 2.10 or later. With earlier releases it does nothing, and memviz infers the category.

    Raises:
        ValueError: if memviz does not know the category.
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
