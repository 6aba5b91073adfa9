#!/usr/bin/env bash
# torchao 0.18.0, transformers 5.24.0 (torch 2.11.0): after quantization to int8 every count of bytes stays the same.
#
# quantize_(model, Int8WeightOnlyConfig()) replaces the weights of linear layers by tensors of one byte per element with
# a scale per row. An expert expects get_memory_footprint() to be about half of that in bfloat16 afterwards, or, knowing
# that the tensors still call themselves bfloat16, at least untyped_storage().nbytes() to tell the truth.
#
# Seen, for a small Llama: 35,611,776 bytes before and after, where the tensors inside now hold 18,460,552. For a weight
# of 2,048 x 512, element_size(), nbytes and untyped_storage().nbytes() all give the 2 MiB of bfloat16, though the storage
# that they speak of does not exist: the tensor wraps int8 data of 1 MiB. accelerate's sizes agree with the wrong figure.
#
# Whoever checks with the usual one-liner over parameters() whether quantization saved memory reads that it did nothing,
# and a device map for the quantized model is made for twice its size. Only the allocator sees the difference.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 torchao==0.18.0 transformers==5.24.0 accelerate==1.15.0

cat >"$work/check.py" <<'PY'
import sys

import torch
from accelerate.utils import compute_module_sizes
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8,
    vocab_size=1000,
)  # fmt: skip
model = LlamaForCausalLM(config).to(torch.bfloat16)


def held():
    """The bytes of all parameters, by the tensors inside those that are wrappers."""
    for parameter in model.parameters():
        parts = parameter.__tensor_flatten__()[0] if hasattr(parameter, "__tensor_flatten__") else []
        yield sum(getattr(parameter, part).nbytes for part in parts) if parts else parameter.nbytes


seen = []
for quantized in (False, True):
    if quantized:
        quantize_(model, Int8WeightOnlyConfig())
    seen.append((model.get_memory_footprint(), compute_module_sizes(model)[""], sum(held())))
    print("quantized:" if quantized else "bfloat16: ", "footprint %d, accelerate %d, held %d" % seen[-1])
weight = model.model.layers[0].mlp.up_proj.weight
own = (weight.element_size(), weight.nbytes >> 20, weight.untyped_storage().nbytes() >> 20, weight.qdata.nbytes >> 20)
print("one weight: element of %d bytes, nbytes %d MiB, storage %d MiB; int8 data inside: %d MiB" % own)
before, after = seen
if before[:2] != after[:2] or not 1.9 < before[2] / after[2] < 2 or own != (2, 2, 2, 1):
    sys.exit("changed: expected the first two figures to be the same before and after, and the third to halve")
PY
"$work/venv/bin/python" -W ignore "$work/check.py"
