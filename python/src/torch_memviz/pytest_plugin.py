"""GPU memory limits for pytest tests, checked by `memviz check`.

::

    @pytest.mark.limit_gpu_memory("4 GiB")
    def test_training_step(): ...

Without a GPU, the test runs but its limits are not judged; the summary shows this. With `rehearse="h100-80gb"`, the
test runs on a simulated GPU instead. A test fails if it uses too much memory or if its memory cannot be judged.

pytest imports this module in every project, so everything else is imported only when a test needs it.
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
    'limit_gpu_memory(limit, metric="allocated", of="test"): fail if the test allocates (or reserves) more GPU memory '
    'than the limit, such as "4 GiB"; of="process" also counts memory in use before the test; rehearse="h100-80gb", '
    "here and below, runs the test without a GPU, and rehearse=True uses the GPU named in memviz.toml",
    "limit_gpu_leaks(limit, runs=6, ignore=None): run the test several times and fail if each run leaks more than the "
    'limit, such as "1 MiB"; allocations whose stack has a frame matching the regular expression ignore do not count',
    'gpu_memory_baseline(tolerance="0%", of="test"): fail if the peak exceeds that of the baseline file next to the '
    "test",
)

NAMES = tuple(marker.partition("(")[0] for marker in MARKERS)

#: Whether any test of this process is or was measured.
USED = pytest.StashKey[bool]()

#: Options of the pytest process that rehearses a test: the device, and the file for its reports.
REHEARSE, REPORTS = "--memviz-rehearse", "--memviz-reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("memviz", "GPU memory limits")
    group.addoption("--memviz", action="store_true", help="measure all tests and show those with the highest peaks")
    group.addoption("--memviz-dir", metavar="DIR", help="keep the recordings of all measured tests in DIR")
    message = "write the baselines of tests with gpu_memory_baseline instead of comparing with them"
    group.addoption("--memviz-update-baselines", action="store_true", help=message)
    message = (
        "run all tests on this simulated GPU: one that `memviz rehearse --list` lists, or memviz.toml for the GPU in "
        "its [rehearse] section"
    )
    group.addoption(REHEARSE, metavar="GPU", help=message)
    group.addoption(REPORTS, help=argparse.SUPPRESS)
    parser.addini("memviz", "measure all tests, as --memviz does", type="bool", default=False)
    parser.addini("memviz_dir", "keep the recordings of all measured tests in this folder, as --memviz-dir does")
    parser.addini("memviz_most", "number of tests that --memviz shows", default="10")
    parser.addini("memviz_tolerance", "tolerance of gpu_memory_baseline if the marker has none", default="0%")
    message = (
        "if the machine has no GPU, rehearse tests with limits on this one, or memviz.toml for the GPU in its "
        "[rehearse] section"
    )
    parser.addini("memviz_rehearse", message)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the rehearsal before anything imports PyTorch."""
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
    """GPU memory of the test so far: `gpu_memory.peak`, in bytes. Without a GPU, the test is skipped."""
    from ._testing import running
    from ._testing.measurement import Gauge

    measurement = request.node.stash.get(running.MEASUREMENT, None)
    if measurement is None:
        pytest.skip(f"GPU memory: {running.why_not()}")
    return Gauge(measurement)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run a test that is rehearsed in another process."""
    if not _has_limits(item):
        return None
    from ._testing import running

    return running.run_rehearsed(item) or None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start recording before the fixtures are set up."""
    if _has_limits(item) or _is_summed_up(item.config) or "gpu_memory" in getattr(item, "fixturenames", ()):
        from ._testing import running

        item.config.stash[USED] = True
        running.begin(item)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Check the memory use of a test that passed."""
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
    # Exceptions of unittest tests do not propagate to this point.
    if getattr(item, "_excinfo", None):
        running.after_failure(item, measurement, None)
    else:
        running.after_success(item, measurement, _is_summed_up(item.config))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """End the recording of a test that did not reach its call phase."""
    try:
        return (yield)
    finally:
        if USED in item.config.stash:
            from ._testing import running

            running.end(item)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the peaks of all tests, and how many tests had limits that were not judged: these also show as passed."""
    # With pytest-xdist, the workers did the measuring in other processes.
    if not any(name.startswith("gpu_") for report in _reports(terminalreporter) for name, _ in report.user_properties):
        return
    from ._testing import running

    running.write_summary(terminalreporter, int(config.getini("memviz_most")) if _is_summed_up(config) else None)


def _reports(reporter: Any) -> Generator[pytest.TestReport]:
    for reports in reporter.stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove recordings that are not kept."""
    if USED in config.stash:
        from ._testing import running

        running.clean_up(config)


def _has_limits(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in NAMES)


def _is_summed_up(config: pytest.Config) -> bool:
    return bool(config.getoption("--memviz") or config.getini("memviz"))
