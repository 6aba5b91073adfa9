"""Shared fixtures: the binary, the project's recordings, and environments with PyTorch and a stand-in for CUDA."""

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

#: A folder with environments, each with a `venv` and a `lib`. `just torch-env` creates one.
TORCH = "MEMVIZ_TORCH_ENVS"
#: If this is 1, a missing environment of the main release is a failure.
REQUIRE_TORCH = "MEMVIZ_REQUIRE_TORCH"

#: If this is 1, a missing environment with cuDNN is a failure.
REQUIRE_CUDNN = "MEMVIZ_REQUIRE_CUDNN"

#: The release used for all tests. Other releases run only the tests that depend on the release.
MAIN = "2.11"


@pytest.fixture(scope="session", autouse=True)
def _binary() -> None:
    """Test the binary named by the variable, or installed with the package, or built in this checkout."""
    # Programs started by these tests must not take themselves for a pytest-xdist worker.
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    candidates = [*_installed(), ROOT / "target" / "debug" / "memviz"]
    found = next((path for path in candidates if path.is_file()), None)
    if found is not None:
        # Also for other environments.
        os.environ.setdefault(VARIABLE, str(found))


@dataclass(frozen=True)
class TorchEnvironment:
    """An environment with a PyTorch that sees a GPU."""

    release: str
    folder: Path

    @property
    def version(self) -> tuple[int, ...]:
        """The release as a tuple of numbers."""
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
        """Run Python with or without a GPU, wait for it, and fail unless it exits with this code."""
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
        """Whether a stand-in other than that of this project must be loaded before PyTorch."""
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
    """Return all environments with a stand-in for CUDA, by release."""
    has_own = (ROOT / "python" / "src" / "torch_memviz" / "_rehearsal" / "lib" / "libmemviz_rehearsal.so").is_file()
    return {name: it for name, it in torch_installations().items() if has_own or it.is_preloaded}


def torch_installations() -> dict[str, TorchEnvironment]:
    """Return all environments with PyTorch, with or without a stand-in for CUDA, by release."""
    root = Path(os.environ.get(TORCH) or ROOT / "target" / "torch-envs")
    found = sorted(path.parents[2] for path in root.glob("[0-9]*/venv/bin/python")) if root.is_dir() else []
    return {path.name: TorchEnvironment(path.name, path) for path in found}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `any_torch` with every release."""
    for name, known in {"any_torch": torch_environments, "any_installation": torch_installations}.items():
        if name in metafunc.fixturenames:
            environments: list[TorchEnvironment | None] = [*known().values()] or [None]
            metafunc.parametrize(name, environments, ids=lambda it: it.release if it else "missing", indirect=True)


@pytest.fixture
def any_torch(request: pytest.FixtureRequest) -> TorchEnvironment:
    """Yield each environment in turn."""
    return _present(request.param)


@pytest.fixture
def any_installation(request: pytest.FixtureRequest) -> TorchEnvironment:
    """Yield each release of PyTorch in turn."""
    return _present(request.param)


@pytest.fixture
def installation() -> TorchEnvironment:
    """The release used for all tests."""
    return _present(torch_installations().get(MAIN))


@pytest.fixture
def cudnn() -> TorchEnvironment:
    """The release used for all tests, with a cuDNN that plans workspaces without a GPU."""
    root = Path(os.environ.get(TORCH) or ROOT / "target" / "torch-envs")
    if (root / "cudnn" / "venv" / "bin" / "python").is_file():
        return TorchEnvironment(MAIN, root / "cudnn")
    reason = f"there is no PyTorch with cuDNN in {root}: python/tools/torch_env.sh --cudnn makes one"
    if os.environ.get(REQUIRE_CUDNN) == "1":
        pytest.fail(f"{REQUIRE_CUDNN}=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture
def torch() -> TorchEnvironment:
    """The environment with all libraries."""
    return _present(torch_environments().get(MAIN))


def torch_with(library: str) -> TorchEnvironment:
    """Return the environment of the latest release that has a library."""
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
    """Return a recording that is part of the source."""
    return FIXTURES / name / "snapshot.pickle.gz"
