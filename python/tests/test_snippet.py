"""Tests `memviz record --snippet` with a real PyTorch."""

from __future__ import annotations

from pathlib import Path

import torch_memviz
from torch_memviz._binary import run

from .conftest import PROGRAMS, TorchEnvironment

TRAINING = """
import sys
sys.path.insert(0, {programs!r})
import model as program
model, optimizer = program.build()
for step in range(3):
    with torch.profiler.record_function(f"step_{{step}}"):
        program.train(model, optimizer)
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
peak = torch.cuda.max_memory_allocated()
"""


def test_the_snippet_records(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    head, _, tail = run(["record", "--snippet"]).partition("...")
    assert len(f"{head}{tail}".strip().splitlines()) <= 12
    program = head + TRAINING.format(programs=str(PROGRAMS)) + tail.split("\n", 1)[1] + "print(peak)\n"
    done = any_torch.run("-c", program, cwd=tmp_path, RANK="1")
    answer = torch_memviz.peak(tmp_path / "run_rank1.pickle")
    assert answer.devices[0].maxima.allocated_bytes == int(done.stdout)
    assert answer.input.complete_history
    assert answer.input.anomalies.total == 0
    assert len(torch_memviz.oom(tmp_path / "run_rank1_oom.pickle").devices[0].ooms) == 1
