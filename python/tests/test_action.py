"""Runs the action's steps as scripts in a repository with a base branch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from torch_memviz._binary import binary

from .conftest import ROOT, fixture

#: A `gh` that logs its arguments, finds an existing comment if told to, and refuses one that is too long for GitHub.
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
[ -z "$GH_READ_ONLY" ] || case "$*" in *--method*) echo "gh: not accessible (HTTP 403)" >&2; exit 1 ;; esac
case "$*" in "pr view"*) printf '%s' "$GH_KNOWN"; exit ;; esac
for word; do :; done
[ "$(wc -m < "${word#body=@}")" -le 65536 ] || { echo "gh: Body is too long (HTTP 422)" >&2; exit 1; }
cp "${word#body=@}" "$GH_POSTED"
"""


@dataclass
class Repository:
    """A checkout of a pull request, with the environment that a runner provides to an action."""

    folder: Path
    contexts: dict[str, str]
    known_comment: str = ""
    #: The outputs of the last run.
    outputs: dict[str, str] = field(default_factory=dict)

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
        (self.runner / "output").write_text("", encoding="utf-8")
        for step in action["runs"]["steps"]:
            has_failed = any(code != 0 for code in codes.values())
            if "run" not in step or (has_failed and step.get("if") != "always()"):
                continue
            assert "${{" not in step["run"], "what a stranger wrote must not become a script"
            variables = {key: self.resolved(text, values) for key, text in step["env"].items()}
            codes[step["name"]] = self.step(step["run"], variables)
            for line in (self.runner / "output").read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                values[f"steps.{step.get('id')}.outputs.{name}"] = value
            (self.runner / "output").write_text("", encoding="utf-8")
        self.outputs = {name: self.resolved(output["value"], values) for name, output in action["outputs"].items()}
        assert self.outputs["exit-code"] == str(codes["Verdict"])
        return codes

    @property
    def runner(self) -> Path:
        """The folder with what belongs to the runner."""
        return self.folder.parent / "runner"

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
        environment = {
            **os.environ,
            **variables,
            "PATH": f"{self.runner / 'tools'}{os.pathsep}{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.runner / "temp"),
            "GITHUB_OUTPUT": str(self.runner / "output"),
            "GITHUB_STEP_SUMMARY": str(self.runner / "summary.md"),
            "GITHUB_WORKSPACE": str(self.folder),
            "GH_LOG": str(self.runner / "gh.log"),
            "GH_POSTED": str(self.runner / "posted.md"),
            "GH_KNOWN": self.known_comment,
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=self.folder, env=environment, check=False).returncode

    def text(self, name: str) -> str:
        """Return the text of a file of the runner, or an empty string if it does not exist."""
        path = self.runner / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def report(self) -> Path:
        """The folder that is uploaded."""
        return Path(self.outputs["report"])

    def memviz(self, script: str) -> None:
        """Replace memviz by a script, in which `memviz` runs the real one."""
        path = self.runner / "tools" / "memviz"
        path.unlink()
        path.write_text(f'#!/bin/sh\nmemviz() {{ "{binary()}" "$@"; }}\n{script}\n', encoding="utf-8")
        path.chmod(0o755)

    def holds(self, recording: str, name: str = "step.pickle") -> None:
        """Replace the recording in the checkout."""
        shutil.copy(fixture(recording), self.folder / name)

    def budget(self, limit: str) -> None:
        """Replace the budgets in the checkout."""
        text = f'[[budget]]\ninput = "step.pickle"\nmax-peak = "{limit}"\n'
        (self.folder / "memviz.toml").write_text(text, encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "checkout"
    folder.mkdir()
    pull_request = {
        "github.base_ref": "main",
        "github.server_url": (tmp_path / "server").as_uri(),
        "github.repository": "someone/model",
        "github.event.pull_request.number": "7",
        "github.token": "secret",
        "github.job": "memory",
        "strategy.job-index": "2",
    }
    repository = Repository(folder, pull_request)
    tools = repository.runner / "tools"
    tools.mkdir(parents=True)
    (repository.runner / "temp").mkdir()
    (tools / "gh").write_text(GH, encoding="utf-8")
    (tools / "gh").chmod(0o755)
    (tools / "memviz").symlink_to(binary())
    # The main branch uses checkpointing, and has a baseline.
    repository.holds("gpt_train_ckpt")
    repository.budget("4GiB")
    update = [str(binary()), "check", "step.pickle", "--baseline", "memory.json", "--update-baseline"]
    subprocess.run(update, cwd=folder, check=True, capture_output=True)
    repository.git("init", "--quiet")
    repository.git("add", "memviz.toml", "memory.json")
    repository.git("commit", "--quiet", "-m", "what main needs")
    repository.git("clone", "--quiet", "--bare", ".", "../server/someone/model")
    # A pull request from a fork, whose own main branch accepts anything.
    (folder / "memory.json").write_text("{}", encoding="utf-8")
    repository.git("commit", "--quiet", "-a", "-m", "what the fork claims")
    repository.git("clone", "--quiet", "--bare", ".", "../server/stranger/model")
    repository.git("remote", "add", "origin", (tmp_path / "server" / "stranger" / "model").as_uri())
    repository.git("checkout", "--quiet", "-b", "more")
    return repository


ALL = [
    "Look for memviz",
    "Install memviz",
    "Rehearse",
    "Find the recordings",
    "Check the budgets",
    "Report",
    "Comment",
    "Verdict",
]
PASSED = dict.fromkeys(ALL, 0)
FAILED = {**PASSED, "Verdict": 1}
#: The steps if there is no recording.
NOT_FOUND = {**dict.fromkeys(ALL[:3], 0), "Find the recordings": 2, "Verdict": 2}


def test_a_pull_request_that_needs_more(repository: Repository) -> None:
    repository.holds("gpt_train")
    assert repository.run(recordings="step.pickle", baseline="memory.json", tolerance="2%") == FAILED
    summary, comment = repository.text("summary.md"), repository.text("posted.md")
    assert "max-peak" in summary
    assert comment.startswith("<!-- memviz memory 2 -->\n## GPU memory budgets: failed\n")
    assert "baseline-peak" in comment
    assert "minigpt.py:28 forward" in comment
    assert "--method POST repos/someone/model/issues/7/comments" in repository.text("gh.log")
    names = {"step.pickle.html", "step.pickle.svg", "step.pickle.view.html", "memory.xml", "memory.md"}
    assert {path.name for path in repository.report.iterdir()} == names


#: Recording, limit in memviz.toml, inputs of the action, and the verdict.
CASES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "met": ("gpt_train_ckpt", "4GiB", {}, "passed"),
    "exceeded": ("gpt_train", "4GiB", {}, "failed"),
    "cannot be judged": ("ring", "40GiB", {}, "unknown"),
    "cannot be read": ("", "4GiB", {}, "unknown"),
    "a file without budgets": ("gpt_train", "much", {}, "unknown"),
    "grown, only shown": ("gpt_train", "", {"baseline": "memory.json"}, "passed"),
    "grown, shown, and a budget exceeded": ("gpt_train", "4GiB", {"baseline": "memory.json"}, "failed"),
    "grown beyond the tolerance": ("gpt_train", "5GiB", {"baseline": "memory.json", "tolerance": "2%"}, "failed"),
    "grown within the tolerance": ("gpt_train", "5GiB", {"baseline": "memory.json", "tolerance": "100%"}, "passed"),
    "not comparable": ("ring", "", {"baseline": "memory.json", "tolerance": "100%"}, "unknown"),
    "no baseline": ("gpt_train", "5GiB", {"baseline": "other.json"}, "passed"),
    "no baseline, nothing to check": ("gpt_train", "", {"baseline": "other.json"}, "none"),
    "no baseline for the tolerance": ("gpt_train", "5GiB", {"baseline": "other.json", "tolerance": "2%"}, "unknown"),
    "no baseline for the tolerance, allowed": (
        "gpt_train",
        "5GiB",
        {"baseline": "other.json", "tolerance": "2%", "allow-missing-baseline": "true"},
        "passed",
    ),
    "a tolerance of nothing": ("gpt_train", "5GiB", {"tolerance": "2%"}, "unknown"),
}


@pytest.mark.parametrize("case", CASES)
def test_comment_summary_and_exit_code_are_one_verdict(repository: Repository, case: str) -> None:
    recording, limit, inputs, verdict = CASES[case]
    if recording:
        repository.holds(recording)
    else:
        (repository.folder / "step.pickle").write_text("not a recording", encoding="utf-8")
    if limit:
        repository.budget(limit)
    else:
        (repository.folder / "memviz.toml").unlink()
    codes = repository.run(recordings="step.pickle", **inputs)
    assert codes == {**PASSED, "Verdict": {"passed": 0, "none": 0, "failed": 1, "unknown": 2}[verdict]}
    summary = repository.text("summary.md")
    heading = f"## GPU memory budgets: {verdict}\n"
    assert summary.startswith(heading)
    assert ("| **failed** |" in summary) == (verdict == "failed")
    # The comment says what the summary says, before the reports there.
    comment = repository.text("posted.md").removeprefix("<!-- memviz memory 2 -->\n")
    assert comment.startswith(heading) if "baseline" in inputs else comment == ""
    assert summary.startswith(comment)


def test_growth_is_shown_although_it_is_not_judged(repository: Repository) -> None:
    repository.holds("gpt_train")
    (repository.folder / "memviz.toml").unlink()
    assert repository.run(recordings="step.pickle", baseline="memory.json") == PASSED
    comment = repository.text("posted.md")
    assert "over the baseline of" in comment
    assert "minigpt.py:28 forward" in comment


def test_a_comment_of_this_job_is_replaced(repository: Repository) -> None:
    repository.known_comment = "https://server/someone/model/pull/7#issuecomment-41\n"
    assert repository.run(recordings="step.*", baseline="memory.json") == PASSED
    assert "--method PATCH repos/someone/model/issues/comments/41 " in repository.text("gh.log")


def test_what_is_rehearsed_is_judged(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    # Replaces the rehearsal, and writes the requested file.
    repository.memviz(
        '[ "$1" != rehearse ] || { printf "%s\\n" "$@" > asked; cp "$RECORDING" "$3"; exit; }\nmemviz "$@"'
    )
    monkeypatch.setenv("RECORDING", str(fixture("gpt_train")))
    rehearse = "-o step.pickle -- python 'my train.py'"
    assert repository.run(recordings="step.pickle", rehearse=rehearse) == FAILED
    asked = (repository.folder / "asked").read_text(encoding="utf-8")
    assert asked.splitlines() == ["rehearse", "-o", "step.pickle", "--", "python", "my train.py"]


def test_without_a_pull_request_nothing_is_compared(repository: Repository) -> None:
    repository.contexts.clear()
    assert repository.run(recordings="step.pickle", baseline="memory.json", tolerance="2%") == PASSED
    assert "this is not a pull request" in repository.text("summary.md")
    assert not repository.text("gh.log")


@pytest.mark.parametrize("tolerance", ["", "2%"])
def test_a_base_branch_that_cannot_be_fetched(repository: Repository, tolerance: str) -> None:
    shutil.rmtree(repository.folder.parent / "server" / "someone")
    codes = repository.run(recordings="step.pickle", baseline="memory.json", tolerance=tolerance)
    assert codes["Verdict"] == (2 if tolerance else 0)
    assert "the branch main cannot be fetched" in repository.text("posted.md")


def test_each_pattern_names_a_recording(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    assert repository.run(recordings="nothing*.pickle") == NOT_FOUND
    assert repository.run(recordings="step.pickle  nothing*.pickle") == NOT_FOUND
    assert repository.run(recordings="gone.pickle step.pickle") == NOT_FOUND
    shown = capfd.readouterr().out
    assert "::error::expected recordings, found no file that matches gone.pickle" in shown
    assert "::error::there is no verdict: the step above that failed says why" in shown
    optional = {"optional-recordings": "gone.pickle\nnothing*.pickle st*.pickle"}
    assert repository.run(recordings="step.pickle", **optional) == PASSED


def test_a_memviz_that_is_killed_leaves_a_verdict(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    repository.memviz("kill -9 $$")
    assert repository.run(recordings="step.pickle")["Verdict"] == 2
    assert "::error::expected a verdict of memviz check, found exit code 137" in capfd.readouterr().out
    assert repository.text("summary.md").startswith("## GPU memory budgets: unknown\n")


#: What happens between the runs of memviz, or to the one with the verdict.
DISTURBED = {
    "the recording is replaced": """
        memviz "$@"
        code=$?
        case "$*" in check*--format=*) cp "$RECORDING" step.pickle ;; esac
        exit $code
    """,
    "no answer": 'case "$*" in *markdown*) exit 0 ;; *) exit 1 ;; esac',
    "killed after the answer": 'memviz "$@"; kill -9 $$',
}


@pytest.mark.parametrize("case", DISTURBED)
def test_one_run_gives_the_verdict(repository: Repository, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDING", str(fixture("gpt_train")))
    repository.memviz(DISTURBED[case])
    assert repository.run(recordings="step.pickle", baseline="memory.json")["Verdict"] == 2
    for name in ("summary.md", "posted.md"):
        found = re.findall(r"^## GPU memory budgets: (\w+)$", repository.text(name), re.MULTILINE)
        assert found == ["unknown"]


def test_growth_that_is_shown_is_no_budget(repository: Repository) -> None:
    def verdict(config: str) -> int:
        (repository.folder / "memviz.toml").write_text(config, encoding="utf-8")
        return repository.run(recordings="step.pickle", baseline="memory.json")["Verdict"]

    assert verdict('[[budget]]\ninput = "other.pickle"\nmax-peak = "4GiB"\n') == 2
    for name in ("summary.md", "posted.md"):
        assert "budgets: unknown\n\nExpected a verdict of memviz check, found none" in repository.text(name)
        assert "step.pickle: expected a budget" in repository.text(name)
    assert verdict('[rehearse]\ngpu = "a100-40gb"\n') == 0
    # The one of the base branch.
    repository.git("checkout", "--quiet", "main~1", "--", "memory.json")
    assert verdict('[[budget]]\ninput = "step.pickle"\nbaseline = "memory.json"\ntolerance = "any"\n') == 0


def test_a_long_verdict_is_shortened(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    budgets = (
        f'[[budget]]\nname = "{at} {"x" * 150}"\ninput = "step.pickle"\nmax-peak = "1GiB"\n' for at in range(2500)
    )
    (repository.folder / "memviz.toml").write_text("".join(budgets), encoding="utf-8")
    assert repository.run(recordings="step.pickle", baseline="memory.json") == FAILED
    assert "::warning::" not in capfd.readouterr().out
    whole = (repository.report / "memory.md").read_text(encoding="utf-8")
    summary, comment = repository.text("summary.md"), repository.text("posted.md")
    assert len(whole) > 1 << 20
    assert len(summary.encode()) < 1 << 20
    _, *lines, empty, last = comment.splitlines()
    assert lines[0] == "## GPU memory budgets: failed"
    assert whole.splitlines()[: len(lines)] == lines
    assert (empty, last) == ("", "Shortened: memory.md in the artifact of this job is the whole verdict.")
    assert summary.startswith("\n".join(lines))
    assert last in summary


def test_reports_that_a_summary_cannot_hold_are_omitted(repository: Repository) -> None:
    repository.memviz(
        'case "$*" in "report --quiet --format=markdown"*) yes | head -c 200000 ;; *) memviz "$@" ;; esac'
    )
    for name in "abcd":
        repository.holds("gpt_train_ckpt", f"{name}.pickle")
    repository.run(recordings="[a-d].pickle")
    summary = repository.text("summary.md")
    assert 400_000 < len(summary) < 500_000
    assert summary.endswith("\nShortened: 2 more reports are in the artifact of this job.\n")
    assert len(list(repository.report.glob("*.view.html"))) == 4


def test_a_pull_request_from_a_fork_has_a_verdict(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GH_READ_ONLY", "1")
    repository.holds("gpt_train")
    assert repository.run(recordings="step.pickle", baseline="memory.json") == FAILED
    shown = capfd.readouterr().out
    assert "::warning::the verdict is in the summary but not in a comment; gh: not accessible (HTTP 403)" in shown


#: Names that a shell, an option parser or an artifact could misunderstand.
NAMES = [
    "-o",
    "-",
    "--output=owned",
    "a b",
    "$(touch owned)",
    "`touch owned`",
    ";touch owned",
    "*",
    "@",
    "a:b?",
    "..x",
    "[a]",
    "a\n::warning::owned",
]


def test_names_are_only_names(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        repository.holds("gpt_train_ckpt", f"{name}.pickle" if name != "-" else name)
    # A single file without an extension, for a lone dash.
    (repository.folder / "memviz.toml").write_text('[[budget]]\ninput = "*"\nmax-peak = "4GiB"\n', encoding="utf-8")
    before = {path.name for path in repository.folder.iterdir()}
    codes = repository.run(**{"recordings": "*.pickle ..x.pickle -", "optional-recordings": "-*"})
    assert codes == PASSED
    assert {path.name for path in repository.folder.iterdir()} == before
    pages = [path.name for path in repository.report.glob("*.view.html")]
    # All of them, and the one that the repository has.
    assert len(pages) == len(NAMES) + 1
    assert all(re.fullmatch(r"\w[\w.-]*", page) for page in pages), pages
    assert repository.text("summary.md").count("1 budget met") == len(pages)
    assert not [line for line in capfd.readouterr().out.splitlines() if line.startswith("::")]


def test_each_recording_has_its_pages(repository: Repository) -> None:
    names = ["step.pickle", "step.pickle.view", "\n", "\n\n", "x" * 250, "x" * 251, "é" * 125]
    folder = repository.folder / "all"
    folder.mkdir()
    for name in names:
        shutil.copy(fixture("gpt_train_ckpt"), folder / name)
    (repository.folder / "memviz.toml").write_text('[[budget]]\ninput = "all/*"\nmax-peak = "4GiB"\n', encoding="utf-8")
    assert repository.run(recordings="all/*") == PASSED
    assert len(list(repository.report.iterdir())) == 3 * len(names) + len(["memory.md", "memory.xml"])


def test_a_program_of_the_checkout_does_not_replace_pip(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tools = repository.runner / "tools"
    (tools / "memviz").unlink()
    (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    (tools / "python3").chmod(0o755)
    # Without an installed memviz.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("pip", "runpy", "site"):
        (repository.folder / f"{name}.py").write_text("open('owned', 'w')\n", encoding="utf-8")
    assert repository.run(recordings="step.pickle", requirement="./nothing")["Install memviz"] == 1
    assert not (repository.folder / "owned").exists()
    assert "ERROR: Invalid requirement: './nothing'" in capfd.readouterr().err


#: Text that memviz would quote in an error.
SECRET = '[["secret"]]'
#: What is a link, and the file with the budgets.
LINKS = {
    "a recording": ("step.pickle", ""),
    "a recording in a folder": ("data", ""),
    "budgets": ("memviz.toml", ""),
    "a baseline": ("base.json", '[[budget]]\ninput = "step.pickle"\nbaseline = "base.json"\n'),
    "a baseline by its path": ("unused", '[[budget]]\ninput = "step.pickle"\nbaseline = "../outside/step.pickle"\n'),
}


@pytest.mark.parametrize("case", LINKS)
def test_links_do_not_lead_outside(
    repository: Repository, tmp_path: Path, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name, config = LINKS[case]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "step.pickle").write_text(SECRET, encoding="utf-8")
    if config:
        (repository.folder / "memviz.toml").write_text(config, encoding="utf-8")
    (repository.folder / name).unlink(missing_ok=True)
    (repository.folder / name).symlink_to(outside if name == "data" else outside / "step.pickle")
    recordings = {"recordings": "data/*" if name == "data" else "step.pickle"}
    assert repository.run(**recordings, baseline="memory.json") == NOT_FOUND
    shown = capfd.readouterr()
    [line] = [line for line in shown.out.splitlines() if "expected a file in the workspace or in RUNNER_TEMP" in line]
    assert line.startswith("::error::")
    assert "secret" not in shown.out + shown.err + repository.text("summary.md") + repository.text("posted.md")


def test_links_lead_to_files_of_the_job(repository: Repository) -> None:
    path = repository.runner / "temp" / "step.pickle"
    (repository.folder / "step.pickle").rename(path)
    (repository.folder / "step.pickle").symlink_to(path)
    (repository.folder / "memviz.toml").rename(repository.folder / "budgets.toml")
    (repository.folder / "memviz.toml").symlink_to("budgets.toml")
    assert repository.run(recordings=f"step.pickle {path}") == PASSED


def test_files_of_the_checkout_are_not_published(repository: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "comparison.md").write_text("secret", encoding="utf-8")
    folders = ("memviz-report", "report", "comment.md", "baseline.json", "answer.md")
    for name in folders:
        (repository.folder / name).symlink_to(outside)
    (repository.folder / "memory.xml").symlink_to(outside / "comparison.md")
    repository.run(recordings="step.pickle", baseline="memory.json")
    assert [path.read_text(encoding="utf-8") for path in outside.iterdir()] == ["secret"]
    assert "secret" not in repository.text("posted.md") + repository.text("summary.md")
    assert repository.report.parent.parent == repository.runner / "temp"
    assert all(path.is_file() and not path.is_symlink() for path in repository.report.iterdir())
    # Nor is a comment of an earlier run.
    assert repository.run(recordings="step.pickle") == PASSED
    assert repository.text("gh.log").count("--method") == 1


def test_jobs_and_files_of_one_name_stay_apart(repository: Repository) -> None:
    for folder in ("one", "two"):
        (repository.folder / folder).mkdir()
        repository.holds("gpt_train_ckpt", f"{folder}/step.pickle")
    repository.run(recordings="*/step.pickle one/*", baseline="memory.json", name="small model")
    reports = sorted(path.name for path in repository.report.glob("*.view.html"))
    assert reports == ["step.pickle.2.view.html", "step.pickle.view.html"]
    assert repository.text("posted.md").startswith("<!-- memviz small model -->")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    [upload] = [step for step in action["runs"]["steps"] if "upload-artifact" in step.get("uses", "")]
    values = {"inputs.name": "", "github.job": "memory", "strategy.job-index": "2"}
    assert Repository.resolved(upload["with"]["name"], values) == "gpu-memory memory 2"
