"""Tests the options of rehearsals, and a program that runs without a GPU."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from torch_memviz import RehearsalError, rehearse
from torch_memviz._binary import VARIABLE
from torch_memviz._rehearsal import __main__, library, session
from torch_memviz._rehearsal.assumptions import Assumption
from torch_memviz._rehearsal.gpus import gpus, named
from torch_memviz._rehearsal.start import prepare

from .conftest import PROGRAMS, ROOT, TorchEnvironment

#: Third-party programs, and recordings that they made on GPUs, if available.
OTHERS = ROOT.parent / "shared"

#: For each program: the recording, the arguments, the file that it writes, and the releases with identical entries.
PROGRAMS_OF_OTHERS = {
    "charan": (
        "Charan6924-memory_snapshot",
        ("cs336_systems.benchmark", "--mode", "forward"),
        "memory_snapshot.pickle",
        ("2.1", "2.3", "2.6", "2.9", "2.11"),
    ),
    "niu": (
        "NiuHuangxiaozi-profile_memory_forward_and_backward_memory_snapshot_200",
        ("cs336_systems.profile_memory.profile_memory", "--mode", "forward_backward", "--context_length", "200"),
        "forward_and_backward_memory_snapshot_200.pickle",
        ("2.3", "2.6"),
    ),
}

#: Rehearses such a program within its own process.
IN_PROCESS = """
import runpy, sys, torch_memviz
with torch_memviz.rehearse("own.pickle", gpu="rtx4090"):
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__")
"""

#: Seconds after which a rehearsal is said to hang.
PATIENCE = 300

#: The folder of packages in an environment.
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def rehearsed(
    torch: TorchEnvironment,
    folder: Path,
    *arguments: str,
    code: int = 0,
    program: str | Path = "rehearsed.py",
    packages: tuple[Path, ...] = (),
    **options: Any,
) -> tuple[dict[str, Any], str]:
    """Rehearse a program of these tests, and return the recording and the output."""
    plan = {"gpu": "h100-80gb", "path": str(folder / "run.pickle"), **options}
    paths = os.pathsep.join(map(str, [ROOT / "python" / "src", *packages]))
    environment = {**os.environ, "PYTHONPATH": paths}
    python = str(torch.folder / "venv" / "bin" / "python")
    command = [
        python,
        "-m",
        "torch_memviz._rehearsal",
        json.dumps(plan),
        python,
        str(PROGRAMS / program),
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=PATIENCE
    )
    assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return recorded(folder / "run.pickle"), done.stdout


def recorded(path: Path) -> dict[str, Any]:
    """Read a recording."""
    recording = pickle.loads(path.read_bytes())
    assert isinstance(recording, dict)
    return recording


def facts(recording: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the rehearsal that a recording stores."""
    said = json.loads(recording["rehearsal"])
    assert isinstance(said, dict)
    return said


def peak(recording: dict[str, Any]) -> int:
    """Return the peak of requested bytes."""
    now = most = 0
    for entry in recording["device_traces"][0]:
        now += {"alloc": entry["size"], "free_completed": -entry["size"]}.get(entry["action"], 0)
        most = max(most, now)
    return most


def test_gpus_are_named_by_the_beginning_of_their_names() -> None:
    assert named("H100").key == "h100-80gb"
    assert named("RTX 3090") == named("rtx-3090") == named("NVIDIA_RTX3090")
    assert len({gpu.key for gpu in gpus()}) == len(gpus())
    assert f"{named('rtx3090').memory / 2**30:.2f} GiB" == "23.56 GiB"
    with pytest.raises(RehearsalError, match="expected one of v100-16gb, v100-32gb, found 'v100'"):
        named("v100")


def test_a_process_that_has_imported_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(RehearsalError, match="has not imported PyTorch yet"):
        rehearse(despite_gpu=True)


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "expected Linux" in str(library.why_not(despite_gpu=False))


def test_a_machine_with_a_gpu_is_refused_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(library, "GPU_FILES", (str(device),))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(RehearsalError, match=r"expected no GPU, found one: record on it, or .*despite_gpu=True"):
        rehearse()
    monkeypatch.setattr(sys, "argv", ["", json.dumps({"gpu": "l4", "path": "run.pickle"})])
    assert __main__.main() == 2
    assert re.fullmatch(r"memviz: expected no GPU, found one: .*--despite-gpu.*\n", capsys.readouterr().err)
    assert library.why_not(despite_gpu=True) is None
    device.unlink()
    assert library.why_not(despite_gpu=False) is None


def test_releases_that_nobody_tried_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(library.FOLDER, str(tmp_path))
    (tmp_path / library.LIBRARIES[0]).touch()
    (package / "version.py").write_text("__version__ = '3.1.0'\ncuda = '14.0'\n")
    for variable in (library.VARIABLE, session.PLAN, "PYTHONPATH"):
        monkeypatch.setenv(variable, "")
    prepare(path=tmp_path / "run.pickle", gpu="l4")
    assert [record.getMessage() for record in caplog.records] == [
        "rehearsal: PyTorch 3.1.0 has not been compared with a GPU, only 2.1 to 2.15 have: compare a short run first"
    ]


def test_what_is_installed_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    version = package / "version.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    version.write_text("from typing import Optional\n__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n")
    with pytest.raises(RehearsalError, match=r"expected PyTorch's build for CUDA, found 2\.11\.0\+cpu"):
        library.build()
    version.write_text("__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n")
    assert library.build() == library.Build("2.6.0+cu124", 12040)
    monkeypatch.setenv(library.FOLDER, str(tmp_path))
    with pytest.raises(RehearsalError, match=r"expected libmemviz_rehearsal\.so"):
        library.folder()


def test_a_process_whose_stand_in_cannot_be_loaded_does_not_go_on(tmp_path: Path) -> None:
    for name in library.LIBRARIES:
        (tmp_path / name).write_text("no library")
    site = Path(library.__file__).with_name("site")
    plan = session.Plan(gpu="l4", memory=1 << 34, context=0, path="run.pickle")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'python' / 'src'}",
        library.VARIABLE: "name=l4",
        library.FOLDER: str(tmp_path),
        session.PLAN: json.dumps(asdict(plan)),
    }
    command = [sys.executable, "-c", "print('went on')"]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"memviz: .*libmemviz_rehearsal\.so: .*\n", done.stderr)


def test_importing_the_package_loads_no_stand_in() -> None:
    code = "import torch_memviz; print('memviz_rehearsal' in open('/proc/self/maps').read())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "False\n"


def test_a_training_is_recorded_and_says_what_it_read(any_installation: TorchEnvironment, tmp_path: Path) -> None:
    recording, printed = rehearsed(any_installation, tmp_path)
    assert f"peak {peak(recording)}" in printed.splitlines()
    said = facts(recording)
    reads = [(read["code"], read["kind"], read["count"]) for read in said["reads"]]
    assert reads == [("print(output[output > 0].shape)", "size", 1), ("print(loss.item())", "value", 3)]
    assert said["cudnn_operations"] > 0
    assert said["refused"] == []


@pytest.mark.parametrize("name", PROGRAMS_OF_OTHERS)
@pytest.mark.parametrize("is_command", [True, False])
def test_programs_of_others_make_the_entries_of_a_gpu(
    any_installation: TorchEnvironment, tmp_path: Path, name: str, is_command: bool
) -> None:
    of_gpu, arguments, written, releases = PROGRAMS_OF_OTHERS[name]
    if any_installation.release not in releases:
        pytest.skip(f"PyTorch {any_installation.release} makes other entries")
    if not (OTHERS / "rehearsal" / name).is_dir() or not any_installation.has("einx"):
        pytest.skip("the programs are not at hand, or what they need")
    program = tmp_path / name
    shutil.copytree(OTHERS / "rehearsal" / name, program)
    for package in ("cs336_basics", "cs336_systems"):
        # They look up their own version.
        (program / f"{package}-0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 0\n"
        (program / f"{package}-0.dist-info" / "METADATA").write_text(metadata)
    paths = [ROOT / "python" / "src", program, program / "cs336-basics"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    python = str(any_installation.folder / "venv" / "bin" / "python")
    plan = json.dumps({"gpu": "rtx4090", "path": str(program / "own.pickle")})
    command = ["-m", "torch_memviz._rehearsal", plan, python, "-m"] if is_command else ["-c", IN_PROCESS]
    subprocess.run([python, *command, *arguments], cwd=program, env=environment, check=True, capture_output=True)
    recordings = [
        (program / written).read_bytes(),
        gzip.decompress((OTHERS / "real" / f"{of_gpu}.pickle.gz").read_bytes()),
    ]
    mine, theirs = (
        [(entry["action"], entry["size"]) for entry in pickle.loads(recording)["device_traces"][0]]
        for recording in recordings
    )
    assert mine == theirs


def test_attention_goes_through_cudnn_where_pytorch_prefers_it(installation: TorchEnvironment, tmp_path: Path) -> None:
    said = facts(rehearsed(installation, tmp_path, program="attention.py")[0])
    assert (said["cudnn_operations"], said["refused"]) == (2, [])
    said = facts(rehearsed(installation, tmp_path, program="attention.py", gpu="a100-40gb")[0])
    assert (said["cudnn_operations"], said["refused"]) == (0, [])


def package_of_cudnn(folder: Path, version: str) -> Path:
    """Write what pip installs of a cuDNN, and return its library, which is empty."""
    library = folder / "nvidia" / "cudnn" / "lib" / "libcudnn_graph.so.9"
    library.parent.mkdir(parents=True)
    library.touch()
    about = folder / f"nvidia_cudnn_cu13-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nvidia-cudnn-cu13\nVersion: {version}\n")
    return library


@pytest.mark.parametrize(("version", "number"), [("9.7.1.26", 90701), ("9.8.0.87", 90800), ("9.19.0.56", 91900)])
def test_a_cudnn_plans_from_9_8_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: int) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = package_of_cudnn(tmp_path, version)
    assert library.cudnn(13000) == (number, path if number >= 90800 else None)
    path.unlink()
    assert library.cudnn(13000) == (number, None), "only described, as in a slim installation"


def test_without_a_cudnn_that_plans_workspaces_are_unknown(installation: TorchEnvironment, tmp_path: Path) -> None:
    path = package_of_cudnn(tmp_path, "9.19.0.56")
    functions = ("CreateDescriptor", "DestroyDescriptor", "Finalize", "SetAttribute", "GetAttribute")
    # As cuDNN does where a library that it needs has no function of a name.
    source = "#include <stdlib.h>\n" + "".join(f"int cudnnBackend{name}(void) {{ abort(); }}\n" for name in functions)
    (tmp_path / "ends.c").write_text(source)
    for is_library in (False, True):
        if is_library:
            subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "ends.c"], check=True)
        said = facts(rehearsed(installation, tmp_path, packages=(tmp_path,))[0])
        assert said["cudnn_operations"] > 0
        assert (said["cudnn_planned"], said["cudnn_uncertain"], said["cudnn_larger"]) == (0, 0, 0)


@pytest.mark.parametrize("name", ["encoder", "gpt_amp", "no_grad", "sam", "varlen"])
def test_cudnn_plans_what_programs_request_on_a_gpu(cudnn: TorchEnvironment, tmp_path: Path, name: str) -> None:
    folder = ROOT / "fixtures" / "h100" / name
    mine, _ = rehearsed(cudnn, tmp_path, program=folder / "program.py")
    theirs = pickle.loads(gzip.decompress((folder / "snapshot.pickle.gz").read_bytes()))
    said = facts(mine)
    assert said["refused"] == []
    real = json.loads((folder / "truth.json").read_text())["max_requested_bytes"]
    assert peak(mine) - said["cudnn_smaller"] <= real <= peak(mine) + said["cudnn_larger"]
    assert abs(peak(mine) - real) < real / 100
    sizes = [
        [entry["size"] for entry in recording["device_traces"][0] if entry["action"] == "alloc"]
        for recording in (mine, theirs)
    ]
    assert len(sizes[0]) == len(sizes[1])
    different = [(planned, size) for planned, size in zip(*sizes, strict=True) if planned != size]
    assert len(different) == {"sam": 50, "varlen": 13}.get(name, 0)
    assert len(different) <= said["cudnn_uncertain"]
    assert all(-said["cudnn_smaller"] <= size - planned <= said["cudnn_larger"] for planned, size in different)


def test_what_benchmark_chooses_is_uncertain(cudnn: TorchEnvironment, tmp_path: Path) -> None:
    for gpu in ("a100-40gb", "h100-80gb"):
        said = facts(rehearsed(cudnn, tmp_path, program="benchmark.py", gpu=gpu)[0])
        assert said["cudnn_uncertain"] == said["cudnn_planned"] > 0
        assert said["cudnn_larger"] > 0


def test_what_nonzero_finds_can_be_assumed(installation: TorchEnvironment, tmp_path: Path) -> None:
    recording, printed = rehearsed(installation, tmp_path, program="sizes.py", assume="nonzero=0.25")
    assert printed.split() == ["250", "250", "250"]
    said = facts(recording)
    assert said["assumed"] == "nonzero=0.25"
    assert ("found = numbers[numbers > 0]", "size") in [(read["code"], read["kind"]) for read in said["reads"]]
    (tmp_path / "shares.py").write_text("def share(tensor):\n    return 1 / tensor.dim() / 5\n")
    function = f"nonzero={tmp_path / 'shares.py'}:share"
    assert rehearsed(installation, tmp_path, program="sizes.py", assume=function)[1].split() == ["200", "200", "100"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonzero=2", "expected a share from 0 to 1, found 2"),
        ("unique=0.5", "expected the share that nonzero finds, .* found 'unique=0.5'"),
        ("nonzero=often", "expected the share that nonzero finds, .* found 'nonzero=often'"),
        ("nonzero=gone.py:share", "expected a Python file with the function share, found none at gone.py"),
    ],
)
def test_what_cannot_be_assumed(text: str, reason: str) -> None:
    with pytest.raises(RehearsalError, match=reason):
        Assumption.parse(text)


def test_models_are_built_without_their_weights(installation: TorchEnvironment, tmp_path: Path) -> None:
    if not installation.has("transformers"):
        pytest.skip("there is no transformers: `just torch-env` installs it")
    python = str(installation.folder / "venv" / "bin" / "python")
    subprocess.run([python, PROGRAMS / "pretrained.py", "save", tmp_path / "whole"], check=True, capture_output=True)
    (tmp_path / "bare").mkdir()
    shutil.copy(tmp_path / "whole" / "config.json", tmp_path / "bare")
    recordings = {}
    for name in ("whole", "bare"):
        arguments = ("load", str(tmp_path / name))
        recordings[name], _ = rehearsed(
            installation, tmp_path, *arguments, program="pretrained.py", no_weights=name == "bare"
        )
    assert facts(recordings["whole"])["without_weights"] == []
    assert facts(recordings["bare"])["without_weights"] == [str(tmp_path / "bare")]
    entries = [
        [(entry["action"], entry["size"]) for entry in recording["device_traces"][0]]
        for recording in recordings.values()
    ]
    assert entries[0] == entries[1]


def test_a_wheel_is_enough(installation: TorchEnvironment, tmp_path: Path) -> None:
    wheels = [*(ROOT / "target" / "python" / "wheels").glob("*.whl")]
    if not wheels:
        pytest.skip("there is no wheel: python/check builds one")
    python = tmp_path / "venv" / "bin" / "python"
    source = installation.folder / "venv" / "bin" / "python"
    subprocess.run([source, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels], check=True)
    site, torch_site = (subprocess.check_output([it, "-c", SITE], text=True).strip() for it in (python, source))
    (Path(site) / "torch.pth").write_text(torch_site)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", VARIABLE)}
    memviz = [tmp_path / "venv" / "bin" / "memviz", "rehearse", "--gpu", "rtx4090", "-o", "run.pickle", "--"]
    command = list(map(str, [*memviz, python, PROGRAMS / "rehearsed.py"]))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    recording = pickle.loads((tmp_path / "run.pickle").read_bytes())
    assert f"peak {peak(recording)}" in done.stdout.splitlines()
    assert "rehearsed for rtx4090" in done.stdout


def test_a_program_ends_after_its_steps(installation: TorchEnvironment, tmp_path: Path) -> None:
    said = facts(rehearsed(installation, tmp_path, steps=2)[0])
    assert said["ended"] == "2 steps were taken"
    assert [read["count"] for read in said["reads"]] == [1]


def test_a_loop_that_waits_for_a_value_is_ended(installation: TorchEnvironment, tmp_path: Path) -> None:
    said = facts(rehearsed(installation, tmp_path, "forever", most_reads=100)[0])
    assert "while not bool((counter > 0).all()):" in said["ended"]


def test_a_program_ends_at_its_time_limit(installation: TorchEnvironment, tmp_path: Path) -> None:
    said = facts(rehearsed(installation, tmp_path, "forever", time_limit=2, most_reads=0)[0])
    assert said["ended"] == "the time limit of 2 s was reached"


def test_a_signal_leaves_a_recording_that_is_listed(installation: TorchEnvironment, tmp_path: Path) -> None:
    files = tmp_path / "files.txt"
    with pytest.raises(FileNotFoundError):
        rehearsed(installation, tmp_path, "killed", code=-signal.SIGTERM, files=str(files))
    written = tmp_path / "run_signal_attempt1.pickle"
    assert files.read_text() == f"{written}\n"
    assert peak(recorded(written)) > 0


def test_what_ends_memviz_ends_the_program_with_a_recording(installation: TorchEnvironment, tmp_path: Path) -> None:
    python = str(installation.folder / "venv" / "bin" / "python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    command = [os.environ[VARIABLE], "rehearse", "--gpu=l4", "--", python, str(PROGRAMS / "rehearsed.py"), "waits"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as memviz:
        assert memviz.stdout is not None
        while memviz.stdout.readline() != "ready\n":
            assert memviz.poll() is None
        memviz.terminate()
        # The program runs to its end, with the same output.
        memviz.stdout.read()
    assert peak(recorded(tmp_path / "memory_signal_attempt1.pickle")) > 0


def test_blocks_that_other_streams_use_are_named(installation: TorchEnvironment, tmp_path: Path) -> None:
    (left_out,) = facts(rehearsed(installation, tmp_path, program="streams.py")[0])["refused"]
    assert left_out.startswith("the time until other streams are done with a block")


def test_a_device_runs_out_of_memory(installation: TorchEnvironment, tmp_path: Path) -> None:
    rehearsed(installation, tmp_path, code=1, memory=(500 << 20) + (64 << 20))
    recording = pickle.loads((tmp_path / "run_oom_attempt1.pickle").read_bytes())
    assert [entry["action"] for entry in recording["device_traces"][0]][-1] == "oom"
