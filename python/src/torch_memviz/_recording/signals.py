"""A signal that asks for what was recorded so far."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

log = logging.getLogger("torch_memviz")

#: Signals that are there for programs to use; others go on to do what they do without us.
FREE = ("SIGUSR1", "SIGUSR2")


def named(name: str) -> signal.Signals:
    """Give the signal of this name.

    Raises:
        ValueError: when there is no such signal on this system.
    """
    number = getattr(signal, name, None)
    if not isinstance(number, signal.Signals):
        raise ValueError(f"expected the name of a signal such as SIGUSR1, found {name!r}")
    return number


class OnSignal:
    """Calls a function when a signal comes, until it is closed."""

    def __init__(self, number: signal.Signals, action: Callable[[], None]) -> None:
        """Take the signal over."""
        self.number, self.action = number, action
        self.before: Any = None
        self.is_open = threading.current_thread() is threading.main_thread()
        if self.is_open:
            self.before = signal.signal(number, self.handle)
        else:
            log.warning("%s does nothing: only the main thread can listen to signals", number.name)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Do what was asked for, and then what the signal did before."""
        self.action()
        if callable(self.before):
            self.before(number, frame)
        elif self.before == signal.SIG_DFL and self.number.name not in FREE:
            self.close()
            os.kill(os.getpid(), number)

    def leave(self) -> None:
        """Do nothing in a process that was forked, a worker of a DataLoader for instance.

        Whoever asks a job for a recording signals all of its processes; the signal must not end this one.
        """
        if self.is_open and self.before == signal.SIG_DFL and self.number.name in FREE:
            self.before = signal.SIG_IGN
        self.close()

    def close(self) -> None:
        """Give the signal back."""
        if self.is_open:
            signal.signal(self.number, self.before if self.before is not None else signal.SIG_DFL)
            self.is_open = False
