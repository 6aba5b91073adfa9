"""Facts about classes, without running code of theirs or of their metaclasses."""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType
from typing import Any, TypeVar

R = TypeVar("R")

# Classes and metaclasses can override these attributes, so they are read from `type`.
dict_of = type.__dict__["__dict__"].__get__
flags_of = type.__dict__["__flags__"].__get__
module_of = type.__dict__["__module__"].__get__
mro_of = type.__dict__["__mro__"].__get__
name_of = type.__dict__["__name__"].__get__
offset_of = type.__dict__["__dictoffset__"].__get__

#: Whether the second class is the first one or derived from it.
is_subclass = type.__subclasscheck__

#: `Py_TPFLAGS_HEAPTYPE`: classes that Python code has defined, besides some others.
PYTHON = 1 << 9
#: Classes whose facts are remembered.
_MOST = 4096


def base_of(torch: Any) -> Any:
    """Return the class of C++ from which tensors are derived. Its name depends on the release of PyTorch."""
    return torch.Tensor.__base__


def isinstance_of(held: Any, base: type) -> bool:
    """Return whether an object is an instance, by its real type rather than by its `__class__`."""
    return is_subclass(base, type(held))


def is_native(kind: type, name: str) -> bool:
    """Whether C++ implements an attribute of a class."""
    return any(type(dict_of(base).get(name)) is GetSetDescriptorType for base in mro_of(kind))


def remembered(function: Callable[[type], R]) -> Callable[[type], R]:
    """Call a function once for each class. A dictionary of classes would call their `__hash__`."""
    known: dict[int, tuple[type, R]] = {}
    known_of = known.get

    def of(kind: type) -> R:
        found = known_of(id(kind))
        if found is None:
            if len(known) >= _MOST:
                known.clear()
            # The class is kept, so that no other one gets its `id`.
            found = known[id(kind)] = kind, function(kind)
        return found[1]

    return of


@remembered
def is_wrapper(kind: type) -> bool:
    """Whether tensors of a class consist of other tensors, which are their attributes, and have no memory themselves.

    So it is for distributed, nested and quantized ones.
    """
    return any("__tensor_flatten__" in dict_of(base) for base in mro_of(kind))
