"""Records a test, judges it, and reports it at the end."""

from __future__ import annotations

import inspect
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .._binary import MemvizError
from .._recording import release
from .._recording.sizes import shown
from . import files, rehearsed
from .device import Device
from .limits import Limits, MarkerError, limits
from .measurement import Measurement

MEASUREMENT = pytest.StashKey[Measurement]()

#: The folder for this process's recordings.
SCRATCH = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()

#: Properties of a report: the measured values, or why limits were not judged or nothing was measured.
PEAK, RESERVED, LARGEST = "gpu_peak_bytes", "gpu_reserved_bytes", "gpu_largest_site"
NOT_JUDGED, NOT_MEASURED = "gpu_memory_not_judged", "gpu_memory_not_measured"


def rehearsed_on(item: pytest.Item) -> Device | None:
    """Return the device to rehearse a test on. An invalid marker is reported later, when the test is set up."""
    try:
        asked = limits(item)
    except MarkerError:
        return None
    return asked.rehearse if asked is not None else None


def run_rehearsed(item: pytest.Item) -> bool:
    """Run a rehearsed test in a separate process, since this process has PyTorch with another GPU or none."""
    device = rehearsed_on(item)
    if device is None or rehearsed.is_rehearsed(device) or rehearsed.why_not() is not None:
        return False
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in rehearsed.run(item, device):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def begin(item: pytest.Item) -> None:
    """Start recording a test, before its fixtures are set up."""
    try:
        asked = limits(item)
    except MarkerError as error:
        pytest.fail(str(error), pytrace=False)
    is_elsewhere = asked is not None and asked.rehearse is not None and not rehearsed.is_rehearsed(asked.rehearse)
    reason = rehearsed.why_not() if is_elsewhere else why_not()
    if reason is not None:
        # The test itself may still be able to run here.
        item.user_properties.append((NOT_JUDGED if asked is not None else NOT_MEASURED, reason))
        return
    root = _root(item.config)
    keep = bool(_folder(item.config))
    measurement = Measurement(asked or Limits(), root / files.recording(item), _scratch(item.config, root), keep)
    item.stash[MEASUREMENT] = measurement
    measurement.start()


def before_call(item: pytest.Item) -> Measurement | None:
    """Return the measurement of a test that is about to run. A test with a leak limit runs several times."""
    measurement = item.stash.get(MEASUREMENT, None)
    if measurement is not None and measurement.limits.leaks is not None:
        if not isinstance(item, pytest.Function) or inspect.iscoroutinefunction(item.obj):
            pytest.fail("limit_gpu_leaks: expected a plain function, found a coroutine", pytrace=False)
        item.obj = measurement.repeated(item.obj)
    return measurement


def after_failure(item: pytest.Item, measurement: Measurement, error: BaseException | None) -> None:
    """End the recording of a failed test, and keep it as evidence if the test ran out of memory."""
    measurement.stop(error)
    if measurement.recorder.failures:
        item.add_report_section("call", "memviz", measurement.evidence())


def after_success(item: pytest.Item, measurement: Measurement, is_summed_up: bool) -> None:
    """Check the memory use of a test that passed."""
    measurement.stop()
    if is_summed_up:
        _tell(item, measurement)
    wrong = measurement.judge(bool(item.config.getoption("--memviz-update-baselines")))
    if wrong is not None:
        pytest.fail(f"{wrong}\n\n{measurement.evidence()}", pytrace=False)


def end(item: pytest.Item) -> None:
    """End the recording of a test that did not reach its call phase."""
    measurement = item.stash.get(MEASUREMENT, None)
    if measurement is not None:
        measurement.stop()
        measurement.forget()
        del item.stash[MEASUREMENT]


def clean_up(config: pytest.Config) -> None:
    """Remove recordings that are not kept."""
    if SCRATCH in config.stash:
        config.stash[SCRATCH].cleanup()


def why_not() -> str | None:
    """Return why memory cannot be recorded here, or None if it can."""
    try:
        return release.why_not(release.torch())
    except release.RecordingError as error:
        return str(error)


def write_summary(reporter: Any, most: int | None) -> None:
    """Write the peaks of all measured tests, highest first, and which limits were not judged.

    Args:
        reporter: pytest's terminal reporter.
        most: Number of tests to show; None for no summary of peaks.
    """
    told = [(report, dict(report.user_properties)) for report in _reports(reporter)]
    if most is not None:
        _write_peaks(reporter, [(report.nodeid, properties) for report, properties in told], most)
    for name, what in {NOT_JUDGED: "limits not judged", NOT_MEASURED: "GPU memory not measured"}.items():
        reasons = Counter(properties[name] for _, properties in told if name in properties)
        for reason, count in reasons.items():
            tests = "1 test" if count == 1 else f"{count} tests"
            reporter.write_line(f"memviz: {what} of {tests}: {reason}", yellow=True)


def _reports(reporter: Any) -> Iterator[pytest.TestReport]:
    """Yield the report of each test's call phase, if it was reached."""
    for reports in reporter.stats.values():
        yield from (it for it in reports if isinstance(it, pytest.TestReport) and it.when == "call")


def _write_peaks(reporter: Any, tests: list[tuple[str, dict[str, Any]]], most: int) -> None:
    peaks = sorted(((it[PEAK], node, it) for node, it in tests if PEAK in it), key=lambda it: (-it[0], it[1]))
    if not peaks:
        return
    reporter.write_sep("=", f"GPU memory of {len(peaks)} tests")
    reporter.write_line(f"{'peak':>12} {'reserved':>12}  test, and the line that holds most")
    for peak, node, properties in peaks[:most]:
        largest = f"  {properties[LARGEST]}" if properties[LARGEST] else ""
        reporter.write_line(f"{shown(peak):>12} {shown(properties[RESERVED]):>12}  {node}{largest}")
    if len(peaks) > most:
        reporter.write_line(f"{len(peaks) - most} more tests; set memviz_most in pytest's configuration to show more")


def _tell(item: pytest.Item, measurement: Measurement) -> None:
    """Add the memory use of a test to its report, for the summary and the JUnit XML."""
    try:
        figures = measurement.figures()
    except MemvizError as error:
        item.user_properties.append((NOT_MEASURED, str(error)))
        return
    item.user_properties += [(PEAK, figures.peak), (RESERVED, figures.reserved), (LARGEST, figures.largest)]


def _folder(config: pytest.Config) -> str:
    return str(config.getoption("--memviz-dir") or config.getini("memviz_dir") or "")


def _root(config: pytest.Config) -> Path:
    """Return where recordings are kept: the selected folder, or pytest's cache."""
    folder = _folder(config)
    cache = getattr(config, "cache", None)
    if folder:
        return Path(config.invocation_params.dir, folder)
    if cache is not None:
        return Path(cache.mkdir("memviz"))
    return Path(tempfile.gettempdir()) / "memviz"


def _scratch(config: pytest.Config, root: Path) -> Path:
    """Return the folder for this process's recordings. Other workers and other runs have their own."""
    if SCRATCH not in config.stash:
        root.mkdir(parents=True, exist_ok=True)
        # On the same file system, so that recordings to keep only need to be moved.
        config.stash[SCRATCH] = tempfile.TemporaryDirectory(dir=root, prefix=".recording-", ignore_cleanup_errors=True)
    return Path(config.stash[SCRATCH].name)
