#!/usr/bin/env bash
# jax 0.10.2, on CPU: arrays that a jitted function captures are in no count of memory.
#
# A NumPy array that a jitted function uses from its surroundings becomes part of the executable. An expert expects to
# find it either in Compiled.memory_analysis() (as an argument, a temporary or generated code), or in
# jax.profiler.device_memory_profile(), which has a sample for each executable.
#
# Seen, for three functions with 64 MiB each: the process holds about 192 MiB more after the NumPy arrays are gone.
# memory_analysis() shows only the argument and the result, generated_code_size_in_bytes = 0, and the profile has
# samples with kind=executable of 0 bytes each. sum(a.nbytes for a in jax.live_arrays()) does not have it, either.
#
# Captured tables (masks, rotary embeddings, weights by mistake) are a classic of memory that nobody can find, one more
# copy with each recompilation. Every tool that one would look into says zero.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 psutil==7.1.3

cat >"$work/check.py" <<'PY'
import gzip
import sys

import jax
import jax.numpy as jnp
import numpy as np
import psutil

MIB = 1 << 20


def in_profile(size):
    """How many samples of the profile have this size, looked up as the varint that pprof writes for it."""
    number = bytearray()
    while size >= 128:
        number.append(size & 127 | 128)
        size >>= 7
    return gzip.decompress(jax.profiler.device_memory_profile()).count(bytes(number) + bytes([size]))


def resident():
    return psutil.Process().memory_info().rss / MIB


def compiled_with_table(seed):
    """A compiled function, which is all that holds on to its table of 64 MiB."""
    table = np.random.default_rng(seed).random(16 * MIB, dtype=np.float32)
    return jax.jit(lambda array: array * table).lower(argument).compile()


argument = jnp.zeros(16 * MIB, jnp.float32)
jax.jit(lambda array: array * 2).lower(argument).compile()
before = resident()
programs = [compiled_with_table(seed) for seed in range(3)]
grown = resident() - before

analysis = programs[0].memory_analysis()
counted = [
    size // MIB
    for size in (
        analysis.argument_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.generated_code_size_in_bytes,
    )
]
samples = in_profile(64 * MIB)
live = sum(array.nbytes for array in jax.live_arrays()) // MIB
print(f"grown {grown:.0f} MiB; argument, result, temporaries, code: {counted} MiB")
print(f"in the profile: {samples} sample of 64 MiB; live arrays: {live} MiB")
if not 180 < grown < 260 or counted != [64, 64, 0, 0] or (samples, live) != (1, 64):
    sys.exit("changed: expected to grow by about 192 MiB, and only the argument to be counted")
PY
"$work/venv/bin/python" "$work/check.py"
