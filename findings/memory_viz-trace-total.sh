#!/usr/bin/env bash
# torch 2.11.0: the total of `python -m torch.cuda._memory_viz trace` is not a total.
#
# The command lists the allocation events of a snapshot and closes with a line "TOTAL MEM". An expert expects there what
# the listed events leave allocated: 16.0MiB for four allocations of 4 MiB, none of them freed.
#
# Seen: "TOTAL MEM: 4.0MiB", and with one more event that does not change memory, "TOTAL MEM: 5.0B". The running sum
# shares its variable with the index of the loop over events, so each turn overwrites it, and what is printed is the
# index of the last event, plus or minus its size.
#
# The line looks plausible whenever the last event is an allocation, and it is all that this report says about how much
# memory is in use: somebody who looks for an OOM reads a few MiB where the program held many.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The module needs no PyTorch around it, so the wheel is unpacked in part, and CUDA's libraries are not downloaded.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" download --quiet --no-deps --dest "$work" torch==2.11.0
python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("torch/cuda/_memory_viz.py", sys.argv[2])' \
    "$work"/torch-2.11.0-*.whl "$work"

cat >"$work/snapshot.py" <<'PY'
import pickle
import sys

MIB = 1 << 20
BASE = 0x7F0000000000


def event(action, addr, size):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": [], "time_us": 1}


blocks = [
    {"address": BASE + i * 4 * MIB, "size": 4 * MIB, "requested_size": 4 * MIB, "state": "active_allocated", "frames": []}
    for i in range(4)
]
segment = {
    "device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": 16 * MIB, "active_size": 16 * MIB,
    "requested_size": 16 * MIB, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
    "is_expandable": False, "frames": [],
    "blocks": blocks + [
        {"address": BASE + 16 * MIB, "size": 4 * MIB, "requested_size": 0, "state": "inactive", "frames": []}
    ],
}  # fmt: skip
events = [event("segment_alloc", BASE, 20 * MIB), *(event("alloc", block["address"], block["size"]) for block in blocks)]
if sys.argv[2] == "and-snapshot":
    events.append(event("snapshot", 0, 0))
with open(sys.argv[1], "wb") as file:
    pickle.dump({"segments": [segment], "device_traces": [events]}, file)
PY

total() {
    python3 "$work/snapshot.py" "$work/$1.pickle" "$1"
    "$work/venv/bin/python" "$work/torch/cuda/_memory_viz.py" trace "$work/$1.pickle" | grep '^TOTAL MEM'
}
seen="$(total four-allocations), $(total and-snapshot)"
echo "16 MiB are allocated; printed: $seen"
[ "$seen" = "TOTAL MEM: 4.0MiB, TOTAL MEM: 5.0B" ] || { echo "changed: expected 4.0MiB and 5.0B"; exit 1; }
