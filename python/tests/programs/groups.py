"""Records a program with process groups that report memory as NCCL does from PyTorch 2.12 on. The reports are made.

Their memory is allocated on the device outside of PyTorch, so that the driver counts it, too.
"""

import ctypes
import json
import types

import torch
from torch import distributed
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed import distributed_c10d

import torch_memviz

MIB = 1 << 20

tensor = torch.ones(MIB, device="cuda")
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
second = distributed.new_group([0])
third = distributed.new_group([0])
names = list(distributed_c10d._world.pg_names.values())

runtime = ctypes.CDLL(None)
for mib in (96, 8):
    assert runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mib * MIB)) == 0

reports = {
    names[0]: {"total": 96 * MIB, "persist": 16 * MIB, "suspended": 0},
    # Of a suspended communicator, only the persistent part is on the device.
    names[1]: {"total": 64 * MIB, "persist": 8 * MIB, "suspended": 1},
    # And of a backend without such a report, nothing is known.
    names[2]: None,
}


def backend(group, device):
    """Return the backend of a group."""
    report = reports[distributed_c10d._world.pg_names[group]]
    return types.SimpleNamespace() if report is None else types.SimpleNamespace(memory_stats=lambda: report)


ProcessGroup._get_backend = backend
with torch_memviz.record("run.pickle"):
    tensor = tensor + 1
print(json.dumps({"names": names}))
