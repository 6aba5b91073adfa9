#!/usr/bin/env bash
# jax 0.10.2, on CPU: Compiled.memory_analysis() counts an int4 array at half the bytes that its buffer has.
#
# The analysis is made for asking, before a program runs, whether its arguments and results fit. An expert expects its
# argument_size_in_bytes to be the size of the buffers that are then passed, whatever the layout of int4 is.
#
# Seen, for 1,048,576 values of int4: the analysis says 524,288 bytes, since the compiled program declares the packed
# layout s4[1048576]{0:E(4)}. The array that the program accepts has nbytes = 1,048,576, and so has its entry in
# jax.profiler.device_memory_profile(). The same holds for the result.
#
# Weights quantized to 4 bits are the case where people count most closely. The two tools that JAX has for it, one
# before and one during the run, disagree by a factor of two about the same array, with no word about packing.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2

cat >"$work/check.py" <<'PY'
import gzip
import sys

import jax
import jax.numpy as jnp

SIZE = 1 << 20


def in_profile(size):
    """How many samples of the profile have this size, looked up as the varint that pprof writes for it."""
    number = bytearray()
    while size >= 128:
        number.append(size & 127 | 128)
        size >>= 7
    return gzip.decompress(jax.profiler.device_memory_profile()).count(bytes(number) + bytes([size]))


weights = jnp.ones((SIZE,), jnp.int4)
compiled = jax.jit(lambda array: array * 2).lower(weights).compile()
analysis = compiled.memory_analysis()
result = compiled(weights)

seen = {
    "analysis, argument": analysis.argument_size_in_bytes,
    "analysis, result": analysis.output_size_in_bytes,
    "argument.nbytes": weights.nbytes,
    "result.nbytes": result.nbytes,
    "samples of 1 MiB and of 0.5 MiB": (in_profile(SIZE), in_profile(SIZE // 2)),
}
print(seen)
if list(seen.values()) != [SIZE // 2, SIZE // 2, SIZE, SIZE, (2, 0)]:
    sys.exit("changed: expected 524288 twice from the analysis, and 1048576 from the rest")
PY
"$work/venv/bin/python" "$work/check.py"
