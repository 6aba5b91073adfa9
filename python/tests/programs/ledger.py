"""Records samples of the device with a recording, and prints PyTorch's counters."""

import json
import sys

import torch
from model import build, train

import torch_memviz
from torch_memviz._recording import ledger

if "broken" in sys.argv:
    ledger.Ledger.take = lambda self, at: (_ for _ in ()).throw(OSError("no driver"))

said = {}
try:
    with torch_memviz.record("run.pickle", ledger="without" not in sys.argv) as recorder:
        said["start"] = torch.cuda.mem_get_info()[0]
        model, optimizer = build()
        recorder.point("built")
        said["point"] = [torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()]
        pinned = torch.empty(1_000_000, pin_memory=True)
        for _ in range(2):
            with recorder.step():
                train(model, optimizer)
        said["end"] = torch.cuda.mem_get_info()[0]
        said["reserved"] = torch.cuda.memory_reserved()
        said["allocated"] = torch.cuda.memory_allocated()
        said["stats"] = torch.cuda.memory_stats()
        said["host"] = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else None
        if "oom" in sys.argv:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
print(json.dumps(said))
