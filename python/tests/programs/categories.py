"""Sets categories of memory, and prints the bytes of each."""

import json

import torch
from model import build, train

import torch_memviz

with torch_memviz.record("run.pickle", holders=False) as recorder:
    model, optimizer = build()
    for _ in range(2):
        with recorder.step():
            train(model, optimizer)
    with torch_memviz.category("kv_cache"):
        cache = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        with torch_memviz.category("communication"):
            bucket = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
        try:
            with torch_memviz.category("workspace"):
                raise RuntimeError
        except RuntimeError:
            more = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
    after = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
    named = torch_memviz.categories(model, optimizer)
parameters = list(model.parameters())
owned = {
    "parameter": parameters,
    "gradient": [parameter.grad for parameter in parameters],
    "optimizer_state": [held for state in optimizer.state.values() for held in state.values() if held.is_cuda],
}
sizes = {name: sum(held.untyped_storage().nbytes() for held in tensors) for name, tensors in owned.items()}
print(json.dumps({"named": named, "count": sum(map(len, owned.values())), "sizes": sizes}))
