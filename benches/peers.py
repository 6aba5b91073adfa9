"""Measure memviz and other public tools on one snapshot: user CPU time and peak memory of whole processes, as Markdown.

    python3 benches/peers.py MEMVIZ SNAPSHOT     the decompressed snapshot, such as fixtures/snapshots/big_1m

Needs a Python of 3.10 or later, and installs the pinned tools in a temporary folder. Each tool runs three times, in turn; the
medians count. CPU time depends less on what else the machine does than the time on a clock.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PINNED = ["ptmem==0.1.2", "pt-snap-cli==0.4.1", "stormlog==0.4.3", "transformer-nuggets==0.0.4"]
#: What these tools import to analyze a snapshot; the requirements of other parts, such as PyTorch, are left out.
NEEDED = ["typer", "pyyaml", "jinja2"]
RUNS = 3

#: Loads one module of a package, without PyTorch, which other modules of the package import.
LOAD = """
import importlib.util, pickle, sys
spec = importlib.util.find_spec(sys.argv[1].split(".")[0])
path = f"{spec.submodule_search_locations[0]}/{'/'.join(sys.argv[1].split('.')[1:])}.py"
spec = importlib.util.spec_from_file_location("tool", path)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
with open(sys.argv[2], "rb") as file:
    snapshot = pickle.load(file)
"""
STORMLOG = LOAD + "sys.stdout.write(tool.render_attributed_html(snapshot, {}))"
NUGGETS = LOAD + "sys.stdout.write(tool.generate_memory_html(snapshot))"
PICKLE = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def run(command: list[str]) -> tuple[float, float]:
    """Return user CPU seconds and peak MiB of a process."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {command}")
    return usage.ru_utime, usage.ru_maxrss / 1024


def main() -> None:
    memviz, source = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "venv", work], check=True)
        pip = [f"{work}/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", *PINNED], check=True)
        subprocess.run([*pip, *NEEDED], check=True)
        python = f"{work}/bin/python"
        # ptmem keeps what it has parsed next to the file.
        snapshot = f"{work}/{Path(source).name}"
        os.symlink(source, snapshot)
        tools = {
            "memviz, `memviz peak`": [memviz, "peak", snapshot],
            "CPython, `pickle.load` alone": [python, "-c", PICKLE, snapshot],
            "ptmem 0.1.2, `ptmem --summary`": [f"{work}/bin/ptmem", "--summary", snapshot],
            "stormlog 0.4.3, page of a snapshot": [python, "-c", STORMLOG, "stormlog.attributed_viz", snapshot],
            "transformer-nuggets 0.0.4, page of a snapshot": [
                python, "-c", NUGGETS, "transformer_nuggets.utils.memory_viz", snapshot,
            ],
            "pt-snap 0.4.1, `pt-snap import`": [
                f"{work}/bin/pt-snap", "import", snapshot, "--output-dir", work, "--force", "--no-focus",
            ],
        }  # fmt: skip
        runs = {name: [] for name in tools}
        for _ in range(RUNS):
            for name, command in tools.items():
                runs[name].append(run(command))
                for cache in Path(work).glob(".*.memcache"):
                    cache.unlink()
        medians = {name: [statistics.median(values) for values in zip(*runs)] for name, runs in runs.items()}
        seconds, mib = next(iter(medians.values()))
        print(f"{Path(source).name}, {Path(source).stat().st_size / 1e6:.0f} MB, medians of {RUNS} runs\n")
        print("| tool | user CPU time | ratio | memory | ratio |\n|---|---|---|---|---|")
        for name, (of_tool, memory) in medians.items():
            print(f"| {name} | {of_tool:.2f} s | {of_tool / seconds:.0f} | {memory:.0f} MiB | {memory / mib:.1f} |")


main()
