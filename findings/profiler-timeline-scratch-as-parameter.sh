#!/usr/bin/env bash
# torch 2.11.0: the profiler's memory timeline shows scratch memory of the optimizer as parameters.
#
# profile(profile_memory=True, record_shapes=True, with_stack=True) sorts memory into categories, which
# export_memory_timeline() writes. An expert expects the category of parameters to be flat in a training loop: nothing
# creates a parameter there.
#
# Seen, for a model with 8 MiB of parameters: with AdamW (foreach=False) the category reaches 12 MiB in each step, and
# with Adagrad 16 MiB. What is added are temporaries of the update. A fallback of the analysis takes for a parameter what
# depends on a gradient and contributes to a later one, which is true of a denominator, too, once a second step is
# recorded. With fused AdamW and with SGD the category stays at 8 MiB.
#
# The stack of categories is read as "weights are X, the rest is Y". Here X depends on the implementation of the
# optimizer, and at the peak, where one looks, weights seem to be one and a half times or twice what they are.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5

cat >"$work/check.py" <<'PY'
import json
import sys
from functools import partial

import torch
from torch import nn
from torch.optim import SGD, Adagrad, AdamW
from torch.profiler import ProfilerActivity, profile


def highest(optimizer_of):
    """The most that the category of parameters has in two steps, in MiB."""
    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 1024, bias=False))
    optimizer = optimizer_of(model.parameters())
    batch = torch.randn(256, 1024)

    def step():
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True
    ) as profiler:
        step()
        step()
    path = sys.argv[1] + "/timeline.json"
    profiler.export_memory_timeline(path, device="cpu")
    with open(path) as file:
        _, sizes = json.load(file)
    # The columns are a baseline of zero and then the categories, parameters first.
    return round(max(row[1] for row in sizes) / 2**20, 1)


optimizers = {
    "SGD": partial(SGD, lr=0.1),
    "AdamW(fused=True)": partial(AdamW, fused=True),
    "AdamW(foreach=False)": partial(AdamW, foreach=False),
    "Adagrad(foreach=False)": partial(Adagrad, foreach=False),
}
seen = {name: highest(of) for name, of in optimizers.items()}
print("8 MiB of parameters; category of parameters, in MiB:", seen)
if list(seen.values()) != [8.0, 8.0, 12.0, 16.0]:
    sys.exit("changed: expected 8, 8, 12 and 16")
PY
"$work/venv/bin/python" -W ignore "$work/check.py" "$work" 2>"$work/log" || { tail -n 1 "$work/log"; exit 1; }
