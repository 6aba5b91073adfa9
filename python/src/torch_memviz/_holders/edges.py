"""What an object holds, by its type. No code of the program runs: no property, `__getattr__`, `repr`, or comparison."""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from . import frames
from .classes import PYTHON, dict_of, flags_of, is_native, isinstance_of, mro_of, name_of, offset_of, remembered
from .graph import BUFFER, PARAMETER, STATE, VARIABLE, Graph, Key, State

#: Adds what an object holds to the graph: called with the object, its place and how it is held.
Handler = Callable[[Graph, Any, int, int], None]


def own_dict(held: Any) -> dict[str, Any] | None:
    """Return the attributes of an instance."""
    getter = _dict_getter(type(held))
    found = getter(held) if getter is not None else None
    return found if type(found) is dict else None


@remembered
def _dict_getter(kind: type) -> Callable[[Any], Any] | None:
    for base in mro_of(kind):
        found = dict_of(base).get("__dict__")
        if found is not None and base is not type:
            # Anything else is code of the program.
            return found.__get__ if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType) else None
    return None


@remembered
def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the `__slots__` of a class and its bases, as names and getters."""
    bases = [base for base in mro_of(kind) if _is_python(base)]
    return tuple(
        (name, member.__get__)
        for base in bases
        for name, member in _named(dict_of(base))
        if type(member) is types.MemberDescriptorType and not name.startswith("__")
    )


def _is_python(kind: type) -> bool:
    """Whether a class was defined in Python."""
    return bool(flags_of(kind) & PYTHON) and "__module__" in dict_of(kind)


@remembered
def _has_only_attributes(kind: type) -> bool:
    """Whether attributes and slots are all that instances hold."""
    return all(_is_python(base) or base is object for base in mro_of(kind))


def _named(found: Any) -> list[tuple[str, Any]]:
    """Return the names and values of attributes. Names of a class derived from `str` would run its code."""
    # The namespace of a class is no dictionary, but its `items` are Python's own.
    items = dict.items(found) if isinstance_of(found, dict) else found.items()
    return [(name if type(name) is str else "…", value) for name, value in tuple(items)]


def _mapping(graph: Graph, held: Any, place: int, kind: int) -> None:
    kind = STATE if kind == STATE else VARIABLE
    for name, value in tuple(dict.items(held)):
        if gc.is_tracked(value):
            graph.add(value, place, Key(name), kind)
        graph.add(name, place, " <key>")
    _rest(graph, held, place)


def _sequence(graph: Graph, held: Any, place: int, kind: int) -> None:
    kind = STATE if kind == STATE else VARIABLE
    base = next(base for base in (list, tuple, deque) if isinstance_of(held, base))
    for number, value in enumerate(tuple(base.__iter__(held))):
        if gc.is_tracked(value):
            graph.add(value, place, number, kind)
    _rest(graph, held, place)


def _set(graph: Graph, held: Any, place: int, kind: int) -> None:
    base = set if isinstance_of(held, set) else frozenset
    for value in tuple(base.__iter__(held)):
        graph.add(value, place, "[…]", STATE if kind == STATE else VARIABLE)
    _rest(graph, held, place)


def _rest(graph: Graph, held: Any, place: int) -> None:
    """Add the attributes of an instance of a class that is derived from a container."""
    if offset_of(type(held)):
        attributes(graph, held, place)


def attributes(graph: Graph, held: Any, place: int, part: int = VARIABLE) -> None:
    """Add the attributes and slots of an instance.

    `part` is how it holds its slots, or its attributes if its class has no slots: others were added to it later.
    """
    slots = _slots(type(held))
    found = own_dict(held)
    if found is not None:
        for name, value in _named(found):
            if gc.is_tracked(value):
                graph.add(value, place, f".{name}", VARIABLE if slots else part)
    for name, getter in slots:
        try:
            graph.add(getter(held), place, f".{name}", part)
        except AttributeError:
            continue


def _plain(getter: Callable[[Any], Any], graph: Graph, held: Any, place: int, _: int) -> None:
    """Add the attributes of an instance that has nothing else, as most have not."""
    found = getter(held)
    if type(found) is dict:
        for name, value in tuple(found.items()):
            if gc.is_tracked(value):
                graph.add(value, place, "." + name if type(name) is str else ".…")


def _instance(graph: Graph, held: Any, place: int, kind: int) -> None:
    attributes(graph, held, place)
    if not _has_only_attributes(type(held)):
        _referents(graph, held, place, kind)


def _referents(graph: Graph, held: Any, place: int, _: int) -> None:
    own = own_dict(held)
    for found in gc.get_referents(held):
        if found is not own and not isinstance_of(found, type):
            graph.add(found, place, f"<{name_of(type(held))}>")


def _class(graph: Graph, held: Any, place: int, _: int) -> None:
    for name, value in _named(dict_of(held)):
        if gc.is_tracked(value) and not name.startswith("__"):
            graph.add(value, place, f".{name}")


def _function(graph: Graph, held: Any, place: int, _: int) -> None:
    cells = held.__closure__ or ()
    for name, cell in zip(held.__code__.co_freevars, cells, strict=False):
        graph.add(_content(cell), place, f".<closure>.{name}")
    for number, value in enumerate(held.__defaults__ or ()):
        graph.add(value, place, f".<default {number}>")
    for name, value in _named(held.__kwdefaults__ or {}):
        graph.add(value, place, f".<default {name}>")
    for name, value in _named(own_dict(held) or {}):
        graph.add(value, place, f".{name}")


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _method(graph: Graph, held: Any, place: int, _: int) -> None:
    graph.add(held.__self__, place, ".__self__")
    graph.add(getattr(held, "__func__", None), place, "")


def _exception(graph: Graph, held: Any, place: int, _: int) -> None:
    for name in ("__traceback__", "__cause__", "__context__", "args"):
        graph.add(BaseException.__dict__[name].__get__(held), place, f".{name}")
    attributes(graph, held, place)


def _traceback(graph: Graph, held: Any, place: int, _: int) -> None:
    while held is not None:
        _frame(graph, held.tb_frame, place, VARIABLE)
        held = held.tb_next


def _frame(graph: Graph, held: Any, place: int, _: int) -> None:
    if frames.is_own(held):
        return
    for name, value in frames.local_variables(held):
        graph.add(value, place, f"({held.f_code.co_name}).{name}")


def _generator(graph: Graph, held: Any, place: int, kind: int) -> None:
    for name in ("gi_frame", "cr_frame", "ag_frame"):
        frame = getattr(held, name, None)
        if frame is not None:
            _frame(graph, frame, place, kind)


def _nothing(graph: Graph, held: Any, place: int, kind: int) -> None:
    """Add nothing."""


_HANDLERS: dict[type, Handler] = {
    **dict.fromkeys((dict,), _mapping),
    **dict.fromkeys((list, tuple, deque), _sequence),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((types.MethodType, types.MethodWrapperType), _method),
    **dict.fromkeys((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), _generator),
    types.FunctionType: _function,
    BaseException: _exception,
    types.TracebackType: _traceback,
    types.FrameType: _frame,
    type: _class,
}


class Handlers:
    """The handler of each type, found once. Types are known by their `id`: objects of the graph keep them alive."""

    def __init__(self, torch: Any) -> None:
        from .autograd import can_read, node, tensor

        by_base: dict[type, Handler] = {
            **_HANDLERS,
            torch.Tensor: functools.partial(tensor, torch),
            torch.nn.Module: _module,
            torch.optim.Optimizer: functools.partial(_optimizer, torch),
        }
        self._by_base = {id(base): handler for base, handler in by_base.items()}
        self._node: Handler = node if can_read() else _nothing
        self._found: dict[int, Handler] = {}

    def of(self, kind: type) -> Handler:
        """Return the handler of a type."""
        found = self._found.get(id(kind))
        if found is None:
            found = next((self._by_base[id(base)] for base in mro_of(kind) if id(base) in self._by_base), None)
            if found is None and is_native(kind, "next_functions"):
                found = self._node
            if found is None:
                found = _instance_of(kind) if own_dict_of(kind) else _referents
            self._found[id(kind)] = found
        return found


def _instance_of(kind: type) -> Handler:
    getter = _dict_getter(kind)
    if getter is None or _slots(kind) or not _has_only_attributes(kind):
        return _instance
    return functools.partial(_plain, getter)


def own_dict_of(kind: type) -> bool:
    """Whether instances have attributes or slots."""
    return _is_python(kind) or _dict_getter(kind) is not None


def _module(graph: Graph, held: Any, place: int, _: int) -> None:
    own = own_dict(held) or {}
    groups = {"_parameters": PARAMETER, "_buffers": BUFFER, "_modules": VARIABLE}
    for group, kind in groups.items():
        members = own.get(group)
        if isinstance_of(members, dict):
            for name, value in _named(members):
                graph.add(value, place, f".{name}", kind)
    for name, value in _named(own):
        if name not in groups:
            graph.add(value, place, f".{name}")


def _optimizer(torch: Any, graph: Graph, held: Any, place: int, _: int) -> None:
    own = own_dict(held) or {}
    for name, value in _named(own):
        if name != "state" or not isinstance_of(value, dict):
            graph.add(value, place, f".{name}")
            continue
        for parameter, states in tuple(dict.items(value)):
            graph.add(parameter, place, ".state <key>")
            of = graph.place_of.get(id(parameter), -1)
            if not isinstance_of(states, dict):
                graph.add(states, place, State(of, None), STATE)
                continue
            for text, state in tuple(dict.items(states)):
                graph.add(state, place, State(of, text), STATE)
