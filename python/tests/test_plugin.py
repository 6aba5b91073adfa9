"""Tests the pytest plugin with a real PyTorch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PROGRAMS, ROOT, TorchEnvironment

PYTEST = ("-m", "pytest", "-p", "torch_memviz.pytest_plugin", "-p", "no:randomly", "-rA", "--tb=short", "-v")


def outcomes(text: str) -> dict[str, str]:
    """Return the outcome of each test."""
    return {name: outcome.lower() for name, outcome in re.findall(r"::(test_\w+) (PASSED|FAILED|SKIPPED|ERROR)", text)}


def test_limits(torch: TorchEnvironment, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "limits.py", tmp_path / "test_limits.py")
    done = torch.run(*PYTEST, "--memviz-dir=kept", cwd=tmp_path, code=1)
    assert outcomes(done.stdout) == {
        "test_passes": "passed",
        "test_exceeds": "failed",
        "test_reserves_too_much": "failed",
        "test_leaks": "failed",
        "test_leaks_nothing": "passed",
        "test_keeps_what_it_makes_once": "passed",
        "test_cannot_be_known": "failed",
        "test_stays_the_same": "failed",
        "test_runs_out_of_memory": "failed",
        "test_fails": "failed",
        "test_has_no_limit": "passed",
        "test_comes_after_others": "passed",
        "test_what_earlier_tests_left_is_not_counted": "passed",
        "test_what_earlier_tests_left_is_counted": "failed",
        "test_exceeds_beside_what_is_left": "failed",
        "test_allocates_nothing": "failed",
        "test_case_leaks": "failed",
        "test_case_leaks_nothing": "passed",
        "test_case_fails": "failed",
    }
    failures = dict(re.findall(r"_{3,} (\S+) _{3,}\n(.*?)(?=\n_{3,} |\n={3,})", done.stdout, re.DOTALL))
    more = "more GPU memory than allowed: max-peak on device 0: 40.00 MiB (41943040 bytes), 8.00 MiB over"
    assert failures["test_exceeds"].startswith(more)
    assert "test_limits.py:23 test_exceeds" in failures["test_exceeds"]
    assert "test_limits.py:13 weights" in failures["test_exceeds"]
    assert "max-leak" in failures["test_leaks"]
    assert "test_limits.py:33 test_leaks" in failures["test_leaks"]
    assert "GPU memory is not known" in failures["test_cannot_be_known"]
    assert "there is no baseline" in failures["test_stays_the_same"]
    assert "OutOfMemoryError" in failures["test_runs_out_of_memory"]
    assert "recording: " in failures["test_runs_out_of_memory"]
    assert "its own reason" in failures["test_fails"]
    assert "its own reason, too" in failures["Case.test_case_fails"]
    assert "test_case_leaks" in failures["Case.test_case_leaks"]
    assert "28.00 MiB was in use when the test began" in failures["test_exceeds_beside_what_is_left"]
    # The missing baseline is the only failure.
    assert failures["test_allocates_nothing"].startswith("GPU memory is not known: there is no baseline")
    assert "max-" not in failures["test_allocates_nothing"]
    assert (tmp_path / "kept" / "test_limits.test_exceeds.html").is_file()
    assert (tmp_path / "kept" / "test_limits.test_passes.pickle").is_file()
    assert (tmp_path / "kept" / "test_limits.test_runs_out_of_memory_oom_attempt1.html").is_file()


def test_baselines(torch: TorchEnvironment, tmp_path: Path) -> None:
    test = tmp_path / "test_limits.py"
    shutil.copy(PROGRAMS / "limits.py", test)
    command = (*PYTEST, "-k", "stays_the_same")
    torch.run(*command, "--memviz-update-baselines", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "gpu-memory").iterdir()] == ["test_limits.test_stays_the_same.json"]
    torch.run(*command, cwd=tmp_path)
    test.write_text(test.read_text(encoding="utf-8").replace("20 << 20", "24 << 20"), encoding="utf-8")
    done = torch.run(*command, cwd=tmp_path, code=1)
    assert "baseline-peak" in done.stdout
    idle = (*PYTEST, "-k", "allocates_nothing")
    torch.run(*idle, "--memviz-update-baselines", cwd=tmp_path)
    torch.run(*idle, cwd=tmp_path)
    # Recordings of failed tests are always kept, those of passed tests are not.
    assert len(list((tmp_path / ".pytest_cache").rglob("*.pickle"))) == 1


#: The expected outcome of each node id in `same_names.py`.
SAME_NAMES = {
    "TestLittle::test_it": "PASSED",
    "TestLittle::test_parameters[a/b]": "PASSED",
    "TestLittle::test_parameters[a-b]": "FAILED",
    "TestLittle::test_parameters[A-b]": "PASSED",
    "TestMuch::test_it": "FAILED",
    "TestBaselineOfLittle::test_it": "PASSED",
    "TestBaselineOfMuch::test_it": "PASSED",
}


def verdicts(text: str) -> dict[str, str]:
    """Return the outcome of each test by node id, as reported by pytest at the end."""
    return {test: outcome for outcome, test in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", text, re.MULTILINE)}


def test_tests_of_one_name_share_no_file(torch: TorchEnvironment, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(PROGRAMS / "same_names.py", tmp_path / folder / "test_it.py")
    expected = {
        f"{folder}/test_it.py::{test}": outcome for folder in ("one", "two") for test, outcome in SAME_NAMES.items()
    }
    # In earlier versions, tests with these names shared a baseline.
    old = tmp_path / "one" / "gpu-memory" / "test_it.test_it.json"
    old.parent.mkdir()
    old.write_text("{}", encoding="utf-8")
    command = (*PYTEST, "--import-mode=importlib", "--memviz-dir=kept")
    done = torch.run(*command, "-k", "Baseline", cwd=tmp_path, code=1)
    assert "may be that of another test" in done.stdout
    done = torch.run(*command, "-k", "Baseline", "--memviz-update-baselines", cwd=tmp_path)
    assert "each test has its own baseline" in done.stdout
    baselines = sorted(path.name for path in (tmp_path / "one" / "gpu-memory").iterdir())
    assert baselines == ["test_it.TestBaselineOfLittle.test_it.json", "test_it.TestBaselineOfMuch.test_it.json"]
    has_workers = torch.has("xdist")
    done = torch.run(*command, *(["-n2"] if has_workers else []), cwd=tmp_path, code=1)
    assert verdicts(done.stdout) == expected
    kept = sorted(path.name for path in (tmp_path / "kept" / "two").glob("*.TestMuch.*.pickle"))
    assert len(kept) == 1
    assert re.fullmatch(r"test_it\.TestMuch\.test_it(\.gw[01])?\.pickle", kept[0])
    assert (".gw" in kept[0]) == has_workers
    assert not list((tmp_path / "kept").glob(".recording*"))


def test_the_peaks_of_all_tests(torch: TorchEnvironment, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "measured.py", tmp_path / "test_it.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmemviz_most = 2\nmemviz_tolerance = 50%\nmemviz_dir = kept\n")
    update = ("-k", "baseline", "--memviz-update-baselines")
    torch.run(*PYTEST, *update, cwd=tmp_path, SIZE="20")
    done = torch.run(*PYTEST, "--memviz", "--junit-xml=out.xml", cwd=tmp_path, code=1, SIZE="28")
    assert verdicts(done.stdout) == {
        f"test_it.py::{test}": outcome
        for test, outcome in {
            "test_with_the_value": "PASSED",
            "test_without_a_limit": "PASSED",
            "test_baseline": "PASSED",
            # A marker on a parameter takes precedence.
            "test_parameters[small]": "PASSED",
            "test_parameters[large]": "FAILED",
            "test_ignored": "PASSED",
            "test_not_ignored": "FAILED",
            "test_allocates_nothing": "PASSED",
        }.items()
    }
    summary = done.stdout.partition("= GPU memory of ")[2].splitlines()
    assert summary[0].startswith("8 tests")
    assert re.fullmatch(r" +40.00 MiB +40.00 MiB  test_it.py::test_without_a_limit  test_it.py:12 empty", summary[2])
    assert " 28.00 MiB " in summary[3]
    assert summary[4].startswith("6 more tests")
    assert 'name="gpu_peak_bytes" value="41943040"' in (tmp_path / "out.xml").read_text(encoding="utf-8")
    assert (tmp_path / "kept" / "test_it.test_without_a_limit.pickle").is_file()
    again = torch.run(*PYTEST, "-k", "baseline", cwd=tmp_path, code=1, SIZE="31")
    assert "baseline-peak" in again.stdout
    # Without a GPU, a test that uses the fixture is skipped.
    done = torch.run(*PYTEST, "-k", "value", cwd=tmp_path, gpu=False)
    assert "1 skipped" in done.stdout


def test_limits_of_rehearsed_tests(installation: TorchEnvironment, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "rehearsed_limits.py", tmp_path / "test_limits.py")
    budget = '[[budget]]\ninput = "run.pickle"\nmax-peak = "1GiB"\n'
    (tmp_path / "memviz.toml").write_text(f'[rehearse]\ngpu = "l4"\nmemory = "4GiB"\n{budget}')
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    python = installation.folder / "venv" / "bin" / "python"

    def run(*arguments: str) -> str:
        command = [str(python), *PYTEST, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8").stdout

    printed = run("--memviz-dir=kept")
    assert dict(re.findall(r"::(test_\w+)\S* (PASSED|FAILED|ERROR)", printed)) == {
        "test_passes": "PASSED",
        "test_exceeds": "FAILED",
        "test_runs_out_of_memory": "FAILED",
        "test_stays_the_same": "FAILED",
        "test_runs_on_the_device_of_the_configuration": "PASSED",
        "test_asks_for_two_gpus": "ERROR",
        "test_has_no_limit": "PASSED",
    }
    assert "more GPU memory than allowed: max-peak on device 0: 40.00 MiB (41943040 bytes), 8.00 MiB over" in printed
    assert "rehearsed for l4" in printed
    assert "test_limits.py:22 test_exceeds" in printed
    assert "GPU 0 has a total capacity of 22.03 GiB" in printed
    assert "expected one GPU to rehearse on, found l4 and h100-80gb" in printed
    assert (tmp_path / "kept" / "test_limits.test_passes.pickle").is_file()
    assert "1 passed" in run("-k", "stays_the_same", "--memviz-update-baselines")
    assert "1 passed" in run("-k", "stays_the_same")
    # All tests run in this process if the option and the marker name the same GPU.
    assert "1 passed" in run("-k", "passes", "--memviz-rehearse=h100")
    assert "1 passed" in run("-k", "configuration", "--memviz-rehearse=memviz.toml")


def test_without_a_gpu_tests_run_and_limits_are_not_judged(tmp_path: Path) -> None:
    test = (
        "import pytest\nimport unittest\n"
        "@pytest.mark.limit_gpu_memory('1 GiB')\ndef test_passes(): pass\n"
        "@pytest.mark.limit_gpu_leaks('1 MiB')\ndef test_fails(): assert False\n"
        "@pytest.mark.limit_gpu_leaks('1 MiB')\nclass Case(unittest.TestCase):\n    def test_case(self): pass\n"
    )
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    done = run_pytest(tmp_path)
    assert outcomes(done.stdout) == {"test_passes": "passed", "test_fails": "failed", "test_case": "passed"}
    assert re.search(r"^memviz: limits not judged of 3 tests: expected PyTorch", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        ("limit_gpu_memory('4 GoB')", "expected a size"),
        ("limit_gpu_memory('4 GiB', metric='cached')", "expected a metric of allocated or reserved"),
        ("limit_gpu_leaks('1 MiB', runs=2)", "expected at least 5 runs"),
        ("limit_gpu_leaks('1 MiB', ignore='(')", "expected a regular expression"),
        ("limit_gpu_memory('4 GiB', rehearse='gtx')", "expected one of a100-40gb"),
        ("limit_gpu_memory('4 GiB', rehearse=True)", "memviz.toml: "),
        ("limit_gpu_memory()", "limit_gpu_memory: missing 1 required positional argument"),
        ("limit_gpu_memory('4 GiB', of='me')", "expected of='test' or of='process', found 'me'"),
    ],
)
def test_a_marker_that_says_nothing(marker: str, reason: str, tmp_path: Path) -> None:
    test = f"import pytest\n@pytest.mark.{marker}\ndef test_it(): pass\n"
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert reason in done.stdout
    # One line, without a traceback of the plugin.
    assert "pytest_plugin.py" not in done.stdout


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder without PyTorch."""
    # If the package is installed, pytest finds the plugin itself and would load it twice.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, *PYTEST, "--strict-markers"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
