"""Records a training run, starting before the model is built, and prints PyTorch's counters."""

import json

import torch
from model import build, train

import torch_memviz

with torch_memviz.record("run.pickle", on_signal="SIGUSR1") as recorder:
    model, optimizer = build()
    for _ in range(5):
        with recorder.step():
            train(model, optimizer)
    named = torch_memviz.categories(model, optimizer)
    peak, end = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
print(json.dumps({"peak": peak, "end": end, "named": named, "files": [str(path) for path in recorder.files]}))
assert not torch.cuda.is_initialized() or not torch._C._cuda_isHistoryEnabled()
