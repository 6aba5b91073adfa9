#!/usr/bin/env bash
# jax 0.10.2, on CPU: the peak of Compiled.memory_analysis() leaves out the temporaries.
#
# The analysis of a compiled program has, next to the sizes of arguments, results and temporaries, a field
# peak_memory_in_bytes. An expert expects a peak to be at least the temporaries, which are one allocation that lives
# through the run, and to take it as the figure to compare with the memory of the device.
#
# Seen, for the gradient of a loop of 50 steps over a matrix of 4 MiB: temp_size_in_bytes is 612 MiB, and
# peak_memory_in_bytes 8 MiB, the argument and the result. It is the same 8 MiB for one step and for 50. When the program
# runs, the resident memory of the process grows by 624 MiB.
#
# The field is newer than the others and has the name that one looks for. In this program, where saved activations are
# all that matters, a check "peak < budget" never fails.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2

cat >"$work/check.py" <<'PY'
import resource
import sys

import jax
import jax.numpy as jnp

MIB = 1 << 20


def resident():
    """The most that was ever resident, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def gradient_over(steps):
    def body(carry, _):
        return jnp.tanh(carry @ carry), carry

    return jax.jit(jax.grad(lambda matrix: jax.lax.scan(body, matrix, None, length=steps)[1].sum()))


matrix = jnp.full((1024, 1024), 0.01)
seen = []
for steps in (1, 50):
    compiled = gradient_over(steps).lower(matrix).compile()
    analysis = compiled.memory_analysis()
    before = resident()
    compiled(matrix).block_until_ready()
    grown = resident() - before
    peak, temporaries = analysis.peak_memory_in_bytes / MIB, analysis.temp_size_in_bytes / MIB
    seen.append((round(peak), round(temporaries)))
    print(f"{steps} steps: peak {peak:.1f} MiB, temporaries {temporaries:.1f} MiB; resident memory grew by {grown} MiB")
if seen[0][0] != 8 or seen[1][0] != 8 or seen[1][1] < 400 or grown < 300:
    sys.exit("changed: expected a peak of 8 MiB twice, and the second time temporaries of several hundred MiB")
PY
"$work/venv/bin/python" "$work/check.py"
