"""Records in every supported way, and prints the results."""

import json
from pathlib import Path

import torch

import torch_memviz


def empty(mib: int) -> torch.Tensor:
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


@torch_memviz.record("again.pickle")
def recorded(mib: int) -> int:
    empty(mib)
    return mib


returned = [recorded(1), recorded(2)]
with torch_memviz.record("steps.pickle", report=False) as recorder:
    with recorder.step():
        empty(2)
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    during = [(step.number, step.peak) for step in recorder.steps] if release >= (2, 6) else []
    with recorder.step():
        kept = empty(6)
        empty(2)
    live = torch_memviz.peak(torch_memviz.snapshot(), at="end").devices[0].end.allocated_bytes
steps = [(step.number, step.peak, step.largest[:8]) for step in recorder.steps] if release >= (2, 6) else []
idle = torch_memviz.peak(torch_memviz.snapshot()).devices[0].end.allocated_bytes
files = [path.name for path in Path().glob("again*.pickle")]
said = {"files": files, "returned": returned, "live": live, "idle": idle, "steps": steps}
print(json.dumps({**said, "during": during[0] if during else None}))
