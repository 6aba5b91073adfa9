#!/usr/bin/env bash
# memviz against CPython's pickle.load, and against itself at other sizes: whole processes, in turn, in one run.
#
#   benches/compare.sh [RUNS]
#
# Needs python3 and zstd. BIG_1M_ALL names a decompressed snapshot with C++ stacks to measure as well.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-7}
cargo build --release --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

zstd --quiet --decompress fixtures/snapshots/big_1m/snapshot.pickle.zst -o "$work/big_1m.pickle"
gzip --decompress --stdout fixtures/snapshots/gpt_train/snapshot.pickle.gz >"$work/gpt_train.pickle"
python3 benches/enlarge.py "$work/gpt_train.pickle" "$work/entries_100k.pickle" 10
python3 benches/enlarge.py "$work/big_1m.pickle" "$work/entries_4m.pickle" 4

RUNS=$runs WORK=$work BIG_1M_ALL=${BIG_1M_ALL:-} python3 - <<'PYTHON'
import json, os, platform, statistics, subprocess, sys, time

RUNS, WORK = int(os.environ["RUNS"]), os.environ["WORK"]
MEMVIZ = "target/release/memviz"


def measure(command):
    """Wall seconds and peak resident MiB of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {command}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def memviz(path):
    return [MEMVIZ, "peak", path]


def python(path):
    return [sys.executable, "-c", "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))", path]


def in_turn(*commands):
    """Runs the commands in turn, after one warm-up each; a list of (seconds, MiB) for each command."""
    results = [[] for _ in commands]
    for number in range(RUNS + 1):
        for command, result in zip(commands, results):
            figures = measure(command)
            if number:
                result.append(figures)
    return results


print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, median of {RUNS} runs\n")
print(f"{'snapshot':28} {'python s':>9} {'memviz s':>9} {'times':>6} {'python MiB':>11} {'memviz MiB':>11} {'part':>6}")
files = [("big_1m", f"{WORK}/big_1m.pickle")]
if os.environ["BIG_1M_ALL"]:
    files.append(("big_1m_all", os.environ["BIG_1M_ALL"]))
for name, path in files:
    theirs, ours = in_turn(python(path), memviz(path))
    ratio = statistics.median(a[0] / b[0] for a, b in zip(theirs, ours))
    python_s, python_mib = map(statistics.median, zip(*theirs))
    memviz_s, memviz_mib = map(statistics.median, zip(*ours))
    print(f"{name:28} {python_s:9.3f} {memviz_s:9.3f} {ratio:5.1f}x {python_mib:11.0f} {memviz_mib:11.0f} "
          f"{memviz_mib / python_mib:6.2f}")

print("\ntime per entry, start of the process included")
paths = [f"{WORK}/{name}.pickle" for name in ("entries_100k", "big_1m", "entries_4m")]
for path, result in zip(paths, in_turn(*map(memviz, paths))):
    info = json.loads(subprocess.check_output([MEMVIZ, "info", "--format", "json", path]))
    entries = info["input"]["entries"]
    seconds, mib = map(statistics.median, zip(*result))
    print(f"{entries:20,} entries {seconds:9.4f} s {seconds / entries * 1e9:7.1f} ns/entry "
          f"{mib * 2**20 / entries:7.1f} bytes/entry")
PYTHON
