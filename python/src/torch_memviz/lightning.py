"""A callback for Lightning's Trainer."""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from ._recording.recorder import Recorder, record
from ._recording.trainings import Trainings


class RecordMemory(Callback):
    """Records the first batches of a training run, and every failed request after them.

    Recording starts before Lightning moves the model to the GPU. The options are those of `torch_memviz.record`; each
    batch is a step. A second training run with the same callback is recorded as `memory_run2.pickle`.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.pickle", *, steps: tuple[int, int] = (0, 4), **options: Any
    ) -> None:
        super().__init__()
        self._trainings = Trainings(record(path, steps=steps, **options))
        self._has_begun = False

    @property
    def recorder(self) -> Recorder:
        """The recorder of the latest training run."""
        return self._trainings.recorder

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start recording when training starts."""
        if stage == "fit" and not self._has_begun:
            self._has_begun = True
            self.recorder.start()
        elif stage == "fit":
            self._trainings.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Mark the start of a batch."""
        self.recorder.step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Mark the end of a batch."""
        self.recorder.end_step()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop recording; the exception propagates."""
        self.recorder.stop(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop recording."""
        self.recorder.stop()
