#!/usr/bin/env bash
# deepspeed 0.19.8 (torch 2.11.0): the ZeRO estimates of a model on the meta device count one parameter of it.
#
# estimate_zero2_model_states_mem_needs_all_live and its like for ZeRO-3 tell from a model what its states will take. An
# expert expects that a model on the meta device will do: it has all shapes, and that is the way to ask about a model
# that does not fit into memory, which is when people ask.
#
# Seen, for ten linear layers: "Model with 10M total params" when they are allocated, "Model with 0M total params" on
# meta, and 0.00GB of memory. To count a shared parameter once, the count is kept by data_ptr(), which is 0 for every
# meta tensor, so what is left is the last parameter: here a bias of 1,024 elements.
#
# There is neither a warning nor an error. With the head of a language model as its last parameter, a model of 2.2 billion
# parameters is "524M", and the table shows 9.77GB per GPU, which looks plausible and is a quarter of the truth.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 setuptools==80.9.0 wheel==0.45.1
# It is a source package, whose build imports PyTorch; its kernels are not built.
DS_BUILD_OPS=0 "$work/venv/bin/pip" install --quiet --no-build-isolation deepspeed==0.19.8

cat >"$work/check.py" <<'PY'
import contextlib
import io
import re
import sys

import torch
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_live as zero3
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs_all_live as zero2
from torch import nn

seen = []
for device in ("cpu", "meta"):
    with torch.device(device):
        model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(10)))
    for estimate in (zero2, zero3):
        with contextlib.redirect_stdout(io.StringIO()) as table:
            estimate(model, num_gpus_per_node=1, num_nodes=1)
        total = re.search(r"Model with (\d+M) total params", table.getvalue())[1]
        # The last row is for states that all stay on the GPU.
        gpu = table.getvalue().splitlines()[-1].split("|")[1].strip()
        print(f"{device}, {estimate.__name__[9:14]}: {total} parameters, {gpu} per GPU")
        seen.append((total, gpu))
if seen != [("10M", "0.20GB"), ("10M", "0.18GB"), ("0M", "0.00GB"), ("0M", "0.00GB")]:
    sys.exit("changed: expected 10M parameters on the CPU, and 0M on meta")
PY
"$work/venv/bin/python" -W ignore "$work/check.py" 2>"$work/log" || { grep -v '^\[' "$work/log" | tail -n 1; exit 1; }
