"""The recordings of a callback: one for each training run."""

from __future__ import annotations

import logging

from .recorder import Recorder, RecordingError

log = logging.getLogger("torch_memviz")

#: Maximum number of training runs that one callback records. A search for the largest batch takes many of them.
MOST = 4


class Trainings:
    """Holds the recorder of the current training run."""

    def __init__(self, recorder: Recorder) -> None:
        """Start with the recorder of the first training run."""
        self.recorder = recorder
        self._count = 1

    def begin(self) -> Recorder:
        """Start a training run, and return its own recorder."""
        if self.recorder.steps_begun == 0:
            return self.recorder
        # The last run ended with an error, and the callback was not notified.
        self.recorder.stop()
        self._count += 1
        if self._count > MOST:
            log.warning("training %d is not recorded: a callback records the first %d", self._count, MOST)
            return self.recorder
        following = self.recorder.again()
        try:
            self.recorder = following.start()
        except RecordingError as error:
            log.warning("training %d is not recorded: %s", self._count, error)
        else:
            log.warning("training %d is recorded as %s", self._count, following.path)
        return self.recorder
