"""Tests what holds memory: the walk over the references of a program, and what memviz makes of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

import torch_memviz
from torch_memviz._binary import VARIABLE

from .conftest import FIXTURES, PROGRAMS, TorchEnvironment
from .test_rehearsal import rehearsed

#: Workspaces of cuBLAS on an H100, which have no holder.
CUBLAS = 65 << 20


def found_by_program(torch: TorchEnvironment, folder: Path) -> dict[str, Any]:
    done = torch.run(PROGRAMS / "holders.py", cwd=folder)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_kind_of_holder_is_named(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    found = found_by_program(any_torch, tmp_path)
    by_path = {path: (mib, kind) for mib, _, path, kind, _, _ in found["holders"]}
    assert by_path["main.net.fc.weight"] == (1, "parameter")
    assert by_path["main.net.table"] == (1, "buffer")
    assert by_path["main.net.fc.weight.grad"] == (1, "gradient")
    assert by_path["main.optimizer.state[fc.weight]['exp_avg']"] == (1, "optimizer_state")
    assert by_path["main.net.last"] == (1, "variable")
    assert by_path["main.history[0].grad_fn"][1] == "saved"
    assert by_path["main.enclosed"] == (13, "variable")
    assert by_path["main.cache['key']"] == (14, "variable")
    assert by_path["main.slotted.kept"] == (15, "variable")
    assert by_path["main.noisy"] == (16, "variable")
    assert by_path["main.caught.__traceback__(failing).lost"] == (11, "variable")
    assert by_path["main.running(generator).inside"] == (12, "variable")
    assert by_path["Cycle.kept"] == (18, "variable")
    [view] = [one for one in found["holders"] if one[2] == "main.view"]
    assert view[:2] == [17, 4]
    assert by_path["main.net.packed"] == (20, "buffer")
    # `multiprocessing` has a second name for the main module.
    assert [one[2:] for one in found["holders"] if one[0] == 21] == [["shared", "variable", "", 0]]
    assert 19 not in {mib for mib, _ in by_path.values()}


def test_a_walk_has_no_effect(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    found = found_by_program(any_torch, tmp_path)
    assert found["ran"] == []
    assert found["unchanged"]
    assert found["same"]
    assert found["freed"] == 15 + 16 + 17 + 11


def test_a_walk_is_attacked(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    done = any_torch.run(PROGRAMS / "attacks.py", cwd=tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ran"] == []
    assert {"main.odd.kept", "main.listed[0]", "main.slotted.kept", "main.named.…"} <= set(found["paths"])
    # The walk keeps nothing alive, and changes no variable of a running function.
    assert sorted(found["released"]) == ["__del__", "weakref"]
    assert found["died"]
    assert found["broken"] == []
    assert "generator.inside" in found["threads"]
    assert found["bounded"][0] in ("objects", "time")
    assert found["bounded"][1:] == [True, True, True]


def test_a_failed_request_is_recorded_with_its_holders(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    any_torch.run(PROGRAMS / "out_of_memory.py", cwd=tmp_path, mib=2048)
    path = tmp_path / "run_oom_attempt1.pickle"
    holders = json.loads(pickle.loads(path.read_bytes())["holders"])
    assert [walk["at"] for walk in holders["walks"]] == ["oom"]
    rows = torch_memviz.peak(path, by="holder", at="oom").devices[0].attribution.rows
    assert sum(row.bytes for row in rows if not row.label.startswith("(")) > 0
    assert not any(row.label == "(freed before the references were walked)" for row in rows)


@pytest.mark.parametrize("where", ["optimizer", "early", "growing"])
def test_the_peak_of_a_rehearsal_is_named(torch: TorchEnvironment, tmp_path: Path, where: str) -> None:
    rehearsed(torch, tmp_path, where, program="peaks.py")
    device = torch_memviz.peak(tmp_path / "run.pickle", by="holder").devices[0]
    rows = {row.label: row.bytes for row in device.attribution.rows}
    unnamed = sum(size for label, size in rows.items() if label.startswith("("))
    assert unnamed < CUBLAS + 0.1 * sum(rows.values()), rows
    if where == "optimizer":
        assert any(label.startswith("_multi_tensor_adam.") for label in rows)
    else:
        assert rows["(inside a backward pass: autograd alone holds it)"] >= 4 << 20, rows


def test_a_walk_takes_place_after_the_frees_before_it(torch: TorchEnvironment, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "import torch_memviz\n"
        "with torch_memviz.record('run.pickle', holders=True):\n"
        "    kept = torch.ones(8 << 20, device='cuda')\n"
        "    freed = torch.ones(16 << 20, device='cuda')\n"
        "    del freed\n"
    )
    torch.run(program, cwd=tmp_path)
    attribution = torch_memviz.peak(tmp_path / "run.pickle", by="holder").devices[0].attribution
    rows = {row.label: row.bytes >> 20 for row in attribution.rows}
    assert rows == {"kept": 32, "(freed before the references were walked)": 64}


def test_a_rehearsal_ends_although_a_graph_is_left_that_must_not_be_unpacked(
    any_torch: TorchEnvironment, tmp_path: Path
) -> None:
    recording, _ = rehearsed(any_torch, tmp_path, "checkpoint", program="peaks.py")
    assert json.loads(recording["holders"])["walks"][-1]["at"] == "end"


def test_holders_can_be_left_out(torch: TorchEnvironment, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch_memviz\n"
        "with torch_memviz.record('run.pickle', holders=False):\n"
        "    kept = torch.zeros(1 << 20, device='cuda')\n"
    )
    torch.run(program, cwd=tmp_path)
    assert "holders" not in pickle.loads((tmp_path / "run.pickle").read_bytes())


def test_pytorch_still_reads_the_recording(any_torch: TorchEnvironment, tmp_path: Path) -> None:
    any_torch.run(PROGRAMS / "out_of_memory.py", "caught", cwd=tmp_path)
    any_torch.run(
        "-m", "torch.cuda._memory_viz", "trace_plot", "run.pickle", "-o", "page.html", cwd=tmp_path, gpu=False
    )
    whole, page = (torch_memviz.peak(tmp_path / name).devices[0] for name in ("run.pickle", "page.html"))
    assert page.maxima == whole.maxima


def test_pytorch_reads_a_part_of_a_recording(any_installation: TorchEnvironment, tmp_path: Path) -> None:
    whole = FIXTURES / "gpt_train" / "snapshot.pickle.gz"
    window = ["--from", "entry:2000", "--to", "peak"]
    command = [os.environ[VARIABLE], "excerpt", "-q", str(whole), *window, "-o", str(tmp_path / "part.pickle")]
    subprocess.run(command, check=True)
    any_installation.run(
        "-m", "torch.cuda._memory_viz", "trace_plot", "part.pickle", "-o", "page.html", cwd=tmp_path, gpu=False
    )
    [expected] = torch_memviz.peak(whole, from_="entry:2000", to="peak").devices
    [page] = torch_memviz.peak(tmp_path / "page.html").devices
    assert (page.maxima, page.end) == (expected.maxima, expected.end)
