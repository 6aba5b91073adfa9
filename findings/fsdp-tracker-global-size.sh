#!/usr/bin/env bash
# torch 2.11.0: FSDPMemTracker counts tensors of the first optimizer step at their size over all ranks.
#
# The tracker of torch.distributed._tools tells the memory of one rank without a GPU, sorted by kind; its peak decides
# whether a configuration fits. An expert expects the peak of FSDP2 with small shards where layers are gathered, in
# forward or backward, and the optimizer step to add two shards for Adam.
#
# Seen, for a model of 16 MiB over 8 ranks (2 MiB of shards): up to the end of backward the peak is 20 MiB, and so it is
# by the allocations of the whole iteration. The first step of AdamW raises the tracker's peak to 72.25 MiB (fused) or
# 58.25 MiB (foreach); by the allocations, 8 to 10 MiB are held there. Temporaries of the step are DTensors, whose storage
# claims the bytes of the whole tensor, and so they are counted.
#
# That is as much as the model takes with no sharding at all, 64 MiB with gradients and states, and it hardly falls with
# more ranks: of 64 ranks, 65.25 and 49.50 MiB are told. A plan that would fit fails in the tracker, and its table puts the
# peak into "OptState", away from the gathered layers that matter.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5

cat >"$work/check.py" <<'PY'
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore

MIB = 1 << 20
# Collectives of this process group do nothing: one rank of eight runs alone.
dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
mesh = dist.init_device_mesh("cpu", (8,))
batch = torch.randn(64, 1024)


def prepared(options):
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), **options)


def tracked(options):
    model, optimizer = prepared(options)
    tracker = FSDPMemTracker(model, optimizer)
    tracker.track_inputs((batch,))
    peaks = []
    with tracker:
        for part in (lambda: model(batch).sum().backward(), optimizer.step):
            part()
            [device] = tracker.get_tracker_snapshot("peak").values()
            peaks.append(device["Total"] / MIB)
    return peaks


def allocated(options):
    """The peak by the profiler, which starts from zero: shards and batch were there before."""
    model, optimizer = prepared(options)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model(batch).sum().backward()
        optimizer.step()
    events = (event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]")
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / MIB + 2.25


seen = []
for name in ("fused", "foreach"):
    before, after = tracked({name: True})
    real = allocated({name: True})
    seen.append((round(before, 2), round(after, 2), 19 < real < 21))
    print(f"{name}: peak by the tracker before the step {before:.2f}, after it {after:.2f}; allocated {real:.2f} MiB")
if seen != [(20.0, 72.25, True), (20.0, 58.25, True)]:
    sys.exit("changed: expected peaks of 72.25 and 58.25 MiB where about 20 MiB are allocated")
PY
"$work/venv/bin/python" -W ignore "$work/check.py" 2>"$work/log" || { tail -n 1 "$work/log"; exit 1; }
