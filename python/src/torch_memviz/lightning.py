"""A callback for the Trainer of Lightning."""

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
    """Records the first batches of a training, and every request that fails in the others.

    Recording begins before Lightning moves the model to the GPU. The options are those of `torch_memviz.record`, the
    steps being batches. A second training with it is recorded as `memory_run2.pickle`.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.pickle", *, steps: tuple[int, int] = (0, 4), **options: Any
    ) -> None:
        super().__init__()
        self._trainings = Trainings(record(path, steps=steps, **options))
        self._has_begun = False

    @property
    def recorder(self) -> Recorder:
        """The recorder of the last training."""
        return self._trainings.recorder

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin with the training."""
        if stage == "fit" and not self._has_begun:
            self._has_begun = True
            self.recorder.start()
        elif stage == "fit":
            self._trainings.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Say that a batch begins."""
        self.recorder.step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Say that it ends."""
        self.recorder.end_step()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop recording: what was raised goes on."""
        self.recorder.stop(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop recording."""
        self.recorder.stop()
