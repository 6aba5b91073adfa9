"""Limits of GPU memory for tests of pytest, judged by `memviz check`.

::

    @pytest.mark.limit_gpu_memory("4 GiB")
    def test_training_step(): ...

Without a GPU the test runs and its limits are not judged, which the summary says, unless it is rehearsed on one that is
not there: `rehearse="h100-80gb"`. One whose memory cannot be judged fails, as one that uses too much does.
"""

from __future__ import annotations

import argparse
import inspect
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ._recording import release
from ._rehearsal.gpus import RehearsalError
from ._testing import files, rehearsed
from ._testing.device import Device
from ._testing.limits import MarkerError, limits
from ._testing.measurement import Measurement

#: The markers, as `pytest --markers` shows them.
MARKERS = (
    'limit_gpu_memory(limit, metric="allocated", of="test"): fail when the test allocates (or reserves) more GPU '
    'memory than "4 GiB"; of="process" counts what was in use before, too; rehearse="h100-80gb", here and below, runs '
    "the test without a GPU, and rehearse=True on that of memviz.toml",
    'limit_gpu_leaks(limit, runs=6): run the test several times, and fail when each leaks more than "1 MiB"',
    'gpu_memory_baseline(tolerance="0%", of="test"): fail when the peak grows beyond that of the baseline beside the '
    "test",
)

#: The property of a report that says why limits were not judged.
NOT_JUDGED = "gpu_memory_not_judged"

MEASUREMENT = pytest.StashKey[Measurement]()

#: The folder that this process records into.
SCRATCH = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("memviz", "limits of GPU memory")
    group.addoption("--memviz-dir", metavar="DIR", help="keep the recordings of all tests that have limits, in DIR")
    message = "write what tests with gpu_memory_baseline need, instead of comparing it"
    group.addoption("--memviz-update-baselines", action="store_true", help=message)
    message = (
        "rehearse all tests on this GPU, which is not there: `memviz rehearse --list` names those that are known; "
        "memviz.toml stands for what its [rehearse] says"
    )
    group.addoption(rehearsed.REHEARSE, metavar="GPU", help=message)
    group.addoption(rehearsed.REPORTS, help=argparse.SUPPRESS)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to rehearse before anything imports PyTorch."""
    gpu = getattr(early_config.known_args_namespace, "memviz_rehearse", None)
    if gpu:
        try:
            rehearsed.rehearse_all(Device.of(gpu, early_config.rootpath))
        except RehearsalError as error:
            raise pytest.UsageError(f"{rehearsed.REHEARSE}: {error}") from error


def pytest_configure(config: pytest.Config) -> None:
    """Add the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption(rehearsed.REPORTS):
        config.pluginmanager.register(rehearsed.Reporter(config))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Have a test that is rehearsed run in a process of its own: this one has PyTorch with another GPU, or none."""
    device = _rehearsed_on(item)
    if device is None or rehearsed.is_rehearsed(device) or rehearsed.why_not() is not None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in rehearsed.run(item, device):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to record before the fixtures are made."""
    try:
        asked = limits(item)
    except MarkerError as error:
        pytest.fail(str(error), pytrace=False)
    if asked is None:
        return
    is_elsewhere = asked.rehearse is not None and not rehearsed.is_rehearsed(asked.rehearse)
    reason = rehearsed.why_not() if is_elsewhere else why_not()
    if reason is not None:
        # The test itself may well run here.
        item.user_properties.append((NOT_JUDGED, reason))
        return
    root = _root(item.config)
    keep = bool(item.config.getoption("--memviz-dir"))
    measurement = Measurement(asked, root / files.recording(item), _scratch(item.config, root), keep)
    item.stash[MEASUREMENT] = measurement
    measurement.start()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Judge what a test that passes has used."""
    measurement = item.stash.get(MEASUREMENT, None)
    if measurement is None:
        return (yield)
    if measurement.limits.leaks is not None:
        _repeat(item, measurement)
    try:
        result = yield
    except BaseException as error:
        _give_evidence(item, measurement, error)
        raise
    # What a test of unittest raises does not get here.
    if getattr(item, "_excinfo", None):
        _give_evidence(item, measurement, None)
        return result
    measurement.stop()
    wrong = measurement.judge(bool(item.config.getoption("--memviz-update-baselines")))
    if wrong is not None:
        pytest.fail(f"{wrong}\n\n{measurement.evidence()}", pytrace=False)
    return result


def _repeat(item: pytest.Item, measurement: Measurement) -> None:
    """Have a test run several times whose leaks are limited."""
    if not isinstance(item, pytest.Function) or inspect.iscoroutinefunction(item.obj):
        pytest.fail("limit_gpu_leaks: expected a plain function, found none", pytrace=False)
    item.obj = measurement.repeated(item.obj)


def _give_evidence(item: pytest.Item, measurement: Measurement, error: BaseException | None) -> None:
    measurement.stop(error)
    if measurement.recorder.failures:
        item.add_report_section("call", "memviz", measurement.evidence())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """End the recording of a test that did not come to its call."""
    try:
        return (yield)
    finally:
        measurement = item.stash.get(MEASUREMENT, None)
        if measurement is not None:
            measurement.stop()
            measurement.forget()
            del item.stash[MEASUREMENT]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many limits were not judged, and why: tests that pass look the same."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    setups = (
        report for report in reports if getattr(report, "when", "") == "call" or getattr(report, "skipped", False)
    )
    reasons = Counter(value for report in setups for name, value in report.user_properties if name == NOT_JUDGED)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"memviz: limits of {count} tests were not judged: {reason}", yellow=True)


def _rehearsed_on(item: pytest.Item) -> Device | None:
    """The device that a test is rehearsed on; a marker that says nothing fails where the test is set up."""
    try:
        asked = limits(item)
    except MarkerError:
        return None
    return asked.rehearse if asked is not None else None


def why_not() -> str | None:
    """Why no memory can be recorded here."""
    try:
        return release.why_not(release.torch())
    except release.RecordingError as error:
        return str(error)


def _root(config: pytest.Config) -> Path:
    """Where recordings are kept: the folder asked for, or pytest's cache."""
    folder = config.getoption("--memviz-dir")
    cache = getattr(config, "cache", None)
    if folder:
        return Path(str(folder)).absolute()
    if cache is not None:
        return Path(cache.mkdir("memviz"))
    return Path(tempfile.gettempdir()) / "memviz"


def _scratch(config: pytest.Config, root: Path) -> Path:
    """Give the folder that this process records into: other workers, and other runs, have their own."""
    if SCRATCH not in config.stash:
        root.mkdir(parents=True, exist_ok=True)
        # On the same disk, so that what is kept need only be moved.
        config.stash[SCRATCH] = tempfile.TemporaryDirectory(dir=root, prefix=".recording-", ignore_cleanup_errors=True)
    return Path(config.stash[SCRATCH].name)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what was recorded and not kept."""
    if SCRATCH in config.stash:
        config.stash[SCRATCH].cleanup()
