"""Logs a training run to each named experiment tracker, and prints what each tracker received."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from model import build
from model import train as train_step

import torch_memviz
from torch_memviz import hooks

os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", MLFLOW_ALLOW_FILE_STORE="true", DO_NOT_TRACK="true")
FOLDER = Path.cwd()


def fails(recorder: torch_memviz.Recorder) -> None:
    raise RuntimeError(f"no tracker for {recorder.number}")


def train(recorder: torch_memviz.Recorder) -> None:
    model, optimizer = build()
    for step in range(3):
        with recorder.step():
            train_step(model, optimizer, rows=256 << step)


def with_tensorboard() -> dict[str, object]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    record(hooks.tensorboard(SummaryWriter("events")))
    events = EventAccumulator("events")
    events.Reload()
    scalars = {name: [[it.step, it.value] for it in events.Scalars(name)] for name in events.Tags()["scalars"]}
    [tag] = events.Tags()["tensors"]
    [text] = events.Tensors(tag)
    return {"metrics": scalars, "report": text.tensor_proto.string_val[0].decode()}


def with_mlflow() -> dict[str, object]:
    import mlflow

    mlflow.set_tracking_uri((FOLDER / "mlruns").as_uri())
    record(hooks.mlflow())
    # The run may have ended already: the last active run is used.
    with mlflow.start_run() as run:
        pass
    record(hooks.mlflow())
    client = mlflow.MlflowClient()
    names = client.get_run(run.info.run_id).data.metrics
    metrics = {name: [[it.step, it.value] for it in client.get_metric_history(run.info.run_id, name)] for name in names}
    [artifact] = client.list_artifacts(run.info.run_id)
    return {"metrics": metrics, "report": Path(client.download_artifacts(run.info.run_id, artifact.path)).read_text()}


def with_wandb() -> dict[str, object]:
    import wandb

    record(hooks.wandb())
    run = wandb.init(project="memory", dir=FOLDER)
    record(hooks.wandb())
    summary = {name: value for name, value in run.summary._as_dict().items() if not name.startswith("_")}
    run.finish()
    # Its service writes until it exits.
    wandb.teardown()
    return {"summary": summary}


def record(hook: hooks.Hook) -> None:
    with torch_memviz.record("run.pickle", hooks=[fails, hook]) as recorder:
        train(recorder)
    files.append([path.name for path in recorder.files])


files: list[list[str]] = []
print(json.dumps(globals()[f"with_{sys.argv[1]}"]()))
print(json.dumps({"files": files}))
