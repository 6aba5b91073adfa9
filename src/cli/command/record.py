import os
import torch

def dump(event=""):
    rank = os.environ.get("RANK", "0")
    torch.cuda.memory._dump_snapshot(f"run_rank{rank}{event}.pickle")

torch._C._cuda_attach_out_of_memory_observer(lambda *_: dump("_oom"))
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
...  # build the model and train for a few steps, each in: with torch.profiler.record_function(f"step_{step}"):
dump()
torch.cuda.memory._record_memory_history(enabled=None)
