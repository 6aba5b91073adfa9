"""Walks from variables along references and autograd graphs to the memory of tensors."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

from . import frames
from .classes import base_of, is_subclass, is_wrapper, isinstance_of, name_of
from .edges import Handlers, own_dict, own_dict_of
from .graph import EMPTY, UNREACHABLE, Edge, Graph, Root

#: Limits of a walk, and of reading the storages that it has found. Seconds are those of the processor: other work on
#: the machine does not count.
MOST_OBJECTS = 3_000_000
MOST_SECONDS = 5.0
#: References that are followed back from a tensor that no variable reaches.
MOST_LEVELS = 8
#: Tensors of one storage whose holders are compared.
MOST_TENSORS = 1000
#: Objects between two looks at the clock.
PAUSE = 2048


@dataclass(frozen=True)
class Held:
    """A tensor on a device."""

    device: int
    #: Where its storage begins, and its size.
    address: int
    bytes: int
    #: Bytes of the tensor's elements, which may be a part of the storage.
    seen_bytes: int
    #: All edges that were kept, and how many more there are.
    edges: tuple[Edge, ...]
    more: int


@dataclass
class Walk:
    """What a walk has found."""

    graph: Graph
    tensors: list[Held]
    objects: int
    seconds: float
    #: `objects` or `time` if that limit was reached; else empty.
    limit: str
    #: Tensors whose storage could not be read, or not in time.
    unread: int

    def storages(self) -> dict[tuple[int, int], list[Held]]:
        """Return the tensors of each storage, by its device and address."""
        found: dict[tuple[int, int], list[Held]] = {}
        for held in self.tensors:
            found.setdefault((held.device, held.address), []).append(held)
        for tensors in found.values():
            rest = tensors[MOST_TENSORS:]
            if rest:
                last = tensors[MOST_TENSORS - 1]
                more = last.more + sum(len(held.edges) + held.more for held in rest)
                seen = max(last.seen_bytes, *(held.seen_bytes for held in rest))
                tensors[MOST_TENSORS - 1 :] = [replace(last, more=more, seen_bytes=seen)]
        return found


@contextlib.contextmanager
def walked(torch: ModuleType, most_objects: int = MOST_OBJECTS, most_seconds: float = MOST_SECONDS) -> Iterator[Walk]:
    """Find all tensors on CUDA devices and what holds them. The result is valid inside the block.

    Allocates nothing on a device, runs no code of the program, and keeps no reference after the block.
    """
    graph = Graph(torch.Tensor)
    was_collecting = gc.isenabled()
    # A collection would free what only cycles hold, and call finalizers. The walk must not bring it forward.
    gc.disable()
    try:
        # Getters of tensors would call `__torch_function__`.
        with torch._C.DisableTorchFunctionSubclass():
            yield _walk(torch, graph, most_objects, most_seconds)
    finally:
        graph.clear()
        if was_collecting:
            gc.enable()


def _walk(torch: ModuleType, graph: Graph, most_objects: int, most_seconds: float) -> Walk:
    begun, worked = time.perf_counter(), time.thread_time()
    handlers = Handlers(torch)
    graph.hide(handlers, handlers.__dict__)
    handler_of, ignored = handlers.of, contextlib.suppress(Exception)
    done, limit = 0, ""
    for roots in (_variables, _library_variables, _unreachable):
        if limit:
            # What was not reached may well be reachable.
            break
        for _ in roots(torch, graph):
            while done < len(graph.objects) and not limit:
                held = graph.objects[done]
                # An object may be in a state that no code of Python leaves it in.
                with ignored:
                    handler_of(type(held))(graph, held, done, graph.edges[done].kind)
                done += 1
                if done % PAUSE == 0:
                    limit = _reached(done, most_objects, time.thread_time() - worked, most_seconds)
    tensors, unread = _storages(torch, graph, most_seconds)
    return Walk(graph, tensors, done, time.perf_counter() - begun, limit, unread)


def _reached(objects: int, most_objects: int, seconds: float, most_seconds: float) -> str:
    return "objects" if objects >= most_objects else "time" if seconds >= most_seconds else ""


def _variables(torch: ModuleType, graph: Graph) -> Iterator[None]:
    """Queue variables of the program, and the exceptions that it handles, all equally near; then those of libraries."""
    running = [frame for first in sys._current_frames().values() for frame in _stack(first)]
    later: list[tuple[Any, str, FrameType]] = []
    graph.hide(later)
    for frame in sorted(running, key=_is_library_frame):
        graph.place_of.setdefault(id(frame), -1)
        if frame.f_code.co_name == "<module>":
            continue
        found = frames.local_variables(frame)
        is_method = any(name == "self" and isinstance_of(value, torch.nn.Module) for name, value in found)
        for name, value in found:
            if _is_library_frame(frame) or (is_method and isinstance_of(value, torch.nn.Module)):
                later.append((value, name, frame))
            else:
                graph.add(value, -1, name, root=_local(frame, name))
    for name, module in _modules():
        if not frames.is_library(frames.source_file(module)):
            _add_globals(graph, name, module)
    for name in ("last_exc", "last_value", "last_traceback"):
        graph.add(getattr(sys, name, None), -1, f"sys.{name}", root=Root("exception", f"sys.{name}"))
    graph.add(sys.exc_info()[1], -1, "exception", root=Root("exception", "the exception being handled"))
    yield
    # Modules that are running have a longer name in their model, but it tells them from all others. Functions of
    # libraries have names of their own for what the program holds.
    for value, name, frame in later:
        graph.add(value, -1, name, root=_local(frame, name))
    yield


def _library_variables(_: ModuleType, graph: Graph) -> Iterator[None]:
    for name, module in _modules():
        if name.partition(".")[0] not in sys.stdlib_module_names and frames.is_library(frames.source_file(module)):
            _add_globals(graph, name, module)
    yield


def _unreachable(torch: ModuleType, graph: Graph) -> Iterator[None]:
    """Queue what holds tensors that no variable reaches: objects of reference cycles, and what C++ keeps."""
    known = {held.address for held in _storages(torch, graph, MOST_SECONDS)[0]}
    is_tensor = graph.is_tensor
    tensors = [held for held in gc.get_objects() if is_tensor(type(held))]
    lost = [held for held in tensors if id(held) not in graph.place_of]
    lost = [held for held in lost if _storage(torch, held)[1] not in known | {0}]
    levels: list[list[Any]] = [lost]
    seen = {id(levels), id(tensors)}
    while levels[-1] and len(levels) <= MOST_LEVELS:
        seen.update(id(level) for level in levels)
        seen.update(map(id, levels[-1]))
        referrers = gc.get_referrers(*levels[-1])
        levels.append([one for one in referrers if id(one) not in seen and not _is_walked(graph, one)])
    graph.hide(levels, tensors, *levels)
    holders = [one for level in reversed(levels) for one in level]
    # An exception tells more than the frames that its traceback holds.
    for one in sorted(holders, key=lambda one: not isinstance_of(one, BaseException)):
        kind = type(one)
        if _is_of_program(kind) or any(isinstance_of(one, base) for base in (torch.Tensor, FrameType, GeneratorType)):
            graph.add(one, -1, name_of(kind), UNREACHABLE, Root("unreachable", name_of(kind)))
            yield


def _is_walked(graph: Graph, held: Any) -> bool:
    """Whether an object was reached, or is a part of this walk."""
    return id(held) in graph.place_of or (type(held) is FrameType and frames.is_own(held))


def _is_of_program(kind: type) -> bool:
    """Whether an instance has a name that tells what holds a tensor: exceptions, and instances of classes of Python."""
    is_code = is_subclass(type, kind) or is_subclass(FunctionType, kind)
    return is_subclass(BaseException, kind) or (own_dict_of(kind) and not is_code)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if not frames.is_own(frame):
            yield frame
        frame = frame.f_back


def _local(frame: FrameType, name: str) -> Root:
    code = frame.f_code
    return Root(
        "local",
        name,
        code.co_name,
        code.co_filename,
        frame.f_lineno,
        code.co_firstlineno,
        frames.is_library(code.co_filename),
    )


def _modules() -> list[tuple[str, ModuleType]]:
    found = [(name, module) for name, module in list(sys.modules.items()) if isinstance_of(module, ModuleType)]
    # `multiprocessing` adds a second name for `__main__`, and programs do so for others. Their variables are the same.
    first = {id(module): name for name, module in reversed(found)}
    return [
        (name, module) for name, module in found if not name.startswith("torch_memviz") and first[id(module)] == name
    ]


def _add_globals(graph: Graph, name: str, module: ModuleType) -> None:
    variables = own_dict(module) or {}
    graph.place_of.setdefault(id(variables), -1)
    file = frames.source_file(module)
    is_library = frames.is_library(file)
    prefix = "" if name == "__main__" else f"{name}."
    for variable, value in tuple(variables.items()):
        # Most are modules, and functions of C.
        if (
            id(type(value)) not in EMPTY
            and gc.is_tracked(value)
            and type(variable) is str
            and not variable.startswith("__")
        ):
            graph.add(value, -1, prefix + variable, root=Root("global", variable, name, file, is_library=is_library))


def _is_library_frame(frame: FrameType) -> bool:
    return frames.is_library(frame.f_code.co_filename)


def _storages(torch: ModuleType, graph: Graph, most_seconds: float) -> tuple[list[Held], int]:
    found: list[Held] = []
    unread, begun = 0, time.thread_time()
    for number, (place, edges) in enumerate(graph.tensors.items(), 1):
        if number % PAUSE == 0 and time.thread_time() - begun >= most_seconds:
            return found, unread + len(graph.tensors) - number + 1
        held = graph.objects[place]
        device, address, size = _storage(torch, held)
        if device is None:
            unread += 1
        elif address and size:
            base = base_of(torch)
            seen = base.numel(held) * base.element_size(held)
            found.append(Held(device, address, size, seen, tuple(edges), graph.more.get(place, 0)))
    return found, unread


def _storage(torch: ModuleType, tensor: Any) -> tuple[int | None, int, int]:
    """Return the device, address and size of a storage on CUDA: 0 elsewhere, and no device if it cannot be read."""
    try:
        storage = base_of(torch).untyped_storage(tensor)
        if storage.device.type != "cuda":
            return -1, 0, 0
        return storage.device.index, storage.data_ptr(), storage.nbytes()
    except Exception:  # A tensor without storage: one that consists of others has none.
        return (-1 if is_wrapper(type(tensor)) else None), 0, 0
