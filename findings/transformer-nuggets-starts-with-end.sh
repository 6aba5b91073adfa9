#!/usr/bin/env bash
# transformer-nuggets 0.0.4: the memory timeline of a snapshot starts with what is live at its end, and counts it twice.
#
# A snapshot has the blocks that are live when it is written, and the history that led there. An expert expects a timeline of a
# history from the start of a program to start at zero: four blocks of 4 MiB that are never freed peak at 16 MiB.
#
# Seen: the timeline starts at 16 MiB, marked as "preexisting", and peaks at 32 MiB. All live blocks of the dump are taken for older
# than the history, although the history allocates them.
#
# A model's parameters, gradients and optimizer states are live at the end of nearly every recording, so the peak is too high by
# about their size: somebody may look for twice the memory that the program needs.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps transformer-nuggets==0.0.4

# The module needs nothing besides Python; other modules of the package need PyTorch.
cat >"$work/check.py" <<'PY'
import runpy
import sysconfig

MIB = 1 << 20
BASE = 0x7F0000000000
frames = [{"filename": "train.py", "line": 10, "name": "step"}]
entries = [{"action": "segment_alloc", "addr": BASE, "size": 20 * MIB, "stream": 0, "time_us": 0, "frames": frames}]
blocks = []
for number in range(4):
    addr = BASE + number * 4 * MIB
    entries.append({"action": "alloc", "addr": addr, "size": 4 * MIB, "stream": 0, "time_us": number, "frames": frames})
    blocks.append({"address": addr, "size": 4 * MIB, "requested_size": 4 * MIB, "state": "active_allocated", "frames": frames})
blocks.append({"address": BASE + 16 * MIB, "size": 4 * MIB, "requested_size": 0, "state": "inactive", "frames": []})
segment = {"device": 0, "address": BASE, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks}

viz = runpy.run_path(sysconfig.get_path("purelib") + "/transformer_nuggets/utils/memory_viz.py")
timeline = viz["process_snapshot"]({"segments": [segment], "device_traces": [entries]})[0]
start, peak = timeline[0]["a"] // MIB, max(point["a"] for point in timeline) // MIB
print(f"start: {start} MiB, peak: {peak} MiB")
raise SystemExit(0 if (start, peak) == (16, 32) else "the behavior changed")
PY
"$work/venv/bin/python" "$work/check.py"
