"""A callback for the Trainer of Hugging Face Transformers."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from ._recording.recorder import Recorder, record
from ._recording.trainings import Trainings


class RecordMemory(TrainerCallback):
    """Records the first steps of a training run, and every failed request after them.

    Recording starts when you create this callback. Create it before the Trainer, whose constructor moves the model to
    the GPU. The options are those of `torch_memviz.record`. A second training run with the same callback is recorded as
    `memory_run2.pickle`.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.pickle", *, steps: tuple[int, int] = (0, 4), **options: Any
    ) -> None:
        self._trainings = Trainings(record(path, steps=steps, **options).start())

    @property
    def recorder(self) -> Recorder:
        """The recorder of the latest training run."""
        return self._trainings.recorder

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record each further training run into a separate file."""
        self._trainings.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the start of an optimizer step."""
        self.recorder.step()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark the end of an optimizer step."""
        self.recorder.end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop recording."""
        self.recorder.stop()
