"""Receives the signal that requests a recording twice, and then a signal that terminates the program."""

import os
import signal
import sys

import torch

import torch_memviz

before = signal.getsignal(signal.SIGUSR1)
with torch_memviz.record("run.pickle", on_signal=sys.argv[1]) as recorder:
    kept = torch.empty(1 << 20, device="cuda")
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    more = torch.empty(1 << 20, device="cuda")
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
assert signal.getsignal(signal.SIGUSR1) is before
print(*sorted(path.name for path in recorder.files))
