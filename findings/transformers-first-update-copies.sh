#!/usr/bin/env bash
# transformers 5.24.0 (torch 2.11.0): the first `DynamicCache.update` copies the keys and values of a prompt.
#
# A cache that is empty has nothing to append to, so an expert expects it to keep the tensors that it is given, and to
# copy from the second call on, when `torch.cat` needs a longer block.
#
# Seen: it appends to an empty tensor, which copies. Each layer of a prefill makes its keys and values twice, and since
# `use_cache` is on by default, so does each forward pass that generates nothing, such as an evaluation of perplexity: its
# cache has storage of its own, which lives as long as the output does. On a GPU that is 2 x layers x batch x tokens x
# hidden size beside the activations, and `use_cache=False` is free.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 transformers==5.24.0

cat >"$work/check.py" <<'PY'
import sys

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

keys, values = torch.randn(1, 2, 256, 64), torch.randn(1, 2, 256, 64)
cache = DynamicCache()
cached, _ = cache.update(keys, values, 0)
copies = cached.data_ptr() != keys.data_ptr()
print(f"the first update copies: {copies}")

config = LlamaConfig(
    vocab_size=64, hidden_size=128, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2
)
model = LlamaForCausalLM(config).eval()
ids = torch.randint(64, (2, 128))
with torch.no_grad():
    output = model(ids, labels=ids)
layers = output.past_key_values.layers
held = sum(layer.keys.untyped_storage().nbytes() + layer.values.untyped_storage().nbytes() for layer in layers)
wanted = 2 * 3 * 2 * 128 * 128 * 4
print(f"an evaluation keeps a cache of {held} bytes: 2 x layers x batch x tokens x hidden size x 4 = {wanted}")
sys.exit(0 if copies and held == wanted else 1)
PY
"$work/venv/bin/python" "$work/check.py"
