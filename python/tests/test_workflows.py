"""Checks workflows and the action with schemas and linters, and runs the release steps that work on any system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT

RELEASE = ROOT / ".github" / "workflows" / "release.yml"
EXAMPLE = ROOT / "examples" / "ci" / "github-actions.yml"
ACTION = ROOT / "action.yml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), EXAMPLE]


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the workflow from the book's page on CI to a file."""
    page = (ROOT / "docs" / "src" / "ci.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("documented") / "memory.yml"
    path.write_text(block, encoding="utf-8")
    return path


def test_files_follow_their_schema(documented: Path) -> None:
    files_of = {"github-actions": [ACTION], "github-workflows": [*WORKFLOWS, documented], "github-issue-forms": FORMS}
    assert FORMS
    for schema, files in files_of.items():
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout


def test_the_documentation_gives_inputs_that_there_are(documented: Path) -> None:
    known = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"]
    steps = yaml.safe_load(documented.read_text(encoding="utf-8"))["jobs"]["memory"]["steps"]
    [given] = [step["with"] for step in steps if step.get("uses") == "./memviz"]
    assert given.keys() <= known.keys()
    assert given.keys() >= {name for name, held in known.items() if held.get("required")}


def test_no_step_is_unsafe() -> None:
    if shutil.which("zizmor") is None:
        pytest.skip("zizmor is not installed")
    # Among them: actions are pinned by commit, and each job has the permissions that it needs.
    command = ["zizmor", "--offline", "--no-progress", "--no-config", *map(str, WORKFLOWS), str(ACTION)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout


def test_only_what_passed_the_checks_is_published() -> None:
    jobs = yaml.safe_load(RELEASE.read_text(encoding="utf-8"))["jobs"]
    assert jobs["checks"] == {"uses": "$/.github/workflows/ci.yml"}
    assert {"checks", "build", "source", "sbom"} == set(jobs["draft"]["needs"])
    # Nothing is public before the package index has it, and nothing at all is published from a fork or without a tag.
    assert "--draft " in release_script("Draft the release")
    assert (jobs["index"]["needs"], jobs["release"]["needs"]) == ("draft", "index")
    assert jobs["draft"]["if"] == "startsWith(github.ref, 'refs/tags/') && !github.event.repository.fork"
    permissions = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    write = {"contents": "write"}
    assert permissions == {"draft": write, "index": {"id-token": "write"}, "release": write}
    jobs = yaml.safe_load((RELEASE.parent / "main.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["deploy"]["needs"] == ["checks", "build"]


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.name)
def test_scripts_are_sound(path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    # The shell options of a runner. The step sets the variables.
    head = "#!/usr/bin/env bash\nset -eo pipefail\n"
    for script in scripts(yaml.safe_load(path.read_text(encoding="utf-8"))):
        # `recordings` intentionally splits into several words.
        command = ["shellcheck", "--severity=style", "--exclude=SC2086,SC2153,SC2206", "-"]
        done = subprocess.run(command, input=head + script, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout


def scripts(value: Any) -> list[str]:
    """Yield every shell script of a workflow or an action."""
    if isinstance(value, dict):
        is_shell = isinstance(value.get("run"), str) and value.get("shell", "bash") == "bash"
        return ([value["run"]] if is_shell else []) + [script for held in value.values() for script in scripts(held)]
    if isinstance(value, list):
        return [script for held in value for script in scripts(held)]
    return []


def release_script(name: str) -> str:
    """Return the script of a step of the release."""
    jobs = yaml.safe_load(RELEASE.read_text(encoding="utf-8"))["jobs"].values()
    [script] = [step["run"] for job in jobs for step in job.get("steps", ()) if step.get("name") == name]
    return str(script)


def release_step(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the release in a folder, as a runner does."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", release_script(name)]
    environment = {**os.environ, **variables, "GITHUB_REF_NAME": "v1.2.3"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)


def wheel(folder: Path, size: int) -> Path:
    """Create a wheel with a program of a given size instead of memviz, and the files packed with it."""
    for name in ("README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"):
        shutil.copy(ROOT / name, folder)
    path = folder / "dist" / "torch_memviz-1.2.3-py3-none-manylinux_2_17_x86_64.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch_memviz-1.2.3.data/scripts/memviz", b"#" * size)
    return path


def test_a_release_packs_the_binary_of_the_wheel(tmp_path: Path) -> None:
    wheel(tmp_path, 16_000_000)
    done = release_step("Pack the binary", tmp_path, TARGET="x86_64-unknown-linux-gnu")
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "dist" / "memviz-v1.2.3-x86_64-unknown-linux-gnu.tar.gz") as archive:
        members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
    assert members.keys() == {"memviz", "README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"}
    assert members["memviz"].size == 16_000_000
    assert members["memviz"].mode & 0o111 == 0o111


def test_a_release_refuses_a_binary_that_is_too_large(tmp_path: Path) -> None:
    wheel(tmp_path, 16_000_001)
    done = release_step("Pack the binary", tmp_path, TARGET="x86_64-unknown-linux-gnu")
    assert done.returncode == 1
    assert "expected at most 16 MB, found 16000001 bytes" in done.stdout


#: The source distribution of the Python package.
SOURCE = "torch_memviz-1.2.3.tar.gz"


def test_a_release_has_everything_and_the_index_the_wheels(tmp_path: Path) -> None:
    path = wheel(tmp_path, 10)
    for name in ("memviz-sbom.json", SOURCE):
        (path.parent / name).write_text("{}", encoding="utf-8")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text('#!/bin/sh\nprintf "%s " "$@"\n', encoding="utf-8")
    (tools / "gh").chmod(0o755)
    search = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = release_step("Draft the release", tmp_path, PATH=search, GITHUB_REPOSITORY="someone/memviz")
    assert done.stdout.split() == [
        *("release", "create", "v1.2.3", "--repo", "someone/memviz", "--draft", "--generate-notes", "--"),
        *("SHA256SUMS", "memviz-sbom.json", path.name, SOURCE),
    ]
    assert len((path.parent / "SHA256SUMS").read_text(encoding="utf-8").splitlines()) == 3
    assert release_step("Select wheels and the source distribution for the package index", tmp_path).returncode == 0
    assert {file.name for file in (tmp_path / "wheels").iterdir()} == {path.name, SOURCE}
