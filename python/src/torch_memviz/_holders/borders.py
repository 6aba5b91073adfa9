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
#: Steps that need as much memory again are walked as well, at growing distances: the 1st, 2nd, 4th, 8th time, counted
#: for models and for optimizers. So is any that needs more than all before, by however little, until walks have taken
#: this part of the allowance.
SAME = 0.95
PART = 0.5
#: How near memory inside of an optimizer step is to the most that such steps have needed.
NEAR = 0.995
#: Seconds of the processor that walks may take, and the share of the time since the start that may be added.
ALLOWANCE, SHARE = 5.0, 0.05
#: The same for a rehearsal, which no GPU waits for.
REHEARSAL_ALLOWANCE = 20.0
#: Memory that is not worth a walk, in bytes.
LEAST = 1 << 20
#: Functions between which optimizers hold copies of all gradients, or of all states.
_FOREACH = "_foreach_"


class Borders:
    """Calls a function at new maxima of allocated memory, with a name: `forward`, `backward`, or `optimizer`."""

    def __init__(self, torch: ModuleType, walk: Callable[[str], object], *, is_rehearsal: bool = False) -> None:
        """Register hooks. In a rehearsal, modules of a model and operations of an optimizer are borders as well."""
        self._torch, self._walk = torch, walk
        self._is_rehearsal = is_rehearsal
        #: The most memory at all walks, at all borders, and inside of all optimizer steps.
        self._most = self._highest = self._highest_in_step = 0
        self._repeated: dict[bool, int] = {}
        #: Whether the optimizer step that is running has been walked, or counted, and whether the last border has been.
        self._is_step_walked = self._is_last_walked = False
        self._begun, self._spent = time.monotonic(), 0.0
        self._lock = threading.Lock()
        self._depth = threading.local()
        self._undo: list[Callable[[], object]] = []
        optimizer = importlib.import_module("torch.optim.optimizer")
        self._undo.append(optimizer.register_optimizer_step_pre_hook(self._begin_step).remove)
        self._undo.append(optimizer.register_optimizer_step_post_hook(self._end_step).remove)
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        self._undo.append(self._unwrap)
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

    def _begin_step(self, *_: object) -> None:
        if _is_compiling(self._torch):
            return
        self._reach("optimizer")
        self._is_step_walked = False
        if self._is_rehearsal and not self._wrapped:
            found = ((name, vars(self._torch)[name]) for name in tuple(vars(self._torch)) if name.startswith(_FOREACH))
            self._wrapped = {name: (inner, self._step_border(inner)) for name, inner in found}
            for name, (_, border) in self._wrapped.items():
                setattr(self._torch, name, border)

    def _end_step(self, *_: object) -> None:
        if _is_compiling(self._torch):
            return
        # After a step that fails, the next one does this.
        self._unwrap()
        self._reach("optimizer")

    def _unwrap(self) -> None:
        for name, (inner, border) in self._wrapped.items():
            if vars(self._torch).get(name) is border:
                setattr(self._torch, name, inner)
        self._wrapped = {}

    def _step_border(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def border(*args: Any, **kwargs: Any) -> Any:
            # Before it runs, variables hold what was allocated last.
            self._reach("optimizer", is_in_step=True)
            return inner(*args, **kwargs)

        return border

    def _enter(self, *_: object) -> None:
        if not _is_compiling(self._torch):
            self._depth.now = getattr(self._depth, "now", 0) + 1

    def _leave(self, *_: object) -> None:
        if _is_compiling(self._torch):
            return
        self._depth.now = getattr(self._depth, "now", 1) - 1
        if self._depth.now == 0 or self._is_rehearsal:
            self._reach("forward")

    def _reach(self, border: str, *, is_in_step: bool = False) -> None:
        if _is_compiling(self._torch) or not self._lock.acquire(blocking=False):
            return
        try:
            cuda = self._torch.cuda
            allocated = sum(cuda.memory_allocated(device) for device in range(cuda.device_count()))
            is_walked = allocated > LEAST and self._is_worthwhile(allocated, border, is_in_step=is_in_step)
            self._is_last_walked = is_walked
            if is_walked:
                self._most = max(self._most, allocated)
                begun = time.thread_time()
                self._walk(border)
                self._spent += time.thread_time() - begun
        except Exception:
            log.exception("what holds the memory is not recorded")
        finally:
            self._lock.release()

    def _is_worthwhile(self, allocated: int, border: str, *, is_in_step: bool) -> bool:
        """Whether a walk here tells more than those before, and does not take too long."""
        allowance = REHEARSAL_ALLOWANCE if self._is_rehearsal else ALLOWANCE
        share = SHARE * (time.monotonic() - self._begun)
        is_slow = self._spent > allowance + share
        is_inside = getattr(self._depth, "now", 0) > 0 and not is_in_step
        is_higher = allocated > self._most * (GROWTH_WHEN_SLOW if is_slow or is_inside else GROWTH)
        # Backward begins where the model has returned.
        is_new = not is_inside and not self._is_last_walked
        if is_in_step:
            is_new = not self._is_step_walked and allocated >= self._highest_in_step * NEAR
            self._highest_in_step = max(self._highest_in_step, allocated)
        is_repeated = not is_higher and is_new and allocated >= self._most * SAME
        self._is_step_walked = self._is_step_walked or (is_in_step and (is_higher or is_repeated))
        is_record = allocated > self._highest and self._spent <= PART * (allowance + share)
        if not is_inside:
            self._highest = max(self._highest, allocated)
        if is_higher:
            self._repeated.clear()
        if not is_repeated:
            return is_higher
        is_optimizer = border == "optimizer"
        times = self._repeated[is_optimizer] = self._repeated.get(is_optimizer, 0) + 1
        return is_record or (not is_slow and times & (times - 1) == 0)


def _is_compiling(torch: ModuleType) -> bool:
    """Whether `torch.compile` traces this code, which must then not depend on anything."""
    return bool(torch.compiler.is_compiling()) if hasattr(torch.compiler, "is_compiling") else False
