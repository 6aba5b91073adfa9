"""What tests share: the binary, the fixtures of the project, and environments with PyTorch over a stand-in for CUDA."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from torch_memviz._binary import VARIABLE, _installed

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "fixtures" / "snapshots"
PROGRAMS = Path(__file__).parent / "programs"

#: A folder with environments, each with a `venv` and a `lib`; `just torch-env` makes one.
TORCH = "MEMVIZ_TORCH_ENVS"
#: When this is 1, no environment of the main release is a failure.
REQUIRE_TORCH = "MEMVIZ_REQUIRE_TORCH"

#: The release that everything is tested with; others are tested with what depends on the release.
MAIN = "2.11"


@pytest.fixture(scope="session", autouse=True)
def _binary() -> None:
    """Test the binary that is named, or that was installed with the package, or that was built here."""
    # Programs of these tests are not run by a worker of these tests.
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    candidates = [*_installed(), ROOT / "target" / "debug" / "memviz"]
    found = next((path for path in candidates if path.is_file()), None)
    if found is not None:
        # For other environments, too.
        os.environ.setdefault(VARIABLE, str(found))


@dataclass(frozen=True)
class TorchEnvironment:
    """PyTorch that believes in a GPU."""

    release: str
    folder: Path

    @property
    def version(self) -> tuple[int, ...]:
        """The release as numbers."""
        return tuple(map(int, self.release.split(".")))

    def run(
        self,
        *arguments: str | Path,
        cwd: Path,
        code: int | None = 0,
        mib: int = 8192,
        gpu: bool = True,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run Python to its end, with a GPU or without one; fail unless it exits with this code."""
        python = str(self.folder / "venv" / "bin" / "python")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "python" / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
            **(self._stand_in(mib) if gpu else {"CUDA_VISIBLE_DEVICES": ""}),
            **variables,
        }
        command = [python, *map(str, arguments)]
        if gpu and not self.is_preloaded:
            plan = {"path": None, "gpu": "a100-40gb", "memory": mib << 20, "context": 0, "despite_gpu": True}
            command = [python, "-m", "torch_memviz._rehearsal", json.dumps(plan), *command]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", check=False)
        assert code is None or done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    @property
    def is_preloaded(self) -> bool:
        """Whether another stand-in than that of this project is to be loaded before PyTorch."""
        return (self.folder / "lib" / "libfakecuda.so").is_file()

    def _stand_in(self, mib: int) -> dict[str, str]:
        if not self.is_preloaded:
            return {}
        lib = self.folder / "lib"
        return {
            "LD_PRELOAD": str(lib / "libfakecuda.so"),
            "LD_LIBRARY_PATH": str(lib),
            "FAKECUDA_TOTAL_MIB": str(mib),
        }

    def has(self, module: str) -> bool:
        """Whether a module is installed."""
        command = [
            str(self.folder / "venv" / "bin" / "python"),
            "-c",
            f"import importlib.util as u; exit(not u.find_spec('{module}'))",
        ]
        return subprocess.run(command, check=False).returncode == 0


def torch_environments() -> dict[str, TorchEnvironment]:
    """All environments there are where something stands in for CUDA, by release."""
    has_own = (ROOT / "python" / "src" / "torch_memviz" / "_rehearsal" / "lib" / "libmemviz_rehearsal.so").is_file()
    return {name: it for name, it in torch_installations().items() if has_own or it.is_preloaded}


def torch_installations() -> dict[str, TorchEnvironment]:
    """All environments with PyTorch, whether anything stands in for CUDA there or not, by release."""
    root = Path(os.environ.get(TORCH) or ROOT / "target" / "torch-envs")
    found = sorted(path.parents[2] for path in root.glob("*/venv/bin/python")) if root.is_dir() else []
    return {path.name: TorchEnvironment(path.name, path) for path in found}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `any_torch` with every release."""
    for name, known in {"any_torch": torch_environments, "any_installation": torch_installations}.items():
        if name in metafunc.fixturenames:
            environments: list[TorchEnvironment | None] = [*known().values()] or [None]
            metafunc.parametrize(name, environments, ids=lambda it: it.release if it else "missing", indirect=True)


@pytest.fixture
def any_torch(request: pytest.FixtureRequest) -> TorchEnvironment:
    """Every environment in turn."""
    return _present(request.param)


@pytest.fixture
def any_installation(request: pytest.FixtureRequest) -> TorchEnvironment:
    """Every release of PyTorch in turn."""
    return _present(request.param)


@pytest.fixture
def installation() -> TorchEnvironment:
    """The release that everything is tested with."""
    return _present(torch_installations().get(MAIN))


@pytest.fixture
def torch() -> TorchEnvironment:
    """The environment with everything in it."""
    return _present(torch_environments().get(MAIN))


def torch_with(library: str) -> TorchEnvironment:
    """The environment of the latest release that has a library."""
    environments = sorted(torch_environments().values(), key=lambda it: it.version)
    found = [environment for environment in environments if environment.has(library)]
    if not found:
        pytest.skip(f"there is no PyTorch with {library}: python/tools/torch_env.sh makes one")
    return found[-1]


def _present(environment: TorchEnvironment | None, which: str = MAIN) -> TorchEnvironment:
    if environment is not None:
        return environment
    reason = f"there is no PyTorch {which} over a stand-in for CUDA: `just torch-env` makes some, {TORCH} names others"
    if os.environ.get(REQUIRE_TORCH) == "1":
        pytest.fail(f"{REQUIRE_TORCH}=1, but {reason}")
    pytest.skip(reason)


def fixture(name: str) -> Path:
    """A recording that ships with the source."""
    return FIXTURES / name / "snapshot.pickle.gz"
