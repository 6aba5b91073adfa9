"""Failed requests: PyTorch calls an observer inside each of them, before Python frees anything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType

#: Called with the device and the requested bytes.
Listener = Callable[[int, int], None]

log = logging.getLogger("torch_memviz")

#: PyTorch cannot remove an observer, so all listeners share one.
_listeners: list[Listener] = []
_attached = False


def _observe(device: int, requested: int, total: int, free: int) -> None:
    for listener in list(_listeners):
        try:
            listener(device, requested)
        except Exception:
            # If it propagated, it would replace the out-of-memory error.
            log.exception("the failed request was not recorded")


def listen(module: ModuleType, listener: Listener) -> None:
    """Call a listener for each failed request."""
    global _attached
    if not _attached:
        module._C._cuda_attach_out_of_memory_observer(_observe)
        _attached = True
    _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Stop calling a listener."""
    if listener in _listeners:
        _listeners.remove(listener)
