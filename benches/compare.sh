#!/usr/bin/env bash
# All figures of docs/src/speed.md: memviz against CPython's pickle.load, the commands against `peak`, and the sizes of the
# page and of the binary. Whole processes, in turn, in one run. Prints Markdown, as kept in benches/results.
#
#   benches/compare.sh [FILE...]
#
# Measures snapshots of several shapes made from the fixtures, recordings of real GPUs from a corpus next to the checkout,
# where there is one, and the FILEs (decompressed snapshots) beside them. Needs python3, zstd, taskset, and 3 GB in the
# temporary folder. RUNS sets the number of runs (7), MEMVIZ the binary. Takes five minutes when the binary is built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
files=()
for file in "$@"; do
    files+=("$(realpath "$file")")
done
cd "$here/.."
if [ -z "${MEMVIZ:-}" ]; then
    cargo build --profile dist --quiet
    MEMVIZ=${CARGO_TARGET_DIR:-target}/dist/memviz
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

large() { # NAME FIXTURE TIMES [OPTIONS]
    python3 benches/enlarge.py "fixtures/snapshots/$2/snapshot.pickle.gz" "$work/$1.pickle" "${@:3}" >&2
}
real() { # NAME FILE TIMES
    if [ -f "../shared/real/$2.pickle.gz" ]; then
        python3 benches/enlarge.py "../shared/real/$2.pickle.gz" "$work/$1.pickle" "$3" >&2
    fi
}
zstd --quiet --decompress fixtures/snapshots/big_1m/snapshot.pickle.zst -o "$work/big_1m.pickle"
large inline_580k encoder 115
large python_stacks_700 gpt_train 55 --stacks 700 --depth 36
large cpp_stacks_113_deep llama_hf_all 85 --stacks 700 --depth 113
large stacks_5000_shuffled gpt_train 55 --stacks 5000 --depth 36 --shuffle --inline
large eight_devices gpt_train 8 --devices 8 --inline
large inline_strings gpt_train 55 --inline
real real_training Wedsonlin-medium_512_training_memory_snapshot 40
real real_own_adam NiuHuangxiaozi-profile_memory_forward_and_backward_memory_snapshot_200 60
real real_search JasperSolt-snapshot 120
large inline_100k encoder 20
large inline_1m encoder 198
large inline_4m encoder 792

MEMVIZ=$(realpath "$MEMVIZ") COMMIT=$(git rev-parse --short HEAD 2>/dev/null || echo unknown) \
    python3 benches/measure.py "$work" "${files[@]}"
