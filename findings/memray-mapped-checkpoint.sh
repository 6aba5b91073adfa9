#!/usr/bin/env bash
# memray 1.20.0, safetensors 0.8.0: opening a checkpoint counts as allocating all of it.
#
# safetensors maps the file and reads only the tensors that are asked for. An expert expects memray, whose report speaks
# of memory allocated and of a peak, to show about what was read, since mapped pages of a file that nobody touched take
# no memory.
#
# Seen, for a file of 256 MiB from which one tensor of 1 KiB is read: a peak of 262 MiB, 256 MiB of it in the line with
# safe_open. The resident memory of the same process never exceeds 55 MiB. memray follows mmap as an allocator, and
# it makes no difference whether the mapping is of a file, read-only and shared.
#
# People profile host memory for the same reason as GPU memory: a rank dies while it loads its weights. Here each of the
# 8 ranks of a node that open all shards "allocates" the whole checkpoint, and the peak is where no memory is used. A
# limit in a test (pytest-memray) fails for it, too.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet memray==1.20.0 safetensors==0.8.0 numpy==2.3.5

cat >"$work/write.py" <<'PY'
import sys

import numpy as np
from safetensors.numpy import save_file

save_file({"big": np.zeros(256 << 20, np.uint8), "small": np.zeros(1 << 10, np.uint8)}, sys.argv[1])
PY
cat >"$work/load.py" <<'PY'
import resource
import sys

from safetensors import safe_open

with safe_open(sys.argv[1], "np") as file:
    assert file.get_tensor("small").nbytes == 1 << 10
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
PY
cat >"$work/check.py" <<'PY'
import sys

from memray import FileReader

MIB = 1 << 20
path, resident = sys.argv[1], int(sys.argv[2])
reader = FileReader(path)
records = list(reader.get_high_watermark_allocation_records(merge_threads=True))
largest = max(records, key=lambda record: record.size)
print(
    f"peak {reader.metadata.peak_memory >> 20} MiB, of which {largest.size >> 20} MiB by {largest.stack_trace()[0][0]};"
    f" resident at most {resident} MiB"
)
if reader.metadata.peak_memory < 256 * MIB or largest.size < 256 * MIB or resident > 200:
    sys.exit("changed: expected a peak above 256 MiB, and far less of it resident")
PY
"$work/venv/bin/python" "$work/write.py" "$work/model.safetensors"
resident=$("$work/venv/bin/python" -m memray run -q -o "$work/load.bin" "$work/load.py" "$work/model.safetensors")
"$work/venv/bin/python" "$work/check.py" "$work/load.bin" "$resident"
