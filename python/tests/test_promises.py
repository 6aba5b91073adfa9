"""Checks what the first pages promise: install lines that work, a rehearsal after them, and speed as measured."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from torch_memviz._binary import binary

from .conftest import ROOT, fixture

#: Where people read what to install: documentation, examples and messages.
PLACES = [
    "*.md",
    "action.yml",
    "docs/src/**/*.md",
    "examples/**/*",
    "python/*.md",
    "python/notebooks/*",
    "skills/**/*.md",
]
MESSAGES = ["src/**/*.rs", "crates/**/*.rs", "python/src/**/*.py"]
#: A command that installs memviz from a clone or from an address.
INSTALL = re.compile(r"(?:pip|cargo) install [^\n`]*?(?:(?:\.|memviz)/python\b|--path \.|--git )")
#: A command that installs it from a package index, and a tag of a release. There is neither.
PUBLISHED = re.compile(r"\binstall\s[^\n`#]*?\s?(?:torch[-_]memviz|memviz)(?![\w/])|\bref: v\d")


def texts() -> dict[str, str]:
    """Return the text of each file that may say what to install."""
    found = [path for pattern in PLACES + MESSAGES for path in ROOT.glob(pattern) if path.is_file()]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def test_install_lines_work_without_a_release() -> None:
    for name, text in texts().items():
        assert PUBLISHED.search(text) is None, name
    # The step of a release that changes them.
    [step] = re.findall(r"^\d\. Until .*?(?=^\d\. )", texts()["CONTRIBUTING.md"], re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([\w./-]+\.\w+)`", step))
    assert named == {name for name, text in texts().items() if INSTALL.search(text)} - {"CHANGELOG.md"}


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_installing_from_a_clone_builds_the_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    clone, sdist = tmp_path / "clone" / "python", tmp_path / "torch_memviz-1.2.3"
    for package in (clone, sdist):
        (package / "tools").mkdir(parents=True)
        script = package.parent / "rehearsal" / "build"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\necho built > '{package}/stand-in'\n", encoding="utf-8")
        script.chmod(0o755)
    (sdist / "Cargo.toml").touch()
    maturin = types.ModuleType("maturin")
    maturin.__getattr__ = lambda name: lambda *_: f"{name} done"  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "maturin", maturin)
    monkeypatch.setattr(sys, "platform", platform)
    for package in (clone, sdist):
        path = package / "tools" / "backend.py"
        path.write_bytes((ROOT / "python" / "tools" / "backend.py").read_bytes())
        spec = importlib.util.spec_from_file_location("backend", path)
        assert spec is not None
        assert spec.loader is not None
        backend = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(backend)
        assert backend.build_wheel("wheels") == "build_wheel done"
        # What is next to a source distribution is not ours to run.
        assert (package / "stand-in").exists() == (package == clone and platform == "linux")


def test_a_closed_pipe_is_quiet() -> None:
    command = [sys.executable, "-m", "torch_memviz", "rehearse", "--list"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_gpus_are_listed_without_python(tmp_path: Path) -> None:
    listed = [str(binary()), "rehearse", "--list"]
    done = subprocess.run(listed, env={"PATH": str(tmp_path)}, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0
    rows = (ROOT / "python/src/torch_memviz/_rehearsal/gpus.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == [row.split(",")[0] for row in rows]
    assert re.search(r"^a100-40gb +NVIDIA A100-SXM4-40GB +39\.39 GiB$", done.stdout, re.MULTILINE)


def test_speed_is_what_was_measured() -> None:
    book = (ROOT / "docs/src/speed.md").read_text(encoding="utf-8")
    [results] = re.findall(r"`(\S+\.md)` in that folder", book)
    measured = (ROOT / "benches/results" / results).read_text(encoding="utf-8")
    # MB, and two times with memory, in the rows of the first table of each.
    row = re.compile(
        r"^\|.*?\b(\d+)(?: MB)? \|(?: [\d,]+ \|)? ([\d.]+ s, \d+ MiB) \| ([\d.]+ s, \d+ MiB) \| ([\d.]+) \|",
        re.MULTILINE,
    )
    rows = set(row.findall(book))
    assert len(rows) == 7
    assert rows <= set(row.findall(measured))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [(size, fast, slow)] = re.findall(
        r"a million entries \((\d+) MB\) takes ([\d.]+) s; `pickle.load` alone takes ([\d.]+) s", readme
    )
    [(theirs, ours)] = [(theirs, ours) for mb, theirs, ours, _ in rows if mb == size]
    assert (float(fast), float(slow)) == (round(float(ours.split()[0]), 1), round(float(theirs.split()[0]), 1))


@pytest.mark.skipif(sys.platform == "win32", reason="a script for Linux")
def test_the_slurm_example_takes_folders_for_folders(tmp_path: Path) -> None:
    (tmp_path / "--output=owned").mkdir()
    shutil.copy(fixture("tiny"), tmp_path / "--output=owned" / "rank0.pickle.gz")
    (tmp_path / "memviz").symlink_to(binary())
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    script = ROOT / "examples" / "ranks_slurm.sh"
    for arguments in (["summarize", "--output=owned", "-summaries"], ["join", "-summaries", "-picture.svg"]):
        subprocess.run(["bash", script, *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"--output=owned", "memviz", "-summaries", "-picture.svg"}


@pytest.mark.skipif(sys.platform == "win32", reason="a script for Linux")
def test_the_checks_say_what_they_need(tmp_path: Path) -> None:
    for name, script in {"cargo": "exit 0", "python3": "exit 0", "id": "echo 1000"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(Path("/bin/bash") if name == "bash" else Path("/usr/bin/dirname"))
    done = subprocess.run(
        ["/bin/bash", ROOT / ".ci" / "run"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1
    assert (
        done.stderr == "expected the packages chromium firefox-esr nodejs npm golang-go, which only root can install\n"
    )
