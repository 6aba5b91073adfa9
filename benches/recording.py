#!/usr/bin/env python3
"""What recording costs a training: steps of the GPT of fixtures/record.py without and with it, in turn, in one process.

    python3 benches/recording.py [ROUNDS]

Needs PyTorch 2.1 or later, memviz, and a CUDA device or the stand-in for one: kernels take no time there, so that the share of
recording is the largest that it can be.
"""
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "fixtures"), str(ROOT / "python" / "src")]

import record as programs  # noqa: E402
import torch  # noqa: E402

import torch_memviz  # noqa: E402

#: Steps of a round.
STEPS = 10
#: Ways to record, by what is printed.
WAYS = {"not recorded": None, 'stacks="python"': "python", 'stacks="all"': "all"}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)  # of which there is no stand-in
    model, optimizer = programs.build()
    programs.train(model, optimizer, STEPS)
    took = {name: [] for name in WAYS}
    wrote = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, stacks in WAYS.items():
                path = pathlib.Path(folder, "run.pickle")
                recorder = torch_memviz.record(path, stacks=stacks).start() if stacks else None
                begin, cpu = time.perf_counter(), time.process_time()
                programs.train(model, optimizer, STEPS)
                torch.cuda.synchronize()
                end = time.perf_counter()
                took[name].append((end - begin, time.process_time() - cpu))
                if recorder:
                    recorder.stop()
                    wrote.setdefault(name, []).append((time.perf_counter() - end, path.stat().st_size))
        entries = torch_memviz.info(path).input.entries / STEPS
    print(f"PyTorch {torch.__version__}, {rounds} rounds of {STEPS} steps, {entries:.0f} entries a step")
    bases = [statistics.median(times) for times in zip(*took["not recorded"])]
    for name, times in took.items():
        line = f"{name:16}"
        for kind, base, values in zip(("elapsed", "of CPUs"), bases, zip(*times)):
            median = statistics.median(values)
            line += f" {median / STEPS * 1e3:7.2f} ms a step {kind} ({median / base - 1:+6.1%})"
        if name in wrote:
            extra = statistics.median(values) - base
            line += f", {extra / STEPS / entries * 1e6:.1f} us an entry"
            seconds, size = (statistics.median(values) for values in zip(*wrote[name]))
            line += f", written in {seconds:.2f} s, {size / 1e6:.2f} MB"
        print(line)


if __name__ == "__main__":
    main()
