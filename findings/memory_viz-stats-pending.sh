#!/usr/bin/env bash
# torch 2.11.0: `python -m torch.cuda._memory_viz stats` counts as free what no stream may use yet.
#
# A tensor that another stream uses (record_stream) is not free when it is freed: until that stream's work is done, its
# block is in the state active_pending_free, and no request can have it. PyTorch counts it as active, not as free. An
# expert expects it in the report of free memory as active, or on a line of its own.
#
# Seen, for a segment of 40 MiB with 4 MiB allocated, 32 MiB pending and 4 MiB inactive: "36.0MiB (0.0% internal) free" and
# "total_free: 36.0MiB (0.0% internal)". The drawing of the segment shows the pending blocks as gaps.
#
# The report is meant for questions about fragmentation: why does a request of 20 MiB fail where 36 are free? If pending
# blocks, of tensors that went from one stream to another, are the answer, this report calls them the opposite.
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
at = base = 0x7F0000000000
blocks = []
for size, state in ((4, "active_allocated"), (32, "active_pending_free"), (4, "inactive")):
    requested = 0 if state == "inactive" else size * MIB
    blocks.append({"address": at, "size": size * MIB, "requested_size": requested, "state": state, "frames": []})
    at += size * MIB
segment = {
    "device": 0, "address": base, "total_size": 40 * MIB, "allocated_size": 4 * MIB, "active_size": 36 * MIB,
    "requested_size": 4 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks,
}  # fmt: skip
with open(sys.argv[1], "wb") as file:
    pickle.dump({"segments": [segment], "device_traces": [[]]}, file)
PY
python3 "$work/snapshot.py" "$work/snapshot.pickle"
"$work/venv/bin/python" "$work/torch/cuda/_memory_viz.py" stats "$work/snapshot.pickle" >"$work/report"
seen=$(grep -E '^(\[|total_free)' "$work/report")
echo "4 MiB allocated, 32 pending, 4 inactive:"
echo "$seen"
[ "$seen" = $'[a ] 40.0MiB allocated, 36.0MiB (0.0% internal) free\ntotal_free: 36.0MiB (0.0% internal)' ] ||
    { echo "changed: expected 36.0MiB to be free"; exit 1; }
