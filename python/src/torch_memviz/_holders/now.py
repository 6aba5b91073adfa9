"""`holders`: what holds the memory now."""

from __future__ import annotations

from dataclasses import dataclass

from .._recording import release
from .graph import KINDS
from .paths import node, path
from .record import ordered
from .walk import walked


@dataclass(frozen=True)
class Holder:
    """A storage on a device and what holds it."""

    device: int
    #: Size of the storage, and the most bytes that one of its tensors sees: a view may keep a larger one.
    bytes: int
    seen_bytes: int
    #: From a variable to the tensor: `train.history[2].grad_fn`.
    path: str
    #: `parameter`, `buffer`, `gradient`, `optimizer_state`, `saved`, `variable` or `unreachable`.
    kind: str
    #: The autograd node that has saved it: `AddmmBackward0.mat1`; else empty.
    node: str
    #: How many other paths lead to it.
    others: int


def holders() -> list[Holder]:
    """Return what holds the memory of tensors on CUDA devices now, the largest storages first.

    Nothing is allocated on a device, and no code of the program runs.

    Raises:
        RecordingError: if PyTorch is missing or too old.
    """
    found = []
    with walked(release.torch()) as walk:
        for (device, _), tensors in walk.storages().items():
            edges = ordered(walk.graph, tensors)
            found.append(
                Holder(
                    device,
                    tensors[0].bytes,
                    max(held.seen_bytes for held in tensors),
                    path(walk.graph, next(walk.graph.chains(edges[0]))),
                    KINDS[edges[0].kind],
                    node(edges[0]),
                    len(edges) - 1 + sum(held.more for held in tensors),
                )
            )
    return sorted(found, key=lambda one: -one.bytes)
