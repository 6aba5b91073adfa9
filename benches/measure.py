"""The measuring half of compare.sh, as Markdown: `memviz peak` beside `pickle.load`, commands beside `peak`, sizes."""
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

RUNS = int(os.environ.get("RUNS", "7"))
MEMVIZ = os.environ["MEMVIZ"]
SHAPES = ["big_1m", "inline_580k", "inline_strings", "python_stacks_700", "cpp_stacks_113_deep", "stacks_5000_shuffled",
          "eight_devices", "real_training", "real_own_adam", "real_search"]
# The commands that say something about a recording as a whole; the first is what the others are measured by.
COMMANDS = [["peak"], ["triage"], ["timeline"], ["report", "-o", "{folder}/report.html", "--force"],
            ["view", "-o", "{folder}/view.html", "--force"], ["leaks"], ["oom"], ["fragmentation"], ["checkpoint"]]
BIG = "fixtures/snapshots/big_1m/snapshot.pickle.zst"
LENGTHS = ["inline_100k", "inline_1m", "inline_4m"]
LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def measure(command):
    """Wall seconds, seconds of processor time and peak resident MiB of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {command}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def in_turn(commands, runs=RUNS):
    """Runs the commands in turn, after one warm-up each: a list of runs for each command."""
    results = [[] for _ in commands]
    for number in range(runs + 1):
        for command, result in zip(commands, results):
            figures = measure(command)
            if number:
                result.append(figures)
    return results


def medians(runs):
    return tuple(map(statistics.median, zip(*runs)))


def times_faster(theirs, ours):
    """The median of the ratios of runs that followed one another."""
    return statistics.median(a[0] / b[0] for a, b in zip(theirs, ours))


def python(path):
    return [sys.executable, "-c", LOAD, path]


def memviz(path):
    return [MEMVIZ, "peak", path]


def on_one_core(command):
    return ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *command]


def entries_of(path):
    return json.loads(subprocess.check_output([MEMVIZ, "info", "--format", "json", path]))["input"]["entries"]


def shapes(paths):
    print("| snapshot | MB | entries | `pickle.load` | `memviz peak` | times faster | on one core | memory |")
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        theirs, ours, alone = in_turn([python(path), memviz(path), on_one_core(memviz(path))])
        (python_s, _, python_mib), (memviz_s, _, memviz_mib) = medians(theirs), medians(ours)
        print(f"| {pathlib.Path(path).stem} | {os.path.getsize(path) / 1e6:.0f} | {entries_of(path):,} "
              f"| {python_s:.2f} s, {python_mib:.0f} MiB | {memviz_s:.3f} s, {memviz_mib:.0f} MiB "
              f"| {times_faster(theirs, ours):.1f} | {times_faster(theirs, alone):.1f} | {memviz_mib / python_mib:.2f} |",
              flush=True)


def commands(folder):
    """Every command on one recording, in units of the first."""
    print("| command | time | times `peak` | processor time | memory |")
    print("|---|---|---|---|---|")
    runs = in_turn([[MEMVIZ, *(part.format(folder=folder) for part in command), f"{folder}/big_1m.pickle"]
                    for command in COMMANDS])
    for command, own in zip(COMMANDS, runs):
        seconds, cpu, mib = medians(own)
        print(f"| `{' '.join(part for part in command if '{' not in part and part != '--force')}` | {seconds:.3f} s "
              f"| {1 / times_faster(runs[0], own):.2f} | {cpu:.3f} s | {mib:.0f} MiB |")


def sizes(folder):
    """Of the page of a recording, and of the binary that was measured."""
    measure([MEMVIZ, "view", BIG, "-o", f"{folder}/page.html", "--force"])
    page, recording = os.path.getsize(f"{folder}/page.html") / 1e6, os.path.getsize(BIG) / 1e6
    print("| what | MB |")
    print("|---|---|")
    print(f"| the recording of big_1m, zstd | {recording:.2f} |")
    print(f"| its page | {page:.2f} |")
    print(f"| the binary | {os.path.getsize(MEMVIZ) / 1e6:.1f} |")


def lengths(paths):
    print("| entries | `memviz peak` | per entry | memory per entry |")
    print("|---|---|---|---|")
    for path, runs in zip(paths, in_turn([memviz(path) for path in paths])):
        entries, (seconds, _, mib) = entries_of(path), medians(runs)
        print(f"| {entries:,} | {seconds:.4f} s | {seconds / entries * 1e9:.0f} ns | {mib * 2**20 / entries:.0f} bytes |")


def busy(paths):
    """The same while every core has something else to do, too."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        print("| snapshot | `pickle.load` | `memviz peak` | times faster | processor time |")
        print("|---|---|---|---|---|")
        for path in paths:
            theirs, ours = in_turn([python(path), memviz(path)], max(3, RUNS // 2))
            python_s, python_cpu, _ = medians(theirs)
            memviz_s, memviz_cpu, _ = medians(ours)
            print(f"| {pathlib.Path(path).stem} | {python_s:.2f} s | {memviz_s:.3f} s | {times_faster(theirs, ours):.1f} "
                  f"| {python_cpu / memviz_cpu:.1f} |", flush=True)
    finally:
        for other in others:
            other.kill()
            other.wait()


def machine():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores of {name}, Python {platform.python_version()}"


def busy_share():
    """The part of the processors' time that others take."""
    def ticks():
        with open("/proc/stat") as file:
            times = list(map(int, file.readline().split()[1:]))
        return sum(times), times[3] + times[4]
    (all_before, idle_before), _, (all_after, idle_after) = ticks(), time.sleep(2), ticks()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def main():
    folder, files = sys.argv[1], sys.argv[2:]
    made = lambda names: [path for path in (f"{folder}/{name}.pickle" for name in names) if os.path.exists(path)]
    share = busy_share()
    state = "idle" if share < 0.05 else f"not idle: others took {share:.0%} of the processors"
    print(f"# memviz {os.environ.get('COMMIT', '')} against pickle.load\n")
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; whole processes in turn, median of {RUNS} runs. When it began, the "
          f"machine was {state}.\n")
    shapes(made(SHAPES) + files)
    print("\n## Commands, on big_1m\n")
    commands(folder)
    print("\n## Sizes\n")
    sizes(folder)
    print("\n## Time for an entry, start of the process included\n")
    lengths(made(LENGTHS))
    print("\n## While every core is busy with something else\n")
    busy(made(["big_1m", "inline_580k"]) + files)


main()
