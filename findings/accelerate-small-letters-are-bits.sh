#!/usr/bin/env bash
# accelerate 1.15.0 (torch 2.11.0): max_memory={"cpu": "30mb"} means 30 million bits.
#
# A limit of memory is given to accelerate as a text with a unit. Its units are compared without regard to case ("10gib"
# is "10GiB"), so an expert expects "10gb" to be the same as "10GB", or to be refused.
#
# Seen: convert_file_size_to_int("10GB") is 10,000,000,000 and ("10gb") 1,250,000,000, since a last letter b in lower case
# stands for bits. The same text means bytes to huggingface_hub 2.4.0, the next library in the stack (max_shard_size), which
# in turn refuses "10GiB".
#
# An eighth of the memory that was allowed is used, with nothing said. Here a model of 40 MB for which "30MB" of the CPU
# are allowed has 6 of its 10 layers there; with "30mb" none fits, and all of it goes to the disk.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 accelerate==1.15.0 huggingface-hub==2.4.0

cat >"$work/check.py" <<'PY'
import collections
import sys

from accelerate import infer_auto_device_map
from accelerate.utils import convert_file_size_to_int
from huggingface_hub.serialization._base import parse_size_to_int
from torch import nn

texts = ("10GB", "10gb", "10Gb", "10gib")
sizes = [convert_file_size_to_int(text) for text in texts]
print("accelerate:", dict(zip(texts, sizes)))
hub = [parse_size_to_int(text) for text in texts[:3]]
print("huggingface_hub:", dict(zip(texts, hub)))

model = nn.Sequential(*(nn.Linear(1000, 1000, bias=False) for _ in range(10)))
places = []
for limit in ("30MB", "30mb"):
    placed = infer_auto_device_map(model, max_memory={"cpu": limit})
    # A name stands for all layers below it.
    counts = collections.Counter(placed.get("", placed.get(str(i))) for i in range(10))
    places.append(dict(counts))
    print(f"{limit} of the CPU:", places[-1])
if sizes != [10**10, 10**10 // 8, 10**10 // 8, 10 << 30] or hub != [10**10] * 3 or places[0] == places[1]:
    sys.exit("changed: expected an eighth for 10gb and 10Gb from accelerate only")
PY
"$work/venv/bin/python" -W ignore "$work/check.py"
