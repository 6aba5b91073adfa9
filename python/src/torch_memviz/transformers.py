"""A callback for the Trainer of transformers."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from ._recording.recorder import record


class RecordMemory(TrainerCallback):
    """Records the first steps of a training, and every request that fails in the others.

    Make it before the model is moved to the GPU, which the Trainer does when it is made: recording begins here. The
    options are those of `torch_memviz.record`.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.pickle", *, steps: tuple[int, int] = (0, 4), **options: Any
    ) -> None:
        self.recorder = record(path, steps=steps, **options).start()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that a step of the optimizer begins."""
        self.recorder.step()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that it ends."""
        self.recorder.end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop recording."""
        self.recorder.stop()
