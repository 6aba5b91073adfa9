"""Starts recording late, twice at the same time, for some steps, and exits without stopping."""

from model import build, train

import torch_memviz

model, optimizer = build()
recorder = torch_memviz.record("run.pickle", steps=(1, 2), on_oom=False).start()
assert not recorder.is_recording
for step in range(4):
    with recorder.step():
        train(model, optimizer)
    assert recorder.is_recording == (step == 1)
    if step == 1:
        try:
            torch_memviz.record("second.pickle").start()
        except torch_memviz.RecordingError as error:
            print("refused", error)
left = torch_memviz.record("left.pickle").start()
train(model, optimizer)
