"""Converts JSON to the dataclasses of an answer."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import types
import typing
from typing import Any

from ._binary import MemvizError

#: Marks the field of a dataclass that holds all keys without a field.
REST = {"rest": True}


def decode(kind: Any, value: Any, where: str = "answer") -> Any:
    """Convert a JSON value to this type. Keys that the type does not have are from a later version and are omitted.

    Raises:
        MemvizError: if the value does not have this type.
    """
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        return decode(_option(typing.get_args(kind), value, where), value, where)
    if origin is tuple and isinstance(value, list):
        items = typing.get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            items = (items[0],) * len(value)
        if len(items) == len(value):
            return tuple(decode(items[at], item, f"{where}[{at}]") for at, item in enumerate(value))
    elif origin is dict and isinstance(value, dict):
        item = typing.get_args(kind)[1]
        return {key: decode(item, held, f"{where}.{key}") for key, held in value.items()}
    elif origin is typing.Literal:
        # A value added by a later version is not an error.
        if isinstance(value, str):
            return value
    elif kind is float and isinstance(value, int | float):
        return float(value)
    elif kind in (str, int, bool, types.NoneType) and type(value) is kind:
        return value
    raise MemvizError(f"{where}: expected {_name(kind)}, found {type(value).__name__}")


@functools.cache
def _types(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields."""
    return typing.get_type_hints(kind)


@functools.cache
def _required(kind: Any) -> frozenset[str]:
    required = (field for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING)
    return frozenset(field.name for field in required if not field.metadata)


@functools.cache
def _rest(kind: Any) -> str | None:
    """Return the field that holds all keys without a field, if there is one."""
    return next((field.name for field in dataclasses.fields(kind) if field.metadata == REST), None)


def _object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise MemvizError(f"{where}: expected an object, found {type(value).__name__}")
    value = {f"{key}_" if keyword.iskeyword(key) else key: held for key, held in value.items()}
    missing = sorted(_required(kind) - value.keys())
    if missing:
        raise MemvizError(f"{where}: expected {missing[0]!r} in it, found {', '.join(value) or 'nothing'}")
    known = _types(kind)
    rest = _rest(kind)
    if rest is not None:
        own = known.keys() - {rest}
        value = {
            **{key: held for key, held in value.items() if key in own},
            rest: {key: held for key, held in value.items() if key not in own},
        }
    return kind(**{key: decode(known[key], held, f"{where}.{key}") for key, held in value.items() if key in known})


def _option(options: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return which of several types a value has."""
    if value is None and types.NoneType in options:
        return types.NoneType
    options = tuple(option for option in options if option is not types.NoneType)
    if len(options) == 1:
        return options[0]
    fitting = [option for option in options if isinstance(value, dict) and _fits(option, value)]
    if not fitting:
        raise MemvizError(f"{where}: expected one of {', '.join(map(_name, options))}, found none of them")
    # The type with the most required keys is the most specific.
    return max(fitting, key=lambda option: len(_required(option)))


def _fits(kind: Any, value: dict[str, Any]) -> bool:
    """Whether an object has the keys that a type requires, with the required values."""
    value = {f"{key}_" if keyword.iskeyword(key) else key: held for key, held in value.items()}
    known = _types(kind)
    tags = {key: typing.get_args(held) for key, held in known.items() if typing.get_origin(held) is typing.Literal}
    told = all(value.get(key) in tag for key, tag in tags.items() if key in _required(kind) and len(tag) == 1)
    return told and _required(kind) <= value.keys()


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
