"""Rehearsed tests: each runs in a separate pytest process, whose reports this process takes over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .._rehearsal import library
from .._rehearsal.gpus import RehearsalError
from .._rehearsal.session import PLAN, Plan, begin
from .._rehearsal.start import prepare
from ..pytest_plugin import REHEARSE, REPORTS
from .device import Device


def rehearse_all(device: Device) -> None:
    """Rehearse the tests of this process on a device.

    Raises:
        RehearsalError: if that is not possible.
    """
    # The user has named a GPU, so a real one on this machine is not meant.
    reason = library.why_not(despite_gpu=True)
    if reason is not None:
        raise RehearsalError(reason)
    begin(prepare(path=None, gpu=device.gpu, memory=device.memory))


def is_rehearsed(device: Device) -> bool:
    """Whether this process is rehearsed on this device."""
    plan = Plan.from_environment()
    return plan is not None and (plan.gpu, plan.memory) == (device.gpu, device.memory)


def why_not() -> str | None:
    """Return why a rehearsal is not possible here, or None if it is."""
    if sys.platform != "linux":
        return library.why_not(despite_gpu=True)
    try:
        library.build()
        library.folder()
    except RehearsalError as error:
        return str(error)
    return None


def run(item: pytest.Item, device: Device) -> list[pytest.TestReport]:
    """Run a test on a simulated device, and return its reports."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reports.jsonl"
        # This process rehearses another GPU, or none.
        environment = {key: value for key, value in os.environ.items() if key not in (PLAN, library.VARIABLE)}
        command = [sys.executable, "-m", "pytest", *_arguments(item), f"{REHEARSE}={device.text}", f"{REPORTS}={file}"]
        done = subprocess.run(
            command,
            cwd=item.config.invocation_params.dir,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    take = item.config.hook.pytest_report_from_serializable
    reports = [take(config=item.config, data=json.loads(line)) for line in lines]
    if [report.when for report in reports][-1:] != ["teardown"]:
        said = f"the rehearsed pytest exited with code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        reports.append(pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call"))
    return reports


def _arguments(item: pytest.Item) -> list[str]:
    """Build the pytest arguments to run only this test, with the options of this session."""
    config = item.config
    of_file = item.nodeid.partition("::")[2]
    arguments = [f"{item.path}::{of_file}", f"--rootdir={config.rootpath}"]
    if config.inipath is not None:
        arguments += ["-c", str(config.inipath)]
    for option, values in {"-p": config.getoption("plugins"), "-o": config.getoption("override_ini")}.items():
        for value in values or ():
            arguments += [option, value]
    if config.pluginmanager.hasplugin("xdist"):
        # Override the configuration: this is a single test.
        arguments.append("-n0")
    if config.getoption("--memviz-dir"):
        arguments.append(f"--memviz-dir={Path(config.getoption('--memviz-dir')).absolute()}")
    if config.getoption("--memviz"):
        arguments.append("--memviz")
    if config.getoption("--memviz-update-baselines"):
        arguments.append("--memviz-update-baselines")
    return arguments


class Reporter:
    """Sends reports to the parent pytest process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._file = config, Path(config.getoption(REPORTS))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(data) + "\n")
