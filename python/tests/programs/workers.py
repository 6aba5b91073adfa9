"""Forks DataLoader workers while recording, and sends them the signal that requests a recording."""

import os
import signal

import torch

import torch_memviz


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return os.getpid()


with torch_memviz.record("run.pickle", on_signal="SIGUSR1") as recorder:
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    loader = iter(torch.utils.data.DataLoader(Rows(), num_workers=2, persistent_workers=True))
    next(loader)
    for worker in loader._workers:
        os.kill(worker.pid, signal.SIGUSR1)
    for worker in loader._workers:
        worker.join(0.5)
        print("alive" if worker.is_alive() else worker.exitcode)
    list(loader)
print(*recorder.files)
