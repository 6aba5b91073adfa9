"""Names for what holds a tensor, as the program would write them: `train.history[2].grad_fn`."""

from __future__ import annotations

from typing import Any

from .classes import isinstance_of, name_of
from .graph import PARAMETER, SAVED, VARIABLE, Edge, Graph, Key, State

#: Longest text of a key.
MOST_KEY = 40


def path(graph: Graph, chain: list[Edge]) -> str:
    """Return the path from a variable along edges. A node that has saved a tensor is left out."""
    labels = [_label(graph, one) for one in (chain[:-1] if chain[-1].kind == SAVED else chain)]
    return _scope(chain[0]) + "".join(labels)


def variable(graph: Graph, chain: list[Edge]) -> str:
    """Return the variable at which edges begin: `train.history`."""
    return _scope(chain[0]) + _label(graph, chain[0])


def module(graph: Graph, chain: list[Edge], kind: type) -> str:
    """Return the class of the module that has a path as an attribute, if any. `kind` is the class of all modules."""
    for one in reversed(chain[1:]):
        holder = graph.objects[one.parent]
        if isinstance_of(holder, kind):
            is_attribute = isinstance(one.label, str) and one.label.startswith(".")
            return name_of(type(holder)) if is_attribute and one.kind == VARIABLE else ""
        if isinstance(one.label, State) or one.label in (".grad", ".__traceback__"):
            return ""
    return ""


def _scope(first: Edge) -> str:
    root = first.root
    return f"{root.scope}." if root is not None and root.kind == "local" else ""


def node(edge: Edge) -> str:
    """Return the autograd node that has saved a tensor, and under which name: `AddmmBackward0.mat1`; else nothing."""
    return edge.label.strip(" <>") if edge.kind == SAVED and isinstance(edge.label, str) else ""


def qualified_name(graph: Graph, place: int) -> str:
    """Return the name of a parameter within its model: `blocks.0.fc.weight`."""
    for edge in graph.tensors.get(place, ()):
        if edge.kind == PARAMETER:
            labels = [_label(graph, one) for one in next(graph.chains(edge))[1:]]
            return "".join(labels).lstrip(".")
    return ""


def _label(graph: Graph, edge: Edge) -> str:
    match edge.label:
        case str(text):
            return text
        case int(number):
            return f"[{number}]"
        case Key(value):
            return f"[{_key(value)}]"
        case State(parameter, None):
            return f".state[{qualified_name(graph, parameter) or '…'}]"
        case State(parameter, key):
            return f".state[{qualified_name(graph, parameter) or '…'}][{_key(key)}]"


def _key(value: Any) -> str:
    """Return a key as it is shown: text is cut, and objects are named by their type."""
    if type(value) is str:
        return repr(value if len(value) <= MOST_KEY else value[: MOST_KEY - 1] + "…")
    if type(value) in (int, bool, type(None)):
        return repr(value)
    return f"<{name_of(type(value))}>"
