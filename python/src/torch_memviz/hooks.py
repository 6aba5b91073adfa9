"""Hooks that log a recording to an experiment tracker: the peak of each step, and the report.

    from torch_memviz import hooks

    with torch_memviz.record("run.pickle", hooks=[hooks.wandb()]) as recorder:
        train(recorder)

When the recording has ended, the recorder calls each hook with itself as the argument. A custom hook is a function that
takes a recorder. Exceptions raised by a hook are logged and do not reach your program.

For each step and device, the metrics are `gpu_memory/device0/peak_bytes` and `gpu_memory/device0/reserved_bytes`. For
the whole recording, they are `gpu_memory/device0/max_allocated_bytes`, `gpu_memory/device0/max_reserved_bytes` and
`gpu_memory/device0/complete_history`. The last is 0 if the true peaks may be higher, because the recording started late
or lost its oldest entries. If a callback or a function makes a second recording, the names start with
`gpu_memory_run2`.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._commands import peak, report
from ._recording.names import rank
from ._recording.recorder import Hook
from ._recording.steps import of_steps

if TYPE_CHECKING:
    from ._recording.recorder import Recorder

__all__ = ["Hook", "mlflow", "tensorboard", "wandb"]

log = logging.getLogger("torch_memviz")


def wandb(run: Any = None) -> Hook:
    """Log to Weights & Biases: a chart over the steps, the summary of the run, and the report as an artifact.

    W&B adds one of its own steps for each recorded step; the x-axis of the charts is `gpu_memory/step`.

    Args:
        run: The run returned by `wandb.init`. Default: the run that is active when the recording ends.
    """

    def hook(recorder: Recorder) -> None:
        library = importlib.import_module("wandb")
        to = run if run is not None else library.run
        if to is None:
            _say_nothing_is_logged("W&B", "wandb.init() starts a run")
            return
        prefix, path = _prefix(recorder), _recording(recorder)
        to.define_metric(f"{prefix}/step")
        to.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")
        for number, values in _steps(prefix, path):
            to.log({f"{prefix}/step": number, **values})
        to.summary.update(_maxima(prefix, path))
        with _report(path) as page:
            artifact = library.Artifact(f"gpu-memory-{path.stem}", type="gpu-memory")
            artifact.add_file(str(page))
            to.log_artifact(artifact)

    return hook


def tensorboard(writer: Any) -> Hook:
    """Log to TensorBoard: scalars over the steps, and the report as text.

    Args:
        writer: A `torch.utils.tensorboard.SummaryWriter`, such as `experiment` of Lightning's `TensorBoardLogger`.
    """

    def hook(recorder: Recorder) -> None:
        prefix, path = _prefix(recorder), _recording(recorder)
        for number, values in _steps(prefix, path):
            for name, value in values.items():
                writer.add_scalar(name, value, number)
        for name, value in _maxima(prefix, path).items():
            writer.add_scalar(name, value, 0)
        writer.add_text(f"{prefix}/report", report(path, format="markdown").text, 0)
        writer.flush()

    return hook


def mlflow(run_id: str | None = None) -> Hook:
    """Log to MLflow: metrics over the steps, and the report as an artifact.

    Args:
        run_id: The run. Default: the run that is active when the recording ends, or else the last active run, since a
            trainer may have ended it already.
    """

    def hook(recorder: Recorder) -> None:
        library = importlib.import_module("mlflow")
        active = library.active_run() or library.last_active_run()
        to = run_id if run_id is not None else active and active.info.run_id
        if to is None:
            _say_nothing_is_logged("MLflow", "mlflow.start_run() starts a run")
            return
        client, prefix, path = library.MlflowClient(), _prefix(recorder), _recording(recorder)
        for number, values in _steps(prefix, path):
            for name, value in values.items():
                client.log_metric(to, name, value, step=number)
        for name, value in _maxima(prefix, path).items():
            client.log_metric(to, name, value)
        with _report(path) as page:
            client.log_artifact(to, str(page))

    return hook


def _prefix(recorder: Recorder) -> str:
    """Return the prefix of metric names."""
    return "gpu_memory" if recorder.number == 1 else f"gpu_memory_run{recorder.number}"


def _recording(recorder: Recorder) -> Path:
    """Return the most complete recording: the full one, or that of the last failed request."""
    return recorder.recording or recorder.files[-1]


def _steps(prefix: str, path: Path) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the steps in order, each with its metrics on all devices."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for step in of_steps(path):
        name = f"{prefix}/device{step.device}"
        found[step.number] |= {f"{name}/peak_bytes": step.peak, f"{name}/reserved_bytes": step.reserved}
    yield from sorted(found.items())


def _maxima(prefix: str, path: Path) -> dict[str, int]:
    """Return the metrics of the whole recording."""
    found = {}
    for device in peak(path, top=1).devices:
        name = f"{prefix}/device{device.device}"
        found[f"{name}/max_allocated_bytes"] = device.maxima.allocated_bytes
        found[f"{name}/max_reserved_bytes"] = device.maxima.reserved_bytes
        # Marks values that may not be exact.
        found[f"{name}/complete_history"] = int(device.complete_history)
    return found


@contextmanager
def _report(path: Path) -> Iterator[Path]:
    """Write the report as a temporary HTML page."""
    with tempfile.TemporaryDirectory(prefix="memviz-") as folder:
        page = Path(folder) / f"{path.stem}.html"
        report(path).save(page)
        yield page


def _say_nothing_is_logged(tracker: str, remedy: str) -> None:
    # With several ranks, usually only the first has a run.
    level = logging.DEBUG if rank() else logging.WARNING
    log.log(level, "nothing is logged to %s: expected an active run, found none; %s", tracker, remedy)
