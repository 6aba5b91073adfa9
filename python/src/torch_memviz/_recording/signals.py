"""Writes the recording so far when a signal arrives."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

log = logging.getLogger("torch_memviz")

#: Signals reserved for programs. All others also have their usual effect.
FREE = ("SIGUSR1", "SIGUSR2")


def named(name: str) -> signal.Signals:
    """Return the signal with this name.

    Raises:
        ValueError: if this system does not have the signal.
    """
    number = getattr(signal, name, None)
    if not isinstance(number, signal.Signals):
        raise ValueError(f"expected the name of a signal such as SIGUSR1, found {name!r}")
    return number


class OnSignal:
    """Calls a function when a signal arrives, until it is closed."""

    def __init__(self, number: signal.Signals, action: Callable[[], None]) -> None:
        """Install the handler."""
        self.number, self.action = number, action
        self.before: Any = None
        self.is_open = threading.current_thread() is threading.main_thread()
        if self.is_open:
            self.before = signal.signal(number, self.handle)
        else:
            log.warning("%s does nothing: only the main thread can listen for signals", number.name)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Call the function, and then the previous handler."""
        self.action()
        if callable(self.before):
            self.before(number, frame)
        elif self.before == signal.SIG_DFL and self.number.name not in FREE:
            self.close()
            os.kill(os.getpid(), number)

    def leave(self) -> None:
        """Remove the handler in a forked process, such as a DataLoader worker.

        The signal is often sent to all processes of a job. It must not terminate this process.
        """
        if self.is_open and self.before == signal.SIG_DFL and self.number.name in FREE:
            self.before = signal.SIG_IGN
        self.close()

    def close(self) -> None:
        """Restore the previous handler."""
        if self.is_open:
            signal.signal(self.number, self.before if self.before is not None else signal.SIG_DFL)
            self.is_open = False
