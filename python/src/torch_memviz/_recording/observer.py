"""Requests that fail: PyTorch calls an observer from inside each, before Python lets anything go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType

#: Gets the device and the bytes that were asked for.
Listener = Callable[[int, int], None]

log = logging.getLogger("torch_memviz")

#: PyTorch cannot let go of an observer, so there is one for all listeners.
_listeners: list[Listener] = []
_attached = False


def _observe(device: int, requested: int, total: int, free: int) -> None:
    for listener in list(_listeners):
        try:
            listener(device, requested)
        except Exception:
            # Raised on, it would take the place of the error that says that memory ran out.
            log.exception("the failed request was not recorded")


def listen(module: ModuleType, listener: Listener) -> None:
    """Have a listener called for each request that fails."""
    global _attached
    if not _attached:
        module._C._cuda_attach_out_of_memory_observer(_observe)
        _attached = True
    _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Do not call a listener any more."""
    if listener in _listeners:
        _listeners.remove(listener)
