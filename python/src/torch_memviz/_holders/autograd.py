"""What tensors and autograd nodes hold.

Saved tensors with hooks are not unpacked: that would recompute or copy them.
"""

from __future__ import annotations

import sys
from typing import Any

from .classes import base_of, dict_of, is_native, is_wrapper, mro_of, name_of, remembered
from .edges import attributes
from .graph import GRADIENT, PART, SAVED, VARIABLE, Graph

#: Attributes of a node that return what it has saved.
_PREFIX = "_saved_"


class CodeRanError(Exception):
    """Reading an attribute would have run Python code."""


def _refuse(frame: Any, event: str, _: Any) -> None:
    if event == "call":
        raise CodeRanError(frame.f_code.co_name)


def can_read() -> bool:
    """Whether saved tensors can be read without running their hooks, which a profiler of Python prevents."""
    return sys.getprofile() is None


def _read(node: Any, name: str) -> Any:
    """Return an attribute that C++ implements, or None if it is gone, or if reading it would run Python code.

    Nothing tells whether a saved tensor has hooks. So every Python function that is called here fails before its first
    statement.
    """
    sys.setprofile(_refuse)
    try:
        return getattr(node, name)
    except Exception:  # Freed, changed in place, or with hooks.
        return None
    finally:
        sys.setprofile(None)


def tensor(torch: Any, graph: Graph, held: Any, place: int, _: int) -> None:
    """Add the gradient, the graph and the attributes of a tensor."""
    base = base_of(torch)
    if base.is_leaf.__get__(held) or base.retains_grad.__get__(held):
        graph.add(base.grad.__get__(held), place, ".grad", GRADIENT)
    graph.add(base.grad_fn.__get__(held), place, ".grad_fn")
    graph.add(base._backward_hooks.__get__(held), place, "._backward_hooks")
    attributes(graph, held, place, PART if is_wrapper(type(held)) else VARIABLE)


def node(graph: Graph, held: Any, place: int, _: int) -> None:
    """Add what a node has saved, and the nodes that follow it."""
    kind = name_of(type(held))
    for name in _saved_names(type(held)):
        _add_saved(graph, _read(held, name), place, f" <{kind}.{name.removeprefix(_PREFIX)}>")
    variable = _read(held, "variable") if kind == "AccumulateGrad" else None
    graph.add(variable, place, ".variable")
    if is_native(type(held), "saved_tensors"):
        # A `torch.autograd.Function` of the program, or of `torch.compile`.
        _add_saved(graph, _read(held, "saved_tensors"), place, f" <{kind}>")
        attributes(graph, held, place)
    for following, _number in _read(held, "next_functions") or ():
        graph.add(following, place, "")


def _add_saved(graph: Graph, saved: Any, place: int, label: str) -> None:
    for one in saved if type(saved) in (tuple, list) else (saved,):
        graph.add(one, place, label, SAVED)


@remembered
def _saved_names(kind: type) -> tuple[str, ...]:
    names = (name for base in mro_of(kind) for name in tuple(dict_of(base)) if type(name) is str)
    return tuple(sorted({name for name in names if name.startswith(_PREFIX)}))
