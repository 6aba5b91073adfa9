#!/usr/bin/env bash
# pytorch-memlab 0.3.2 (torch 2.11.0): MemReporter shows four times the memory of a float32 tensor.
#
# MemReporter lists the living tensors with the memory of their storages, rounded up to 512 bytes as the CUDA allocator
# does. An expert expects 4.00M for a float32 tensor of 1,048,576 elements.
#
# Seen: 16.00M. Storages became untyped in PyTorch 2.0 and count bytes, and the reporter still multiplies their size by
# that of an element: 2 times too much for half precision, 8 times for float64, and right only for types of one byte. The
# column "Used MEM" and the total "Used Memory" are both of this kind.
#
# On a GPU the report ends with the memory that PyTorch says is allocated, and explains a difference by "matrix alignment
# or invisible gradient buffer tensors", so that a reader finds a reason for being wrong by a factor of four.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 pytorch-memlab==0.3.2

cat >"$work/check.py" <<'PY'
import contextlib
import io
import sys

import torch
from pytorch_memlab import MemReporter

seen = {}
for dtype in (torch.int8, torch.float16, torch.float32, torch.float64):
    tensor = torch.zeros(1 << 20, dtype=dtype)
    with contextlib.redirect_stdout(io.StringIO()) as report:
        MemReporter().report()
    [line] = [line for line in report.getvalue().splitlines() if "(1048576,)" in line]
    seen[str(dtype)] = line.split()[-1]
    print(f"{dtype}: {tensor.untyped_storage().nbytes() >> 20} MiB; reported: {seen[str(dtype)]}")
    del tensor
expected = {"torch.int8": "1.00M", "torch.float16": "4.00M", "torch.float32": "16.00M", "torch.float64": "64.00M"}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
PY
"$work/venv/bin/python" -W ignore "$work/check.py"
