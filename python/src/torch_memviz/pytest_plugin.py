"""Limits of GPU memory for tests of pytest, judged by `memviz check`.

::

    @pytest.mark.limit_gpu_memory("4 GiB")
    def test_training_step(): ...

Without a GPU the test runs and its limits are not judged, which the summary says, unless it is rehearsed on one that is
not there: `rehearse="h100-80gb"`. One whose memory cannot be judged fails, as one that uses too much does.

pytest imports this module in every project: what it needs for a test that asks for it is imported then.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ._testing.measurement import Gauge

#: The markers, as `pytest --markers` shows them.
MARKERS = (
    'limit_gpu_memory(limit, metric="allocated", of="test"): fail when the test allocates (or reserves) more GPU '
    'memory than "4 GiB"; of="process" counts what was in use before, too; rehearse="h100-80gb", here and below, runs '
    "the test without a GPU, and rehearse=True on that of memviz.toml",
    'limit_gpu_leaks(limit, runs=6, ignore=None): run the test several times, and fail when each leaks more than "1 '
    'MiB"; what a stack with a frame that matches the regular expression ignore has allocated does not count',
    'gpu_memory_baseline(tolerance="0%", of="test"): fail when the peak grows beyond that of the baseline beside the '
    "test",
)

NAMES = tuple(marker.partition("(")[0] for marker in MARKERS)

#: Whether a test of this process is, or was, measured.
USED = pytest.StashKey[bool]()

#: Options of the pytest that rehearses a test: the device, and the file for its reports.
REHEARSE, REPORTS = "--memviz-rehearse", "--memviz-reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("memviz", "limits of GPU memory")
    group.addoption("--memviz", action="store_true", help="measure all tests, and show those with the highest peaks")
    group.addoption("--memviz-dir", metavar="DIR", help="keep the recordings of all tests that are measured, in DIR")
    message = "write what tests with gpu_memory_baseline need, instead of comparing it"
    group.addoption("--memviz-update-baselines", action="store_true", help=message)
    message = (
        "rehearse all tests on this GPU, which is not there: `memviz rehearse --list` names those that are known; "
        "memviz.toml stands for what its [rehearse] says"
    )
    group.addoption(REHEARSE, metavar="GPU", help=message)
    group.addoption(REPORTS, help=argparse.SUPPRESS)
    parser.addini("memviz", "measure all tests, as --memviz does", type="bool", default=False)
    parser.addini("memviz_dir", "keep the recordings of all tests that are measured, as --memviz-dir does")
    parser.addini("memviz_most", "number of tests that --memviz shows", default="10")
    parser.addini("memviz_tolerance", "tolerance of gpu_memory_baseline where the marker has none", default="0%")
    message = "the GPU that tests with limits are rehearsed on where there is none, or memviz.toml"
    parser.addini("memviz_rehearse", message)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to rehearse before anything imports PyTorch."""
    gpu = getattr(early_config.known_args_namespace, "memviz_rehearse", None)
    if gpu:
        from ._rehearsal.gpus import RehearsalError
        from ._testing import rehearsed
        from ._testing.device import Device

        try:
            rehearsed.rehearse_all(Device.of(gpu, early_config.rootpath))
        except RehearsalError as error:
            raise pytest.UsageError(f"{REHEARSE}: {error}") from error


def pytest_configure(config: pytest.Config) -> None:
    """Add the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption(REPORTS):
        from ._testing.rehearsed import Reporter

        config.pluginmanager.register(Reporter(config))


@pytest.fixture
def gpu_memory(request: pytest.FixtureRequest) -> Gauge:
    """GPU memory of the test so far: `gpu_memory.peak`, in bytes. Without a GPU the test is skipped."""
    from ._testing import running
    from ._testing.measurement import Gauge

    measurement = request.node.stash.get(running.MEASUREMENT, None)
    if measurement is None:
        pytest.skip(f"GPU memory: {running.why_not()}")
    return Gauge(measurement)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run a test that is rehearsed elsewhere."""
    if not _has_limits(item):
        return None
    from ._testing import running

    return running.run_rehearsed(item) or None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to record before the fixtures are made."""
    if _has_limits(item) or _is_summed_up(item.config) or "gpu_memory" in getattr(item, "fixturenames", ()):
        from ._testing import running

        item.config.stash[USED] = True
        running.begin(item)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Judge what a test that passes has used."""
    if USED not in item.config.stash:
        return (yield)
    from ._testing import running

    measurement = running.before_call(item)
    if measurement is None:
        return (yield)
    try:
        result = yield
    except BaseException as error:
        running.after_failure(item, measurement, error)
        raise
    # What a test of unittest raises does not get here.
    if getattr(item, "_excinfo", None):
        running.after_failure(item, measurement, None)
    else:
        running.after_success(item, measurement, _is_summed_up(item.config))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """End the recording of a test that did not come to its call."""
    try:
        return (yield)
    finally:
        if USED in item.config.stash:
            from ._testing import running

            running.end(item)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the peaks of all tests, and how many limits were not judged: tests that pass look the same."""
    # Workers of pytest-xdist have used it elsewhere.
    if not any(name.startswith("gpu_") for report in _reports(terminalreporter) for name, _ in report.user_properties):
        return
    from ._testing import running

    running.write_summary(terminalreporter, int(config.getini("memviz_most")) if _is_summed_up(config) else None)


def _reports(reporter: Any) -> Generator[pytest.TestReport]:
    for reports in reporter.stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what was recorded and not kept."""
    if USED in config.stash:
        from ._testing import running

        running.clean_up(config)


def _has_limits(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in NAMES)


def _is_summed_up(config: pytest.Config) -> bool:
    return bool(config.getoption("--memviz") or config.getini("memviz"))
