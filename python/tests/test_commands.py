"""Compares the functions of the package with the output of the binary."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import inspect
import io
import json
import keyword
import pickle
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import torch_memviz
from torch_memviz._binary import binary
from torch_memviz._table import SHOWN_ROWS, Answer, Answers, rows

from .conftest import FIXTURES, fixture

GPT, LATER, OOM = fixture("gpt_train"), fixture("gpt_train_ckpt"), fixture("oom")
FIT = FIXTURES.parent / "fit"
STORY = FIXTURES.parent / "stories" / "foreach_temporaries_rmsprop_flawed"
RANKS = [FIXTURES / "ranks8" / f"rank{rank}.pickle.gz" for rank in range(8)]

#: Arguments of each command.
QUESTIONS: dict[str, list[tuple[list[Path], dict[str, Any]]]] = {
    "triage": [([GPT], {}), ([OOM], {})],
    "info": [([GPT], {}), ([fixture("no_history")], {})],
    "peak": [([GPT], {"by": "category"}), ([OOM], {"at": "oom"}), ([GPT], {"each": "step"})],
    "blocks": [([GPT], {"top": 3}), ([GPT], {"at": "end"})],
    "fragmentation": [([GPT], {}), ([fixture("private_pool")], {})],
    "oom": [([OOM], {}), ([GPT], {})],
    "leaks": [([fixture("leak")], {"capacity": "24GiB"})],
    "ledger": [([FIXTURES.parent / "ledger" / "snapshot.pickle.gz"], {})],
    "nsys": [([FIXTURES.parent / "nsys" / "training.sqlite"], {}), ([FIXTURES.parent / "nsys" / "unfreed.sqlite"], {})],
    "checkpoint": [([GPT], {}), ([fixture("tiny")], {})],
    "simulate": [([OOM], {})],
    "fit": [
        ([FIT / f"minigpt_batch{size}" / "snapshot.pickle.gz" for size in (4, 8)], {"capacity": "4GiB"}),
        ([FIT / "minigpt_batch8" / "snapshot.pickle.gz"], {"capacity": "900MiB"}),
    ],
    "fix": [([STORY / "snapshot.pickle.gz"], {"source": STORY}), ([GPT], {"source": FIXTURES})],
    "diff": [([GPT, LATER], {"top": 5})],
    "check": [([GPT, LATER], {"max_peak": "4GiB", "max_leak": "1MiB"}), ([fixture("ring")], {"max_peak": "10GiB"})],
    "timeline": [([GPT], {"by": "category"}), ([OOM], {"points": 50})],
    "ranks": [(RANKS, {}), ([GPT, FIXTURES / "README.md"], {})],
}

#: Functions that are not named like their command.
NAMED = {"timeline": "curve"}


def function(command: str) -> Any:
    """Return the function that gives the answer of a command."""
    return getattr(torch_memviz, NAMED.get(command, command))


def commands() -> list[str]:
    """Return the commands with JSON output."""
    schema = json.loads(subprocess.run([binary(), "schema"], capture_output=True, check=True).stdout)
    return [answer["properties"]["command"]["const"] for answer in schema["oneOf"]]


def plain(value: Any) -> Any:
    """Convert a dataclass to the JSON that it was created from, without optional keys that are missing."""
    if isinstance(value, torch_memviz.answers.Said):
        return {"kind": value.kind, "text": value.text, **value.others}
    if dataclasses.is_dataclass(value):
        fields = [(field.name, getattr(value, field.name), field.default) for field in dataclasses.fields(value)]
        return {
            name.removesuffix("_") if keyword.iskeyword(name.removesuffix("_")) else name: plain(held)
            for name, held, default in fields
            if held is not default
        }
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def without_optional_null(found: Any, said: Any) -> Any:
    """Remove the keys from JSON that are null and that a dataclass omits."""
    if isinstance(said, dict) and isinstance(found, dict):
        return {
            key: without_optional_null(found.get(key), held)
            for key, held in said.items()
            if held is not None or key in found
        }
    if isinstance(said, list) and isinstance(found, list):
        assert len(found) == len(said)
        return [without_optional_null(one, other) for one, other in zip(found, said, strict=True)]
    return said


@pytest.mark.parametrize("command", sorted(QUESTIONS))
def test_a_function_gives_what_json_says(command: str) -> None:
    for paths, options in QUESTIONS[command]:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        line = [str(binary()), command, "--format=json", *flags, *map(str, paths)]
        text, values = subprocess.run(line, capture_output=True, encoding="utf-8", check=False).stdout, []
        while text := text.lstrip():
            value, end = json.JSONDecoder().raw_decode(text)
            values.append(value)
            text = text[end:]
        answer = function(command)(*paths, **options)
        found = plain(answer) if isinstance(answer, Answers) else [plain(answer)]
        assert values
        assert found == without_optional_null(found, values)


def test_every_command_has_a_function() -> None:
    assert sorted(commands()) == sorted(QUESTIONS)
    for command in commands():
        assert inspect.getdoc(function(command))


@pytest.mark.parametrize("command", sorted(set(QUESTIONS) - {"check"}))
def test_an_answer_is_a_table(command: str) -> None:
    paths, options = QUESTIONS[command][0]
    answer: Answer = function(command)(*paths, **options)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    line = [str(binary()), command, "--format=csv", *flags, *map(str, paths)]
    said = subprocess.run(line, capture_output=True, encoding="utf-8", check=False).stdout
    assert answer.to_rows()
    assert answer.to_rows() == rows(said)


@pytest.mark.parametrize("command", sorted(QUESTIONS))
def test_a_notebook_shows_the_table_of_each_answer(command: str) -> None:
    for paths, options in QUESTIONS[command]:
        answer: Answer = function(command)(*paths, **options)
        shown = answer._repr_html_()
        expected = min(len(answer.to_rows()), SHOWN_ROWS)
        assert shown.count("<tr>") == (expected + 1 if expected else 0)
        assert expected or shown == "<p>no rows</p>"


def test_rows_of_a_peak_sum_to_it() -> None:
    answer = torch_memviz.peak(GPT, by="category")
    peak = answer.devices[0].peak.allocated_bytes
    assert sum(row["bytes"] for row in answer.to_rows() if isinstance(row["bytes"], int)) == peak == 4_453_794_816


def test_pandas_and_arrow_get_whole_numbers() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    answer = torch_memviz.peak(GPT)
    frame, table = answer.to_pandas(), answer.to_arrow()
    assert str(frame["bytes"].dtype) == "Int64"
    assert int(frame["bytes"].sum()) == sum(table["bytes"].to_pylist()) == 4_453_794_816


def test_a_check_that_fails_is_an_answer() -> None:
    [outcome] = torch_memviz.check(GPT, max_peak="4GiB")
    assert (outcome.verdict, outcome.passed) == ("failed", False)
    [unknown] = torch_memviz.check(fixture("ring"), max_peak="10GiB")
    assert unknown.verdict == "unknown"
    read, unread = torch_memviz.check(GPT, "missing.pickle", max_peak="10GiB")
    assert read.passed
    assert isinstance(unread, torch_memviz.answers.UnreadInput)


def test_errors_carry_the_line_and_the_code() -> None:
    with pytest.raises(FileNotFoundError) as missing:
        torch_memviz.peak("missing.pickle")
    assert missing.value.filename == "missing.pickle"
    with pytest.raises(torch_memviz.MemvizError, match=r"^missing\.pickle: ") as raised:
        torch_memviz.peak("missing.pickle")
    assert raised.value.exit_code == 2
    assert "\n" not in raised.value.message
    with pytest.raises(torch_memviz.MemvizError) as raised:
        torch_memviz.diff(LATER, GPT, fail_on_growth="0%")
    assert raised.value.exit_code == 1


def test_options_are_those_of_the_command() -> None:
    with pytest.raises(TypeError, match=r"peak\(\) got an unexpected keyword argument 'bye'. Did you mean 'by'\?"):
        torch_memviz.peak(GPT, bye="site")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="found format"):
        torch_memviz.peak(GPT, format="csv")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="invalid value 'sites' for 'by'") as raised:
        torch_memviz.peak(GPT, by="sites")  # type: ignore[arg-type]
    assert isinstance(raised.value, torch_memviz.MemvizError)
    some = torch_memviz.peak(GPT, include=["minigpt", "cases"], no_infer=True, top=None, strict=False)
    assert not any(row.inferred for row in some.devices[0].attribution.rows)


def test_a_file_that_looks_like_an_option_is_a_file() -> None:
    with pytest.raises(torch_memviz.MemvizError, match=r"^--help: "):
        torch_memviz.peak("--help")


def test_pictures_show_themselves(tmp_path: Path) -> None:
    for picture in (torch_memviz.timeline(GPT, by="category"), torch_memviz.flamegraph(GPT)):
        assert picture.svg.lstrip().startswith("<svg")
        assert picture._repr_svg_() == picture.svg
        assert picture._repr_html_().startswith('<img src="data:image/svg+xml;base64,')
        picture.save(tmp_path / "picture.svg")
        assert (tmp_path / "picture.svg").read_text(encoding="utf-8") == picture.svg


def test_pages_are_shown_and_saved_and_never_printed(tmp_path: Path) -> None:
    for page in (torch_memviz.report(GPT), torch_memviz.view(GPT)):
        assert "<html" in page.text
        assert len(repr(page)) < 100
        assert str(page) == repr(page)
        shown = page._repr_html_()
        assert shown is not None
        assert shown.startswith('<iframe sandbox="allow-scripts"')
        assert "<html" not in shown
        page.save(tmp_path / "page.html")
        assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.text
    markdown = torch_memviz.report(GPT, format="markdown")
    assert (markdown._repr_html_(), markdown._repr_markdown_()) == (None, markdown.text)


def test_the_module_is_the_command() -> None:
    line = [sys.executable, "-m", "torch_memviz", "peak", "missing.pickle"]
    done = subprocess.run(line, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("memviz: missing.pickle: ")


def test_importing_needs_python_alone() -> None:
    # Slow modules are imported only when they are used: the answers alone take 40 ms.
    heavy = {"torch", "pandas", "pyarrow", "numpy", "dataclasses", "subprocess", "torch_memviz.answers"}
    for module in ("torch_memviz", "torch_memviz.pytest_plugin"):
        known = "pytest, argparse, collections, pathlib, tempfile"
        code = f"import {known}, sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert not heavy & set(done.stdout.split())


def test_every_name_of_the_package_is_there() -> None:
    names = set(torch_memviz.__all__) - {"__version__"}
    assert all(getattr(torch_memviz, name) is not None for name in names)
    assert names <= set(dir(torch_memviz))
    with pytest.raises(AttributeError, match="nothing"):
        torch_memviz.nothing  # noqa: B018
    with contextlib.suppress(metadata.PackageNotFoundError):
        assert torch_memviz.__version__ == metadata.version("torch-memviz")


def test_an_answer_prints_what_the_command_does() -> None:
    answer = torch_memviz.peak(GPT, by="category")
    line = [str(binary()), "peak", "--by=category", str(GPT)]
    printed = subprocess.run(line, capture_output=True, encoding="utf-8", check=True).stdout
    assert f"{answer}\n" == printed
    shown = answer._repr_html_()
    assert "<td>activation</td>" in shown
    assert "GiB</td>" in shown
    assert torch_memviz.fragmentation(GPT).picture().svg.lstrip().startswith("<svg")
    assert "failed" in str(torch_memviz.check(GPT, max_peak="4GiB"))
    assert str(torch_memviz.curve(GPT, points=5)).startswith("device,entry,time_us,")


@pytest.mark.parametrize("command", sorted(QUESTIONS))
def test_an_answer_has_a_picture_or_says_what_has_one(command: str) -> None:
    paths, options = QUESTIONS[command][0]
    answer: Answer = function(command)(*paths, **options)
    if "svg" in subprocess.run([binary(), command, "--help"], capture_output=True, encoding="utf-8").stdout:
        assert answer.picture().svg.lstrip().startswith("<svg")
    else:
        with pytest.raises(torch_memviz.MemvizError, match=rf"found that of {command}: timeline\(\), flamegraph"):
            answer.picture()


def test_a_check_is_a_table() -> None:
    pytest.importorskip("pandas")
    frame = torch_memviz.check(GPT, LATER, max_peak="4GiB", max_reserved="5GiB").to_pandas()
    assert list(frame["verdict"]) == ["failed", "passed", "passed", "passed"]
    assert frame["measured_bytes"][0] == 4_453_794_816
    assert set(frame["path"]) == {str(GPT), str(LATER)}


def test_an_answer_is_about_the_recording_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "run.pickle.gz"
    path.write_bytes(GPT.read_bytes())
    answer, drawn = torch_memviz.peak(path), torch_memviz.fragmentation(path)
    assert repr(answer) == "<PeakAnswer, 19 rows: print() shows it; .to_rows() and .to_pandas() return its table>"
    for held in (LATER.read_bytes(), None):
        if held is None:
            path.unlink()
        else:
            path.write_bytes(held)
        # The table is part of the answer; the text and the picture are not.
        assert answer.to_rows() == torch_memviz.peak(GPT).to_rows()
        assert "<td>minigpt.py:28 forward</td>" in answer._repr_html_()
        assert "found a different file or none" in str(answer)
        with pytest.raises(torch_memviz.MemvizError, match="found a different file"):
            drawn.picture()


def test_what_recordings_are_given_as(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = torch_memviz.peak(GPT).devices
    held = GPT.read_bytes()
    snapshot = pickle.loads(gzip.decompress(held))
    for given in (held, bytearray(held), io.BytesIO(held), snapshot):
        answer = torch_memviz.peak(given)
        assert answer.devices == expected
        assert answer.to_rows()
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run.pickle.gz").write_bytes(held)
    assert torch_memviz.peak("~/run.pickle.gz").devices == expected
    with pytest.raises(TypeError, match="found int"):
        torch_memviz.peak(7)  # type: ignore[arg-type]


def test_a_binary_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMVIZ_BINARY", str(tmp_path / "nothing"))
    with pytest.raises(torch_memviz.MemvizError, match="MEMVIZ_BINARY"):
        torch_memviz.peak(GPT)


@pytest.mark.parametrize("name", ["output_", "output__", "o_", "format_"])
@pytest.mark.parametrize("function", ["peak", "view", "timeline", "report", "check"])
def test_an_output_is_no_option(function: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=f"found {name}, which the function sets itself"):
        getattr(torch_memviz, function)(GPT, **{name: "x.html"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["output=x.json", "=", "", "_", "-o", "help", "help_", "help_common"])
def test_names_of_options_are_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for function in (torch_memviz.peak, torch_memviz.view):
        with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument '") as raised:
            function(GPT, **{name: True})  # type: ignore[arg-type]
        assert isinstance(raised.value, torch_memviz.MemvizError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["no\nsuch", "\n", "no such\x1b[31m", "no\u202esuch"])
def test_a_missing_file_of_any_name(path: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        torch_memviz.peak(path)
    assert missing.value.filename == path
    assert "\n" not in str(missing.value)
    # The file with the budgets is missing, not the recording.
    with pytest.raises(torch_memviz.MemvizError) as raised:
        torch_memviz.check(GPT, config=path)
    assert not isinstance(raised.value, FileNotFoundError)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 3_000_000])
def test_what_a_command_line_cannot_contain(text: str) -> None:
    for path, options in ((text, {}), (GPT, {"own": text})):
        with pytest.raises(torch_memviz.MemvizError, match=r"^expected paths and options that ") as raised:
            torch_memviz.peak(path, **options)  # type: ignore[arg-type]
        assert isinstance(raised.value, ValueError)
        assert "\n" not in str(raised.value)


#: Scripts in place of memviz, and the error.
BROKEN = {
    "exit 0": "expected an answer of .*/memviz, found no output",
    "echo Usage": "expected a JSON object of .*/memviz, found 'Usage",
    "echo 5": "expected a JSON object of .*/memviz, found '5",
    "echo '{'": "expected a JSON object of .*/memviz, found '{",
    "printf '\\377'": "expected UTF-8 from .*/memviz, found other bytes",
}


@pytest.mark.skipif(sys.platform == "win32", reason="runs scripts")
@pytest.mark.parametrize("script", BROKEN)
def test_a_binary_that_is_another_program(script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "memviz"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("MEMVIZ_BINARY", str(path))
    for function in (torch_memviz.peak, torch_memviz.check):
        with pytest.raises(torch_memviz.MemvizError, match=BROKEN[script]):
            function(GPT)


@pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")
@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_binary_that_does_not_run(mode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "memviz"
    path.write_text("not a program", encoding="utf-8")
    path.chmod(mode)
    monkeypatch.setenv("MEMVIZ_BINARY", str(path))
    said = f"expected a program in {path}, found a file that does not run: "
    with pytest.raises(torch_memviz.MemvizError, match=f"^{re.escape(said)}"):
        torch_memviz.peak(GPT)
    line = [sys.executable, "-m", "torch_memviz", "peak"]
    done = subprocess.run(line, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"memviz: {said}")
