#!/usr/bin/env bash
# memviz against CPython's json.load on a large profiler trace: whole processes, in turn, in one run.
#
#   benches/compare_trace.sh [RUNS] [MEGABYTES]
#
# Needs python3, and room for the trace in the temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
megabytes=${2:-520}
cargo build --profile dist --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 benches/enlarge_trace.py fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz "$work/trace.json" \
    "$megabytes"

RUNS=$runs TRACE=$work/trace.json python3 - <<'PYTHON'
import json, os, platform, statistics, subprocess, sys, time

RUNS, TRACE, MEMVIZ = int(os.environ["RUNS"]), os.environ["TRACE"], "target/dist/memviz"
OURS = [MEMVIZ, "peak", TRACE]
THEIRS = [sys.executable, "-c", "import json, sys; json.load(open(sys.argv[1]))", TRACE]


def measure(command):
    """Wall seconds and peak resident MiB of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {command}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


# One warm-up each, then in turn.
measure(OURS)
runs = [(measure(THEIRS), measure(OURS)) for _ in range(RUNS)]
info = json.loads(subprocess.check_output([MEMVIZ, "info", "--strict", "--format", "json", TRACE]))
ratio = statistics.median(theirs[0] / ours[0] for theirs, ours in runs)
(python_s, python_mib), (memviz_s, memviz_mib) = (
    tuple(map(statistics.median, zip(*side))) for side in zip(*runs))
print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, median of {RUNS} runs")
print(f"{os.path.getsize(TRACE) / 1e6:.0f} MB, {info['input']['entries']:,} memory events")
print(f"json.load   {python_s:8.3f} s {python_mib:8.0f} MiB")
print(f"memviz peak {memviz_s:8.3f} s {memviz_mib:8.0f} MiB")
print(f"{ratio:.1f} times faster, {memviz_mib / python_mib:.3f} of the memory")
PYTHON
