#!/usr/bin/env bash
# torchinfo 1.8.0 (torch 2.11.0): "Params size (MB)" omits parameters that "Total params" counts.
#
# A summary closes with the number of parameters and, a few lines below, with their size. An expert expects one to be the
# other times the size of an element.
#
# Seen: nn.MultiheadAttention(1024, 16) has "Total params: 4,198,400" and "Params size (MB): 0.00". A layer of a
# transformer with 50.38 MB of parameters shows 33.59 MB. The count adds what is left over for a module whose children
# do not account for all of its parameters; the bytes come from modules without children alone, and attention keeps its
# weights in itself and calls its one child not by its forward().
#
# A third of every transformer layer is missing from "Estimated Total Size (MB)", and so are position embeddings and
# other parameters that a module has beside its layers. The count above it is right, which lends credit to the size.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 torchinfo==1.8.0

cat >"$work/check.py" <<'PY'
import re
import sys

import torch
from torch import nn
from torchinfo import summary

tokens = torch.zeros(2, 3, 1024)
seen = []
for module, arguments in (
    (nn.MultiheadAttention(1024, 16), [tokens, tokens, tokens]),
    (nn.TransformerEncoderLayer(1024, 16, dim_feedforward=4096), [tokens]),
):
    text = str(summary(module, input_data=arguments, verbose=0))
    count = int(re.search(r"Total params: ([\d,]+)", text)[1].replace(",", ""))
    size = float(re.search(r"Params size \(MB\): ([\d.]+)", text)[1])
    megabytes = round(sum(parameter.nbytes for parameter in module.parameters()) / 1e6, 2)
    print(f"{type(module).__name__}: {count} parameters of 4 bytes, {megabytes} MB; printed: {size} MB")
    seen.append((count, size, megabytes))
if seen != [(4_198_400, 0.0, 16.79), (12_596_224, 33.59, 50.38)]:
    sys.exit("changed: expected 0.00 of 16.79 MB and 33.59 of 50.38 MB")
PY
"$work/venv/bin/python" "$work/check.py"
