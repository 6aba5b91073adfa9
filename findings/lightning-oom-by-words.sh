#!/usr/bin/env bash
# lightning 2.6.6, accelerate 1.15.0 (torch 2.11.0): an OutOfMemoryError is not always taken for one.
#
# PyTorch raises torch.OutOfMemoryError when its caching allocator has no memory. An expert expects libraries that retry
# with a smaller batch to look at the class.
#
# Seen: both look for words in the message, and not for the same. Lightning wants "CUDA": on ROCm, where the message begins
# with "HIP out of memory. Tried to allocate", its search for a batch size ends with the exception that it is made to
# survive, with the same class and the same text otherwise. accelerate wants a period after "out of memory": it knows the
# message of ROCm, and not "CUDA error: out of memory" of a call to CUDA past the allocator, which Lightning knows.
#
# Code that was tuned on one machine dies on another with an error that names lack of memory, and a recording of it shows
# no second try.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.11.0 numpy==2.3.5 lightning==2.6.6 accelerate==1.15.0
cat >"$work/check.py" <<'PY'
import logging
import os
import sys

import lightning
import torch
from accelerate.utils.memory import should_reduce_batch_size
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities.memory import is_oom_error


class Model(lightning.LightningModule):
    """Has room for batches of 8."""

    def __init__(self, error):
        super().__init__()
        self.error, self.batch_size = error, 2
        self.layer = torch.nn.Linear(4, 1)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.zeros(256, 4), batch_size=self.batch_size)

    def training_step(self, batch):
        if len(batch) > 8:
            raise self.error
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def found(error):
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    try:
        return Tuner(trainer).scale_batch_size(Model(error), mode="power")
    except type(error):
        return None


logging.disable(logging.CRITICAL)
os.chdir(sys.argv[1])
rest = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 20.00 GiB of which 1.00 GiB is free."
seen = []
for error in (
    torch.OutOfMemoryError(f"CUDA out of memory. {rest}"),
    torch.OutOfMemoryError(f"HIP out of memory. {rest}"),
    RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"),
):
    seen.append((is_oom_error(error), found(error), should_reduce_batch_size(error)))
    words = str(error).splitlines()[0][:30]
    print(f"{words!r}: Lightning: %s, batch size found: %s; accelerate: %s" % seen[-1])
if seen != [(True, 8, True), (False, None, True), (True, 8, False)]:
    sys.exit("changed: expected Lightning to miss the second, and accelerate the third")
PY
"$work/venv/bin/python" -W ignore "$work/check.py" "$work" 2>"$work/log" || { tail -n 1 "$work/log"; exit 1; }
