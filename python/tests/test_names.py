"""Tests names of recordings, which `memviz ranks` reads, sizes, and markers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import torch_memviz
from torch_memviz._recording.names import LAUNCHERS, file_name
from torch_memviz._recording.sizes import ring, shown, size

from .conftest import fixture


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [*(name for pair in LAUNCHERS for name in pair), "TORCHELASTIC_RESTART_COUNT"]:
        monkeypatch.delenv(variable, raising=False)


def test_a_process_alone_has_the_name_it_asked_for() -> None:
    assert file_name(Path("out/run.pickle")) == Path("out/run.pickle")
    assert file_name(Path("out/run")) == Path("out/run.pickle")
    assert file_name(Path("run.pickle"), "oom_attempt1") == Path("run_oom_attempt1.pickle")


def test_ranks_and_restarts_are_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert file_name(Path("run.pickle")) == Path("run_rank3.pickle")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert file_name(Path("run.pickle"), "oom_attempt1") == Path("run_rank3_restart2_oom_attempt1.pickle")


def test_a_launcher_of_one_process_gives_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert file_name(Path("run.pickle")) == Path("run.pickle")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert file_name(Path("run.pickle")) == Path("run_rank0.pickle")


@pytest.mark.parametrize("event", ["", "oom_attempt1", "signal_attempt12"])
def test_memviz_reads_ranks_from_these_names(event: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = []
    for rank in ("5", "12"):
        monkeypatch.setenv("RANK", rank)
        paths.append(file_name(tmp_path / "run2.pickle", event))
        shutil.copy(fixture("tiny"), paths[-1])
    rows = torch_memviz.ranks(*paths).to_rows()
    assert [(row["rank"], row["rank_source"]) for row in rows] == [(5, "path"), (12, "path")]


def test_attempts_are_no_ranks(tmp_path: Path) -> None:
    paths = [file_name(tmp_path / "run.pickle", f"oom_attempt{attempt}") for attempt in (2, 7)]
    for path in paths:
        shutil.copy(fixture("tiny"), path)
    assert {row["rank_source"] for row in torch_memviz.ranks(*paths).to_rows()} == {"order"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4 GiB", 4 << 30), ("1.5KiB", 1536), ("2 GB", 2 * 10**9), ("7", 7), (7, 7), (" 3 b ", 3)],
)
def test_sizes(text: str | int, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "4 GoB", "-1 GiB", "1 2 GiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        size(text)


def test_sizes_for_people() -> None:
    assert [shown(count) for count in (0, 1023, 1024, 3 << 30, 5 << 40)] == [
        "0 bytes",
        "1023 bytes",
        "1.00 KiB",
        "3.00 GiB",
        "5.00 TiB",
    ]


def test_a_ring_has_room_for_something() -> None:
    assert ring("2 GiB", "python") == 1 << 20
    assert ring("2 GiB", "all") < ring("2 GiB", "python")
    with pytest.raises(ValueError, match="at least"):
        ring("100 KiB", "python")


def test_what_a_recorder_refuses() -> None:
    for options, reason in [
        ({"path": "run.pickle.gz"}, "uncompressed"),
        ({"stacks": "c++"}, "stacks of python or all"),
        ({"steps": (3, 2)}, "first step"),
        ({"on_signal": "SIGNOTHING"}, "the name of a signal"),
        ({"ring": "1 KiB"}, "at least"),
    ]:
        with pytest.raises(ValueError, match=reason):
            torch_memviz.record(**options)  # type: ignore[arg-type]
