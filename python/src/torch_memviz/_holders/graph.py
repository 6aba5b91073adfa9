"""The objects that a walk has reached, each with the edge by which it was reached first."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterable, Iterator
from gc import get_referents, is_tracked
from typing import Any, NamedTuple

from .classes import PYTHON, flags_of, is_subclass, remembered

#: How a tensor is held, the most telling first.
KINDS = ("parameter", "buffer", "gradient", "optimizer_state", "saved", "variable", "unreachable")
PARAMETER, BUFFER, GRADIENT, STATE, SAVED, VARIABLE, UNREACHABLE = range(len(KINDS))
#: Part of a tensor that consists of others: held as that one is, and named like it.
PART = len(KINDS)

#: Types whose instances hold no tensors, or are walked from elsewhere, by their `id`.
EMPTY = frozenset(
    map(
        id,
        (
            *(types.BuiltinFunctionType, types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType),
            *(types.MethodDescriptorType, types.ModuleType, types.WrapperDescriptorType, weakref.ref),
            *(classmethod, property, staticmethod),
        ),
    )
)

#: Containers, by their `id`. Small ones are looked into at once: most hold only numbers and text, and thus no tensors.
PLAIN = frozenset(map(id, (dict, list, set, tuple)))
MOST_MEMBERS = 16

#: Edges kept for a tensor, and for another object, that several objects hold.
MOST_EDGES = 6
MOST_AGAIN = 3
#: Longest way from a root.
_LONGEST = 10_000


class Root(NamedTuple):
    """Where a walk starts."""

    #: `local`, `global`, `exception`, or `unreachable`.
    kind: str
    #: The variable or exception.
    name: str
    #: The function of a local variable, the module of a global one.
    scope: str = ""
    file: str = ""
    #: The line that runs now in a function, or 0.
    line: int = 0
    #: First line of the function, or 0.
    first_line: int = 0
    #: Whether the variable belongs to a library rather than to the program.
    is_library: bool = False


class Key(NamedTuple):
    """The key of a dictionary."""

    value: Any


class State(NamedTuple):
    """The state of an optimizer for a parameter."""

    #: Place of the parameter.
    parameter: int
    key: Any


#: What is appended to the path: text such as `.name`, a place in a list, or a key.
Label = str | int | Key | State


class Edge(NamedTuple):
    """How one object holds another."""

    #: Place of the holding object; -1 for a root.
    parent: int
    label: Label
    kind: int = VARIABLE
    root: Root | None = None


_new = tuple.__new__


@remembered
def _is_of_class(kind: type) -> bool:
    """Whether Python code has defined the class of an object that is no class itself."""
    return bool(flags_of(kind) & PYTHON) and not is_subclass(type, kind)


class Graph:
    """All objects reached so far. It keeps them alive, so that no `id` is reused while walking."""

    def __init__(self, tensor: type) -> None:
        #: The class of tensors.
        self.tensor = tensor
        self.objects: list[Any] = []
        self.edges: list[Edge] = []
        self.place_of: dict[int, int] = {}
        #: All edges to each tensor, by its place.
        self.tensors: dict[int, list[Edge]] = {}
        #: Further edges to a tensor that were not kept.
        self.more: dict[int, int] = {}
        #: Further edges to a container or an instance of a class, by its place. Whoever releases it has to release all
        #: of them.
        self.again: dict[int, list[Edge]] = {}
        #: Whether instances of a class are tensors.
        self.is_tensor = remembered(functools.partial(is_subclass, tensor))
        self.hide(self.again, self.objects, self.edges, self.place_of, self.tensors, self.more, self.__dict__, self)

    def hide(self, *objects: object) -> None:
        """Do not walk to these objects."""
        for one in objects:
            self.place_of[id(one)] = -1

    def add(self, held: Any, parent: int, label: Label, kind: int = VARIABLE, root: Root | None = None) -> None:
        """Note that an object holds another one, and queue that unless it was reached before."""
        # Numbers, text, and what consists of them, hold nothing.
        if not is_tracked(held):
            return
        place = self.place_of.get(id(held))
        kind_of = type(held)
        if place is None:
            of_kind = id(kind_of)
            if of_kind in PLAIN:
                if len(held) <= MOST_MEMBERS and not any(map(is_tracked, get_referents(held))):
                    return
            elif of_kind in EMPTY or (kind_of is types.FunctionType and _holds_nothing(held)):
                return
            # Faster than `Edge`.
            edge = _new(Edge, (parent, label, kind, root))
            place = self.place_of[id(held)] = len(self.objects)
            if self.is_tensor(kind_of):
                self.tensors[place] = [edge]
            self.objects.append(held)
            self.edges.append(edge)
            return
        edges = self.tensors.get(place)
        if edges is None:
            if id(kind_of) in PLAIN or _is_of_class(kind_of):
                again = self.again.setdefault(place, [])
                if len(again) < MOST_AGAIN:
                    again.append(Edge(parent, label, kind, root))
            return
        if len(edges) < MOST_EDGES or kind < VARIABLE:
            edges.append(Edge(parent, label, kind, root))
        else:
            self.more[place] = self.more.get(place, 0) + 1

    def whole(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return edges, and in place of those to a part of a tensor those to that tensor."""
        # Not by equality: that of labels is code of the program.
        found: dict[int, Edge] = {}
        seen: set[int] = set()
        left = list(edges)[::-1]
        while left:
            edge = left.pop()
            if edge.kind != PART:
                found[id(edge)] = edge
            elif edge.parent not in seen:
                seen.add(edge.parent)
                left += self.tensors[edge.parent][::-1]
        return list(found.values())

    def chains(self, edge: Edge) -> Iterator[list[Edge]]:
        """Yield ways from a root to what an edge holds, the root first.

        A gradient is named by its parameter's place in the model, although an optimizer may be nearer.
        """
        last = [edge]
        if edge.kind == GRADIENT and edge.parent in self.tensors:
            last.append(min(self.tensors[edge.parent], key=lambda one: one.kind))
        found = self._from_root(last)
        yield found
        for number, one in enumerate(found[1:], 1):
            for other in self.again.get(one.parent, ()):
                yield self._from_root([*found[: number - 1 : -1], other])

    def _from_root(self, last: list[Edge]) -> list[Edge]:
        """Return the edges that precede some, which are in reverse order, with these."""
        while last[-1].parent >= 0 and len(last) <= _LONGEST:
            last.append(self.edges[last[-1].parent])
        return last[::-1]

    def clear(self) -> None:
        """Drop all references, also those of a graph that has reached itself."""
        for kept in (self.again, self.objects, self.edges, self.place_of, self.tensors, self.more):
            kept.clear()


def _holds_nothing(function: types.FunctionType) -> bool:
    """Whether a function has no closure, default values or attributes, as most have not."""
    return (
        function.__closure__ is None
        and function.__defaults__ is None
        and function.__kwdefaults__ is None
        and not function.__dict__
    )
