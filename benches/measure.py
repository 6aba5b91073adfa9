"""The measuring half of compare.sh: tables of `memviz peak` beside `pickle.load`, as Markdown."""
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
SHAPES = ["big_1m", "inline_580k", "python_stacks_700", "cpp_stacks_113_deep", "stacks_5000_shuffled", "eight_devices"]
LENGTHS = ["inline_100k", "inline_1m", "inline_4m"]
LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def measure(command):
    """Wall seconds, seconds of processor time and peak resident MiB of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
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
    made = lambda names: [f"{folder}/{name}.pickle" for name in names]
    share = busy_share()
    state = "idle" if share < 0.05 else f"not idle: others took {share:.0%} of the processors"
    print(f"# memviz {os.environ.get('COMMIT', '')} against pickle.load\n")
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; whole processes in turn, median of {RUNS} runs. When it began, the "
          f"machine was {state}.\n")
    shapes(made(SHAPES) + files)
    print("\n## Time for an entry, start of the process included\n")
    lengths(made(LENGTHS))
    print("\n## While every core is busy with something else\n")
    busy(made(["big_1m", "inline_580k"]) + files)


main()
