#!/usr/bin/env bash
# accelerate 1.15.0 (torch 2.11.0): `accelerate estimate-memory` halves the memory of training for half precision.
#
# The command prints a column "Training using Adam" for each dtype. For training in mixed precision an expert expects no
# less than for float32, save for activations, which it does not count: weights, gradients and both states of Adam stay
# in float32. Its own source says so in the comments.
#
# Seen: four times the model for float32, and two times for float16 and bfloat16. For these the stages are 1 (model), 1.5
# (gradients), 2 (optimizer) and 2 (step): the column shows the largest of them, but only the step for float32 is a sum.
# A step of PyTorch under autocast holds exactly 4.
#
# The command shows the row for float16 unless told otherwise (bfloat16 is only in the function behind it). Somebody with
# a model of 7 billion parameters in float32 reads 56 GB and buys a GPU of 80; the run needs 112 before the first
# activation.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 accelerate==1.15.0

cat >"$work/check.py" <<'PY'
import sys

import torch
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from torch import nn

model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
# The command takes the model from the hub, and then does this.
size, _ = calculate_maximum_sizes(model)
shown = {dtype: max(estimate_training_usage(size, dtype).values()) / size for dtype in ("float32", "float16", "bfloat16")}

optimizer = torch.optim.Adam(model.parameters())
with torch.autocast("cpu", torch.bfloat16):
    loss = model(torch.randn(8, 1024)).float().sum()
loss.backward()
optimizer.step()
held = sum(
    parameter.nbytes + parameter.grad.nbytes + state["exp_avg"].nbytes + state["exp_avg_sq"].nbytes
    for parameter, state in optimizer.state.items()
)
print(f"shown, in sizes of the model: {shown}; held by a step in bfloat16: {held / size}")
if shown != {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0} or held / size != 4.0:
    sys.exit("changed: expected 4, 2 and 2 to be shown, and 4 to be held")
PY
"$work/venv/bin/python" -W ignore "$work/check.py"
