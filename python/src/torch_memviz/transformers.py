"""A callback for the Trainer of transformers."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from ._recording.recorder import Recorder, record
from ._recording.trainings import Trainings


class RecordMemory(TrainerCallback):
    """Records the first steps of a training, and every request that fails in the others.

    Make it before the model is moved to the GPU, which the Trainer does when it is made: recording begins here. The
    options are those of `torch_memviz.record`. A second training with it is recorded as `memory_run2.pickle`.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.pickle", *, steps: tuple[int, int] = (0, 4), **options: Any
    ) -> None:
        self._trainings = Trainings(record(path, steps=steps, **options).start())

    @property
    def recorder(self) -> Recorder:
        """The recorder of the last training."""
        return self._trainings.recorder

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record a second training into a file of its own."""
        self._trainings.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that a step of the optimizer begins."""
        self.recorder.step()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that it ends."""
        self.recorder.end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop recording."""
        self.recorder.stop()
