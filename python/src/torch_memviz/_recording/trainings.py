"""The recordings of a callback: one for each training that it is used for."""

from __future__ import annotations

import logging

from .recorder import Recorder, RecordingError

log = logging.getLogger("torch_memviz")

#: Trainings that one callback records. What looks for the largest batch by trial makes many of them.
MOST = 4


class Trainings:
    """The recorder of the training that runs."""

    def __init__(self, recorder: Recorder) -> None:
        """Begin with the recorder of the first one."""
        self.recorder = recorder
        self._count = 1

    def begin(self) -> Recorder:
        """Have a training begin; give its recorder, which is another one for each."""
        if self.recorder.steps_begun == 0:
            return self.recorder
        # An error has ended the last one, of which nobody was told.
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
