"""A notebook cell that starts recording, runs out of memory and runs again, without notifying the recorder."""

from pathlib import Path

import torch

import torch_memviz


def cell(size: int) -> None:
    torch_memviz.record("run.pickle", report=False).start()
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        print("out of memory:", files())


def files() -> list[str]:
    return sorted(path.name for path in Path().glob("*.pickle"))


cell(1 << 40)
torch_memviz.stop()
print("stopped:", files())
assert torch_memviz.current() is None
assert torch_memviz.stop() == []
cell(1 << 40)
print("again:", files())
try:
    torch_memviz.record("other.pickle").start()
except torch_memviz.RecordingError as error:
    print("refused:", str(error).partition(", ")[2])
cell(1 << 20)
torch_memviz.stop()
print("smaller:", files())
