"""Tests the recorder with a real PyTorch."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

import torch_memviz
from torch_memviz._recording import release
from torch_memviz._recording.counters import Counters
from torch_memviz._recording.release import lost

from .conftest import PROGRAMS, TorchEnvironment


def test_a_training_is_recorded_from_its_start(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    done = any_torch.run(PROGRAMS / "training.py", cwd=tmp_path)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["files"] == ["run.pickle"]
    answer = torch_memviz.peak(tmp_path / "run.pickle", by="category")
    assert answer.input.complete_history
    assert answer.input.anomalies.total == 0
    device = answer.devices[0]
    assert device.maxima.allocated_bytes == said["peak"]
    assert device.end.allocated_bytes == said["end"]
    [info] = torch_memviz.info(tmp_path / "run.pickle").devices
    assert info.steps == 5
    # Requests, and the current value of each counter at both ends and its peak.
    assert len(info.memory_stats or ()) == 13
    assert all(one.counted == one.replayed for one in info.memory_stats or ())
    assert len(torch_memviz.leaks(tmp_path / "run.pickle").devices) == 1
    if said["named"]:
        named = {row.label: row for row in device.attribution.rows}
        assert not named["parameter"].inferred
        assert not named["optimizer_state"].inferred
    assert bool(said["named"]) == (any_torch.version >= (2, 15))
    assert "Warning" not in done.stderr


def test_lost_parts_are_noticed(torch: TorchEnvironment, tmp_path: Path) -> None:
    torch.run(PROGRAMS / "training.py", cwd=tmp_path)
    whole = pickle.loads((tmp_path / "run.pickle").read_bytes())
    limit = torch_memviz.peak(tmp_path / "run.pickle").devices[0].maxima.allocated_bytes - 1

    def verdict(recording: dict[str, Any]) -> str:
        [outcome] = torch_memviz.check(recording, max_peak=f"{limit}B")
        return outcome.verdict

    assert verdict(whole) == "failed"
    cut: list[dict[str, Any]] = []
    for count in range(1, 12):
        trace = whole["device_traces"][0][count:]
        cut.append(whole | {"device_traces": [trace]})
        cut.append(whole | {"device_traces": [trace], "segments": whole["segments"][1:]})
    cut.append(whole | {"device_traces": [[]], "segments": []})
    for left in cut:
        assert verdict(left) != "passed"
    [differing] = torch_memviz.info(cut[1]).devices
    [requests] = [one for one in differing.memory_stats or () if one.at == "all" and one.name.startswith("allocation.")]
    assert requests.counted >= requests.replayed


def test_a_program_says_what_memory_is_for(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    done = any_torch.run(PROGRAMS / "categories.py", cwd=tmp_path)
    said = json.loads(done.stdout)
    rows = torch_memviz.peak(tmp_path / "run.pickle", by="category", at="end").devices[0].attribution.rows
    told = {row.label: row.bytes for row in rows if not row.inferred}
    within = {"kv_cache": 36 << 20, "communication": 8 << 20}
    if any_torch.version < (2, 10):
        assert not told.keys() & {*within, *said["sizes"]}
        assert said["named"] == 0
        return
    assert {name: told.get(name) for name in within} == within
    if any_torch.version < (2, 15):
        assert not told.keys() & said["sizes"].keys()
        assert said["named"] == 0
        return
    assert {name: told.get(name) for name in said["sizes"]} == said["sizes"]
    assert said["named"] == said["count"]


def test_a_request_that_fails_is_recorded_and_raised(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    done = any_torch.run(PROGRAMS / "out_of_memory.py", cwd=tmp_path, mib=2048, RANK="3", WORLD_SIZE="8")
    assert done.stdout.splitlines() == ["caught it", "1 run_rank3_oom_attempt1.pickle"]
    assert "no memory for 256.00 MiB; " in done.stderr
    answer = torch_memviz.oom(tmp_path / "run_rank3_oom_attempt1.pickle")
    [request] = answer.devices[0].ooms
    assert request.requested_bytes == 1 << 28
    assert request.request.label.startswith("out_of_memory.py:")
    assert answer.input.complete_history
    assert "<html" in (tmp_path / "run_rank3_oom_attempt1.html").read_text(encoding="utf-8")


def test_the_same_failure_has_the_same_signature_when_lines_move(torch: TorchEnvironment, tmp_path: Path) -> None:
    program = (PROGRAMS / "out_of_memory.py").read_text(encoding="utf-8")
    model = (PROGRAMS / "model.py").read_text(encoding="utf-8")
    moved = "\n".join(["#"] * 7 + [program.replace("    with torch_memviz", "    ...\n    with torch_memviz")])
    # Another run, then one whose lines moved, then one that fails elsewhere: the size class is another.
    runs = {"run": program, "again": program, "moved": moved, "other": program.replace("1 << 28", "1 << 27")}
    found = {}
    for name, text in runs.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "out_of_memory.py").write_text(text.replace("256.00 MiB", "", 1), encoding="utf-8")
        (folder / "model.py").write_text("\n\n" + model if name == "moved" else model, encoding="utf-8")
        torch.run(folder / "out_of_memory.py", cwd=folder, mib=2048)
        [failed] = torch_memviz.oom(folder / "run_oom_attempt1.pickle").devices[0].ooms
        assert failed.signature is not None
        found[name] = (failed.request.label, failed.signature)
    assert found["run"] == found["again"]
    assert found["run"][0] != found["moved"][0], "the line of the request has moved"
    assert found["run"][1] == found["moved"][1]
    assert found["run"][1].id != found["other"][1].id


def test_a_recorder_that_fails_hides_nothing(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "out_of_memory.py", "broken", cwd=tmp_path, mib=2048)
    assert done.stdout.splitlines() == ["caught it", "1"]
    assert "no space left" in done.stderr
    assert not list(tmp_path.iterdir())


def test_only_some_of_many_failures_are_kept(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "out_of_memory.py", "caught", cwd=tmp_path)
    attempts = [f"run_oom_attempt{attempt}.pickle" for attempt in range(1, 5)]
    assert done.stdout.splitlines() == [" ".join(["6", "run.pickle", *attempts])]
    assert "6 requests failed; the first 4 were kept" in done.stderr
    assert len(torch_memviz.oom(tmp_path / "run.pickle").devices[0].ooms) == 6


def test_a_run_leaves_its_own_files_or_none(torch: TorchEnvironment, tmp_path: Path) -> None:
    torch.run(PROGRAMS / "out_of_memory.py", "caught", cwd=tmp_path)
    for name in ("run_rank0.pickle", "run_restart1.pickle", "run_notes.pickle", "other_oom_attempt1.pickle"):
        (tmp_path / name).write_text("of an earlier run")
    torch.run(PROGRAMS / "out_of_memory.py", cwd=tmp_path, mib=2048)
    # Files with other names do not belong to this run.
    own = ["run_oom_attempt1.device.json", "run_oom_attempt1.html", "run_oom_attempt1.pickle"]
    kept = ["other_oom_attempt1.pickle", "run_notes.pickle", *own]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*kept, "run_rank0.pickle"]


def test_ranks_are_known_when_their_group_is_gone(torch: TorchEnvironment, tmp_path: Path) -> None:
    torch.run(PROGRAMS / "spawned.py", cwd=tmp_path, OMP_NUM_THREADS="1")
    names = ["run_rank0.pickle", "run_rank1.pickle"]
    assert sorted(path.name for path in tmp_path.glob("*.pickle")) == names
    held = [torch_memviz.peak(tmp_path / name).devices[0].maxima.allocated_bytes for name in names]
    assert held == [4 << 20, 8 << 20]


def test_workers_of_a_data_loader_write_nothing(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "workers.py", cwd=tmp_path)
    assert done.stdout.split() == ["alive", "alive", "run.pickle"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.device.json", "run.pickle"]


def test_a_ring_keeps_the_latest(torch: TorchEnvironment, tmp_path: Path) -> None:
    torch.run(PROGRAMS / "ring.py", cwd=tmp_path)
    answer = torch_memviz.info(tmp_path / "run.pickle")
    assert answer.input.entries == (4 << 20) // 2048
    assert not answer.input.complete_history
    assert answer.ring_overflowed


def test_whether_entries_were_lost() -> None:
    assert lost([3, 0], [3, 0], [3, 0]) is False
    assert lost([3, 0], [3, 1], [3, 1]) is True
    # Another thread continued in the meantime.
    assert lost([3, 0], [2, 0], [4, 0]) is None
    # The program has reset the statistics.
    assert lost([3, 2], [3, 1], [3, 1]) is None


def test_a_signal_asks_for_what_was_recorded(torch: TorchEnvironment, tmp_path: Path) -> None:
    done = torch.run(PROGRAMS / "signals.py", "SIGUSR1", cwd=tmp_path)
    names = ["run.pickle", "run_signal_attempt1.pickle", "run_signal_attempt2.pickle"]
    assert done.stdout.split() == names
    held = [torch_memviz.peak(tmp_path / name).devices[0].end.allocated_bytes for name in names[1:]]
    assert held == [4 << 20, 8 << 20]


def test_a_signal_that_ends_a_program_still_does(torch: TorchEnvironment, tmp_path: Path) -> None:
    torch.run(PROGRAMS / "signals.py", "SIGTERM", cwd=tmp_path, code=-signal.SIGTERM)
    names = ["run_signal_attempt1.device.json", "run_signal_attempt1.pickle"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_some_steps_of_a_training(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    done = any_torch.run(PROGRAMS / "late.py", cwd=tmp_path)
    assert "were allocated before the recording started" in done.stderr
    assert "refused expected no other running recording" in done.stdout
    answer = torch_memviz.info(tmp_path / "run.pickle")
    if any_torch.version >= (2, 6):
        assert {annotation.name for annotation in answer.annotations} >= {"step_1", "step_2"}
        assert not {annotation.name for annotation in answer.annotations} & {"step_0", "step_3"}
    # A recording that was not stopped is written when the program ends.
    left = torch_memviz.info(tmp_path / "left.pickle")
    assert left.input.entries > 0
    # Older memory was in an earlier recording, so nothing is lost in this one.
    assert left.devices[0].baseline_bytes > 0
    assert left.ring_overflowed is False
    [outcome] = torch_memviz.check(tmp_path / "left.pickle", max_peak="1GiB")
    assert outcome.verdict == "passed"


def test_without_a_gpu_nothing_happens(torch: TorchEnvironment, tmp_path: Path) -> None:
    code = "import torch_memviz as m\nwith m.record() as r:\n    r.step()\nprint(r.files, m.categories(None))"
    done = torch.run("-c", code, cwd=tmp_path, gpu=False)
    assert done.stdout.strip() == "[] 0"
    assert "nothing is recorded: there is no CUDA device" in done.stderr


def test_ranks_of_torchrun(torch: TorchEnvironment, tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    torch.run(*launcher, PROGRAMS / "ranks.py", cwd=tmp_path, OMP_NUM_THREADS="1")
    failed = sorted(tmp_path.glob("*oom*.pickle"))
    # torchrun terminates the other ranks when one fails.
    assert failed
    assert all(path.name in ("run_rank0_oom_attempt1.pickle", "run_rank1_oom_attempt1.pickle") for path in failed)
    again = sorted(path.name for path in tmp_path.glob("*restart*.pickle"))
    assert again == ["run_rank0_restart1.pickle", "run_rank1_restart1.pickle"]
    rows = torch_memviz.ranks(*(tmp_path / name for name in again)).to_rows()
    assert [(row["rank"], row["rank_source"]) for row in rows] == [(0, "path"), (1, "path")]


class Allocator:
    """A fake PyTorch with the parts that the recorder uses: a snapshot and counts of requests."""

    class cuda:  # noqa: N801
        """Stands in for `torch.cuda`."""

        class memory:  # noqa: N801
            """Stands in for `torch.cuda.memory`."""

            @staticmethod
            def _snapshot() -> dict[str, list[object]]:
                return {"segments": [], "device_traces": []}

        @staticmethod
        def device_count() -> int:
            return 0


def test_nothing_that_is_in_the_way_is_written_into(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "run.pickle"
    # The predictable name that earlier versions used.
    (tmp_path / f"run.pickle.{os.getpid()}.partial").symlink_to(victim)
    path.symlink_to(victim)
    release.dump(cast(ModuleType, Allocator), path, Counters([], []), {})
    assert victim.read_text() == "mine"
    assert not path.is_symlink()
    written = pickle.loads(path.read_bytes())
    assert sorted(written) == ["device_traces", "memory_stats", "segments", "trace_alloc_overflowed"]
    assert sorted(name.name for name in tmp_path.iterdir() if name.is_file() and not name.is_symlink()) == [
        "run.pickle",
        "victim",
    ]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "run.pickle"
    path.write_text("old")

    class Unwritable:
        def __reduce__(self) -> str:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"), release.replacing(path) as file:
        pickle.dump([b"half" * 100_000, Unwritable()], file)
    assert path.read_text() == "old"
    assert [name.name for name in tmp_path.iterdir()] == ["run.pickle"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_leaves_the_recording_alone(tmp_path: Path) -> None:
    recorder = torch_memviz.record(tmp_path / "run.pickle")
    recorder._torch, recorder._is_recording = Allocator, True
    child = os.fork()
    if child == 0:
        recorder.stop()
        os._exit(0 if recorder.files == [] and recorder.dump() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []
    assert recorder.dump("parent") == tmp_path / "run_parent.pickle"
    recorder.leave()


def test_programs_are_recorded_as_they_are(torch: TorchEnvironment, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN.lstrip(), encoding="utf-8")
    (tmp_path / "helper.py").write_text('word = "helped"\n', encoding="utf-8")
    done = torch.run("-m", "torch_memviz", "run", "-o", "out/run.pickle", "train.py", "--lr", "3", cwd=tmp_path, code=3)
    assert done.stdout.split() == ["['train.py',", "'--lr',", "'3']", "__main__", "helped"]
    assert torch_memviz.peak(tmp_path / "out" / "run.pickle").devices[0].maxima.allocated_bytes == 4 << 20
    assert torch_memviz.info(tmp_path / "out" / "run.pickle").input.complete_history
    line = re.search(
        r"^memviz: recorded .*run.pickle: device 0 peaks at 4.00 MiB, most at (\S+) .*$", done.stderr, re.M
    )
    assert line is not None
    assert line.group(1) == "train.py:6"
    done = torch.run("-m", "torch_memviz", "run", "-m", "this", cwd=tmp_path)
    assert "the program did not use a GPU" in done.stderr


#: A program that does not use memviz.
PLAIN = """
import sys
print(sys.argv, __name__)
import torch
import helper
print(helper.word)
torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
sys.exit(3)
"""


def test_ways_to_record(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    done = any_torch.run(PROGRAMS / "ways.py", cwd=tmp_path)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["live"] == 6 << 20
    assert said["idle"] == 6 << 20
    assert sorted(said["files"]) == ["again.pickle", "again_run2.pickle"]
    assert said["returned"] == [1, 2]
    if any_torch.version >= (2, 6):
        assert said["steps"] == [[0, 2 << 20, "ways.py:"], [1, 8 << 20, "ways.py:"]]
        assert said["during"] == [0, 2 << 20]


def test_cells_of_a_notebook(torch: TorchEnvironment, tmp_path: Path) -> None:
    if not torch.has("IPython"):
        pytest.skip("the environment has no IPython")
    done = torch.run(PROGRAMS / "magic.py", cwd=tmp_path)
    assert "32.00 MiB" in done.stdout
    assert "<Picture, " in done.stdout
    # The error is shown, and the recording up to it.
    assert "OutOfMemoryError" in done.stdout
    assert done.stdout.count("<Picture, ") == 2
    assert done.stdout.splitlines()[-1] == "cell.pickle"
