"""Runs Lightning's Trainer with the callback, and prints PyTorch's counters."""

import json
import sys

import lightning
import torch

from torch_memviz.lightning import RecordMemory


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        if "oom" in sys.argv and index == 6:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        return self.layers(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


callback = RecordMemory("lightning.pickle", steps=(0, 3))
trainer = lightning.Trainer(
    callbacks=[callback], max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
try:
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(80, 1024), batch_size=8))
except torch.cuda.OutOfMemoryError:
    print("out of memory")
if "again" in sys.argv:
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(80, 1024), batch_size=8))
recorder = callback.recorder
print(json.dumps({"files": [path.name for path in recorder.files], "steps": recorder.steps_begun}))
