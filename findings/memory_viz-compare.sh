#!/usr/bin/env bash
# torch 2.11.0: `python -m torch.cuda._memory_viz compare` fails for files of _dump_snapshot(), and its function sees no
# growth inside a segment.
#
# The command takes two snapshots and draws what was added. An expert expects it to take the same files as the other
# commands of the module, and a leak of 12 MiB between them to show.
#
# Seen: "TypeError: string indices must be integers", since the command passes the whole snapshot, a dictionary, to
# compare(), which iterates over a list of segments. Called from Python with the lists, compare() finds nothing: it looks
# only for segments that are in one of the snapshots, and the allocator put the new blocks in one that was there before.
#
# That is the usual case: after the first steps the allocator has its segments, and a leak fills their gaps. "Nothing
# differs" is what somebody gets who compares step 10 with step 1000.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The module needs no PyTorch around it, so the wheel is unpacked in part, and CUDA's libraries are not downloaded.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" download --quiet --no-deps --dest "$work" torch==2.11.0
python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("torch/cuda/_memory_viz.py", sys.argv[2])' \
    "$work"/torch-2.11.0-*.whl "$work"

cat >"$work/check.py" <<'PY'
import pickle
import runpy
import subprocess
import sys

MIB = 1 << 20
BASE = 0x7F0000000000
viz, work = sys.argv[1:]


def snapshot(blocks):
    """One segment of 20 MiB that holds some blocks of 4 MiB."""
    states = ["active_allocated"] * blocks + ["inactive"] * (5 - blocks)
    segment = {
        "device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": blocks * 4 * MIB, "stream": 0,
        "segment_type": "large",
        "blocks": [
            {"address": BASE + i * 4 * MIB, "size": 4 * MIB, "requested_size": 4 * MIB, "state": state,
             "frames": [{"filename": "train.py", "line": 10 + i, "name": "step"}]}
            for i, state in enumerate(states)
        ],
    }  # fmt: skip
    return {"segments": [segment], "device_traces": [[]]}


before, after = snapshot(1), snapshot(4)
for name, it in (("before", before), ("after", after)):
    with open(f"{work}/{name}.pickle", "wb") as file:
        pickle.dump(it, file)

command = [sys.executable, viz, "compare", f"{work}/before.pickle", f"{work}/after.pickle", "-o", f"{work}/out.svg"]
error = subprocess.run(command, capture_output=True, text=True).stderr.strip().splitlines()[-1]
compare = runpy.run_path(viz)["compare"]
# Its last argument draws the lines: here they are returned instead.
lines = compare(before["segments"], after["segments"], format_flamegraph=lambda lines: lines)
print(f"the command: {error}")
print(f"the function, 12 MiB later: {lines!r}")
if not error.startswith("TypeError: string indices must be integers") or lines != "":
    sys.exit("changed: expected a TypeError from the command, and no difference from the function")
PY
"$work/venv/bin/python" "$work/check.py" "$work/torch/cuda/_memory_viz.py" "$work"
