"""Instants at which a walk tells much: when memory reaches a new maximum around forward, backward and the optimizer."""

from __future__ import annotations

import functools
import importlib
import logging
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

log = logging.getLogger("torch_memviz")

#: How much more memory than at all walks makes another one worthwhile: around a model, and inside of it or once walks
#: have taken too long.
GROWTH, GROWTH_WHEN_SLOW = 1.01, 1.25
#: Steps that need as much memory again are walked as well, at growing distances: the 1st, 2nd, 4th, 8th time.
SAME = 0.95
#: Seconds of the processor that walks may take, and the share of the time since the start that may be added.
ALLOWANCE, SHARE = 5.0, 0.05
#: The same for a rehearsal, which no GPU waits for.
REHEARSAL_ALLOWANCE = 20.0
#: Memory that is not worth a walk, in bytes.
LEAST = 1 << 20


class Borders:
    """Calls a function at new maxima of allocated memory, with a name: `forward`, `backward`, or `optimizer`."""

    def __init__(self, torch: ModuleType, walk: Callable[[str], object], *, is_rehearsal: bool = False) -> None:
        """Register hooks. In a rehearsal, modules inside of a model are borders as well."""
        self._torch, self._walk = torch, walk
        self._is_rehearsal = is_rehearsal
        self._most = 0
        self._repeated = 0
        self._begun, self._spent = time.monotonic(), 0.0
        self._lock = threading.Lock()
        self._depth = threading.local()
        self._undo: list[Callable[[], object]] = []
        optimizer = importlib.import_module("torch.optim.optimizer")
        for register in (optimizer.register_optimizer_step_pre_hook, optimizer.register_optimizer_step_post_hook):
            self._undo.append(register(lambda *_: self._reach("optimizer")).remove)
        modules = importlib.import_module("torch.nn.modules.module")
        self._undo.append(modules.register_module_forward_pre_hook(self._enter).remove)
        self._undo.append(modules.register_module_forward_hook(self._leave, always_call=True).remove)
        self._wrap_backward()

    def close(self) -> None:
        """Remove all hooks."""
        while self._undo:
            self._undo.pop()()

    def _wrap_backward(self) -> None:
        autograd = self._torch.autograd
        inner = autograd.backward

        @functools.wraps(inner)
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._reach("backward")
            return inner(*args, **kwargs)

        def undo() -> None:
            # Another program may have wrapped it since.
            if autograd.backward is backward:
                autograd.backward = inner

        autograd.backward = backward
        self._undo.append(undo)

    def _enter(self, *_: object) -> None:
        if not _is_compiling(self._torch):
            self._depth.now = getattr(self._depth, "now", 0) + 1

    def _leave(self, *_: object) -> None:
        if _is_compiling(self._torch):
            return
        self._depth.now = getattr(self._depth, "now", 1) - 1
        if self._depth.now == 0 or self._is_rehearsal:
            self._reach("forward")

    def _reach(self, border: str) -> None:
        if _is_compiling(self._torch) or not self._lock.acquire(blocking=False):
            return
        try:
            cuda = self._torch.cuda
            allocated = sum(cuda.memory_allocated(device) for device in range(cuda.device_count()))
            allowance = REHEARSAL_ALLOWANCE if self._is_rehearsal else ALLOWANCE
            is_slow = self._spent > allowance + SHARE * (time.monotonic() - self._begun)
            is_inside = getattr(self._depth, "now", 0) > 0
            is_higher = allocated > self._most * (GROWTH_WHEN_SLOW if is_slow or is_inside else GROWTH)
            is_repeated = not is_higher and not is_inside and allocated >= self._most * SAME
            self._repeated = 0 if is_higher else self._repeated + is_repeated
            is_next = is_repeated and not is_slow and self._repeated & (self._repeated - 1) == 0
            if allocated > LEAST and (is_higher or is_next):
                self._most = max(self._most, allocated)
                begun = time.thread_time()
                self._walk(border)
                self._spent += time.thread_time() - begun
        except Exception:
            log.exception("what holds the memory is not recorded")
        finally:
            self._lock.release()


def _is_compiling(torch: ModuleType) -> bool:
    """Whether `torch.compile` traces this code, which must then not depend on anything."""
    return bool(torch.compiler.is_compiling()) if hasattr(torch.compiler, "is_compiling") else False
