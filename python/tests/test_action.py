"""Runs the action's steps as scripts in a repository with a base branch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from torch_memviz._binary import binary

from .conftest import ROOT, fixture

#: A `gh` that logs its arguments, and finds an existing comment if told to.
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
[ -z "$GH_READ_ONLY" ] || case "$*" in *--method*) echo "gh: not accessible (HTTP 403)" >&2; exit 1 ;; esac
case "$*" in *--paginate*) printf '%s' "$GH_KNOWN" ;; esac
"""


@dataclass
class Repository:
    """A checkout of a pull request, with the environment that a runner provides to an action."""

    folder: Path
    contexts: dict[str, str]
    known_comment: str = ""

    def git(self, *arguments: str) -> None:
        """Run git."""
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True)

    def run(self, **inputs: str) -> dict[str, int]:
        """Run the steps of the action until one fails, and return their exit codes."""
        action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        values = {f"inputs.{name}": str(known.get("default", "")) for name, known in action["inputs"].items()}
        values.update({f"inputs.{name}": value for name, value in inputs.items()}, **self.contexts)
        assert all(name in inputs for name, known in action["inputs"].items() if known.get("required"))
        codes: dict[str, int] = {}
        for step in action["runs"]["steps"]:
            if "run" not in step:
                continue
            assert "${{" not in step["run"], "what a stranger wrote must not become a script"
            variables = {key: self.resolved(text, values) for key, text in step["env"].items()}
            code = self.step(step["run"], variables)
            codes[step["name"]] = code
            for line in (self.folder / "output").read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                values[f"steps.{step.get('id')}.outputs.{name}"] = value
            (self.folder / "output").write_text("", encoding="utf-8")
            if code != 0:
                break
        return codes

    @staticmethod
    def resolved(text: str, values: dict[str, str]) -> str:
        """Replace the expressions in a value: names, `a || b`, and `format` of names."""

        def value(expression: str) -> str:
            parts = [part.strip() for part in expression.split("||")]
            return next((found for found in map(one, parts) if found), "")

        def one(part: str) -> str:
            called = re.fullmatch(r"format\('(.*)', (.*)\)", part)
            if called is None:
                assert re.fullmatch(r"[\w.-]+", part), f"{part} is more than this test can evaluate"
                return values.get(part, "")
            return called.group(1).format(*(values.get(name.strip(), "") for name in called.group(2).split(",")))

        return re.sub(r"\$\{\{(.*?)\}\}", lambda found: value(found.group(1)), text)

    def step(self, script: str, variables: dict[str, str]) -> int:
        """Run a script as a runner does."""
        tools = self.folder.parent / "tools"
        environment = {
            **os.environ,
            **variables,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_WORKSPACE": str(self.folder),
            "GH_LOG": str(self.folder / "gh.log"),
            "GH_KNOWN": self.known_comment,
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=self.folder, env=environment, check=False).returncode

    def text(self, name: str) -> str:
        """Return the text of a file in the checkout, or an empty string if it does not exist."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text(GH, encoding="utf-8")
    (tools / "gh").chmod(0o755)
    (tools / "memviz").symlink_to(binary())
    folder = tmp_path / "checkout"
    folder.mkdir()
    pull_request = {
        "github.base_ref": "main",
        "github.repository": "someone/model",
        "github.event.pull_request.number": "7",
        "github.token": "secret",
        "github.job": "memory",
        "strategy.job-index": "2",
    }
    repository = Repository(folder, pull_request)
    # The main branch uses checkpointing, and has a baseline.
    shutil.copy(fixture("gpt_train_ckpt"), folder / "step.pickle")
    (folder / "memviz.toml").write_text('[[budget]]\ninput = "step.pickle"\nmax-peak = "4GiB"\n', encoding="utf-8")
    update = [str(binary()), "check", "step.pickle", "--baseline", "memory.json", "--update-baseline"]
    subprocess.run(update, cwd=folder, check=True, capture_output=True)
    repository.git("init", "--quiet")
    repository.git("add", "memviz.toml", "memory.json")
    repository.git("commit", "--quiet", "-m", "what main needs")
    repository.git("clone", "--quiet", "--bare", ".", "../origin.git")
    repository.git("remote", "add", "origin", (tmp_path / "origin.git").as_uri())
    repository.git("checkout", "--quiet", "-b", "more")
    (folder / "output").write_text("", encoding="utf-8")
    return repository


ALL = [
    "Look for memviz",
    "Install memviz",
    "Rehearse",
    "Check the budgets",
    "Report",
    "Compare with the base branch",
    "Comment",
    "Verdict",
]


def test_a_pull_request_that_needs_more(repository: Repository) -> None:
    shutil.copy(fixture("gpt_train"), repository.folder / "step.pickle")
    codes = repository.run(recordings="step.pickle", baseline="memory.json")
    assert codes == dict(zip(ALL, [0, 0, 0, 0, 0, 0, 0, 1], strict=True))
    summary, comment = repository.text("summary.md"), repository.text("memviz-report/comparison.md")
    assert "max-peak" in summary
    assert comment.startswith("<!-- memviz memory 2 -->")
    assert "compared with `main`" in comment
    assert "baseline-peak" in comment
    assert "minigpt.py:28 forward" in comment
    assert "--method POST repos/someone/model/issues/7/comments" in repository.text("gh.log")
    for name in ("step.pickle.html", "step.pickle.svg", "step.pickle.view.html", "memory.xml"):
        assert repository.text(f"memviz-report/{name}")


def test_a_pull_request_that_stays_within_its_budget(repository: Repository) -> None:
    repository.known_comment = "41\n"
    codes = repository.run(recordings="step.*", baseline="memory.json")
    assert codes == dict.fromkeys(ALL, 0)
    assert "--method PATCH repos/someone/model/issues/comments/41 " in repository.text("gh.log")


def test_what_is_rehearsed_is_judged(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    # Replaces the rehearsal, and writes the requested file.
    memviz = repository.folder.parent / "tools" / "memviz"
    memviz.unlink()
    script = '#!/bin/sh\n[ "$1" != rehearse ] || { printf "%s\\n" "$@" > asked; cp "$RECORDING" "$3"; exit; }\n'
    memviz.write_text(f'{script}exec {binary()} "$@"\n', encoding="utf-8")
    memviz.chmod(0o755)
    monkeypatch.setenv("RECORDING", str(fixture("gpt_train")))
    rehearse = "-o step.pickle -- python 'my train.py'"
    codes = repository.run(recordings="step.pickle", rehearse=rehearse)
    assert (codes["Rehearse"], codes["Verdict"]) == (0, 1)
    assert repository.text("asked").split("\n") == ["rehearse", "-o", "step.pickle", "--", "python", "my train.py", ""]


def test_a_recording_that_cannot_be_judged(repository: Repository) -> None:
    shutil.copy(fixture("ring"), repository.folder / "step.pickle")
    (repository.folder / "memviz.toml").write_text('[[budget]]\ninput = "step.pickle"\nmax-peak = "40GiB"\n')
    assert repository.run(recordings="step.pickle")["Verdict"] == 2


def test_without_a_pull_request_nothing_is_compared(repository: Repository) -> None:
    repository.contexts.clear()
    assert repository.run(recordings="step.pickle", baseline="memory.json") == dict.fromkeys(ALL, 0)
    assert not repository.text("gh.log")


def test_a_baseline_that_is_new(repository: Repository) -> None:
    assert repository.run(recordings="step.pickle", baseline="other.json") == dict.fromkeys(ALL, 0)
    assert not repository.text("gh.log")


def test_a_base_branch_that_cannot_be_fetched(repository: Repository) -> None:
    repository.git("remote", "set-url", "origin", "nowhere")
    assert repository.run(recordings="step.pickle", baseline="memory.json") == dict.fromkeys(ALL, 0)
    assert not repository.text("gh.log")


def test_no_recording_is_a_failure(repository: Repository) -> None:
    assert repository.run(recordings="nothing*.pickle") == dict(zip(ALL[:4], [0, 0, 0, 2], strict=True))


def test_the_documented_example_needs_no_configuration(repository: Repository) -> None:
    (repository.folder / "memviz.toml").unlink()
    shutil.copy(fixture("gpt_train"), repository.folder / "step.pickle")
    # Growth is shown, and fails the check if it exceeds a tolerance.
    assert repository.run(recordings="step.pickle", baseline="memory.json") == dict.fromkeys(ALL, 0)
    assert "baseline-peak" in repository.text("memviz-report/comparison.md")
    assert repository.run(recordings="step.pickle", baseline="memory.json", tolerance="100%")["Verdict"] == 0
    assert repository.run(recordings="step.pickle", baseline="memory.json", tolerance="2%")["Verdict"] == 1


def test_a_pull_request_from_a_fork_has_a_verdict(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GH_READ_ONLY", "1")
    shutil.copy(fixture("gpt_train"), repository.folder / "step.pickle")
    codes = repository.run(recordings="step.pickle", baseline="memory.json")
    assert (codes["Comment"], codes["Verdict"]) == (0, 1)
    assert "::warning::the comparison is in the summary but not in a comment" in capfd.readouterr().out


def test_jobs_and_files_of_one_name_stay_apart(repository: Repository) -> None:
    for folder in ("one", "two"):
        (repository.folder / folder).mkdir()
        shutil.copy(fixture("gpt_train_ckpt"), repository.folder / folder / "step.pickle")
    repository.run(recordings="*/step.pickle", baseline="memory.json", name="small model")
    reports = sorted(path.name for path in (repository.folder / "memviz-report").glob("*.view.html"))
    assert reports == ["step.pickle.2.view.html", "step.pickle.view.html"]
    assert repository.text("memviz-report/comparison.md").startswith("<!-- memviz small model -->")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    [upload] = [step for step in action["runs"]["steps"] if "upload-artifact" in step.get("uses", "")]
    values = {"inputs.name": "", "github.job": "memory", "strategy.job-index": "2"}
    assert Repository.resolved(upload["with"]["name"], values) == "gpu-memory memory 2"
