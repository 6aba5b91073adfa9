#!/usr/bin/env bash
# ptmem 0.1.2: "Before recording" is not zero for a program that is recorded from its start.
#
# The summary has lines for memory before the recording, the peak and the end. An expert expects zero before the first entry of a
# history that starts with an empty allocator.
#
# Seen: 496 KiB for a thousand tensors of 4 bytes that stay. Entries have requested sizes, and blocks of the dump those of the
# allocator, at least 512 bytes; ptmem subtracts the sum of the first from the sum of the second, and takes the rest for older
# memory. It is what rounding adds at the end.
#
# The same amount is added to every instant, so the peak is neither PyTorch's max_memory_allocated nor the requested peak, and a
# recording that is complete looks as if it had started late.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet ptmem==0.1.2

cat >"$work/make.py" <<'PY'
import pickle
import sys

BASE, SIZE, COUNT = 0x7F0000000000, 2 << 20, 1000
frames = [{"filename": "train.py", "line": 10, "name": "step"}]
entries = [{"action": "segment_alloc", "addr": BASE, "size": SIZE, "stream": 0, "time_us": 0, "frames": frames}]
blocks = []
for number in range(COUNT):
    addr = BASE + 512 * number
    entries.append({"action": "alloc", "addr": addr, "size": 4, "stream": 0, "time_us": number, "frames": frames})
    blocks.append({"address": addr, "size": 512, "requested_size": 4, "state": "active_allocated", "frames": frames})
rest = {"address": BASE + 512 * COUNT, "size": SIZE - 512 * COUNT, "requested_size": 0, "state": "inactive", "frames": []}
segment = {
    "device": 0, "address": BASE, "total_size": SIZE, "allocated_size": 512 * COUNT, "active_size": 512 * COUNT, "stream": 0,
    "segment_type": "small", "blocks": [*blocks, rest],
}  # fmt: skip
with open(sys.argv[1], "wb") as file:
    pickle.dump({"segments": [segment], "device_traces": [entries]}, file)
PY
"$work/venv/bin/python" "$work/make.py" "$work/run.pickle"
lines=$("$work/venv/bin/ptmem" --summary "$work/run.pickle" | grep -E 'Before recording|Peak:|Final')
echo "$lines"
grep -q 'Before recording (initial): *496.1KB' <<<"$lines" || { echo 'the behavior changed' >&2; exit 1; }
