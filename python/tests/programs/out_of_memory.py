"""Runs out of memory inside a recorded block. The error must be PyTorch's own, from the line of the request."""

import os
import sys

import torch
from model import build, train

import torch_memviz

if "broken" in sys.argv:
    # For example, a full disk.
    torch.cuda.memory._snapshot = lambda: (_ for _ in ()).throw(OSError("no space left"))

try:
    with torch_memviz.record("run.pickle") as recorder:
        model, optimizer = build()
        train(model, optimizer)
        for _ in range(6 if "caught" in sys.argv else 0):
            try:
                torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                pass
        if "caught" not in sys.argv:
            kept = [torch.empty(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(1000)]  # the failing line
except torch.cuda.OutOfMemoryError as error:
    assert "Tried to allocate 256.00 MiB" in str(error)
    assert error.__context__ is None
    assert error.__cause__ is None
    lines = []
    trace = error.__traceback__
    while trace:
        lines.append((os.path.basename(trace.tb_frame.f_code.co_filename), trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    assert all(file == "out_of_memory.py" for file, _ in lines), lines
    print("caught it")
print(recorder.failures, *sorted(path.name for path in recorder.files))
