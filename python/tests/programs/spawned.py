"""Ranks started by `torch.multiprocessing.spawn`. Their process group is gone when the recording ends."""

import torch
from torch import multiprocessing
from torch.distributed import barrier, destroy_process_group, init_process_group

import torch_memviz


def run(rank: int, store: str) -> None:
    with torch_memviz.record("run.pickle"):
        init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        torch.empty((rank + 1) * 4 << 20, dtype=torch.uint8, device="cuda")
        barrier()  # The other rank may still be connecting.
        destroy_process_group()


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, (os.path.join(folder, "store"),), nprocs=2)
