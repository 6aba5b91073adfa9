"""Checks whether the stand-in for CUDA can be loaded here, and loads it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .gpus import Gpu, RehearsalError

#: Describes the device to the library, and marks every process as rehearsed.
VARIABLE = "MEMVIZ_REHEARSAL"

#: Path of the folder to load the libraries from, instead of the one in this package.
FOLDER = "MEMVIZ_REHEARSAL_LIBRARIES"

#: Loaded in this order: PyTorch and Triton open the last two by name, and find the first through them.
LIBRARIES = ("libmemviz_rehearsal.so", "libcuda.so.1", "libnvidia-ml.so.1")

#: The first and the last PyTorch release whose rehearsals were compared with recordings from GPUs.
TRIED = ((2, 1), (2, 15))

#: Files that drivers create for a GPU: on Linux, and on Windows under WSL.
GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")

#: Version of cuDNN if no package shows it: the one that PyTorch shipped for years.
USUAL_CUDNN = "9.1.0"

#: The part of cuDNN that plans operations, in its package; and the first version that does so without a device.
PLANNER = "nvidia/cudnn/lib/libcudnn_graph.so.9"
FIRST_PLANNING = 90_800


@dataclass(frozen=True)
class Build:
    """The installed PyTorch, according to its files."""

    version: str
    #: For example, 13000 for CUDA 13.0.
    cuda: int


def folder() -> Path:
    """Return the folder of the libraries.

    Raises:
        RehearsalError: if they are not there.
    """
    path = Path(os.environ.get(FOLDER) or Path(__file__).with_name("lib"))
    if not (path / LIBRARIES[0]).is_file():
        raise RehearsalError(
            f"expected {LIBRARIES[0]} in {path}, found none: in a clone of memviz, "
            f"run rehearsal/build && {sys.executable} -m pip install --force-reinstall ./python"
        )
    return path


def build() -> Build:
    """Inspect the PyTorch that would be imported, without importing it.

    Raises:
        RehearsalError: if PyTorch is not installed, or not built for CUDA.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RehearsalError("expected PyTorch, which is not installed: pip install torch")
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    values = dict(re.findall(r"^(\w+)(?:\s*:[^=]*)?\s*=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE))
    version, cuda = values.get("__version__", "an unknown release"), values.get("cuda")
    if cuda is None:
        raise RehearsalError(
            f"expected PyTorch's build for CUDA, found {version}: install that one, which needs no GPU "
            "(on Linux, pip install torch installs it unless another index is set)"
        )
    major, minor = (int(part) for part in cuda.split(".")[:2])
    if major < 11:
        raise RehearsalError(f"expected PyTorch for CUDA 11 or later, found {version} for CUDA {cuda}")
    return Build(version, major * 1000 + minor * 10)


def is_tried(version: str) -> bool:
    """Whether this release is in the range of tested releases."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and TRIED[0] <= (int(found.group(1)), int(found.group(2))) <= TRIED[1]


def cudnn(cuda: int) -> tuple[int, Path | None]:
    """Return the version of cuDNN that PyTorch expects, and the library that plans for it without a device, if any.

    The version is in cuDNN's encoding: 9.1.0 is 90100, 8.9.2 is 8902.
    """
    planner = None
    try:
        package = importlib.metadata.distribution(f"nvidia-cudnn-cu{cuda // 1000}")
        version, planner = package.version, Path(str(package.locate_file(PLANNER)))
    except importlib.metadata.PackageNotFoundError:
        version = USUAL_CUDNN
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    number = major * (10_000 if major >= 9 else 1000) + minor * 100 + patch
    return number, planner if planner is not None and number >= FIRST_PLANNING and planner.is_file() else None


def has_gpu() -> bool:
    """Whether this machine has a GPU that CUDA could use."""
    return any(Path(device).exists() for device in GPU_FILES)


def describe(gpu: Gpu, memory: int, context: int, devices: int, placement: str) -> str:
    """Describe the devices in the format that the library reads.

    Raises:
        RehearsalError: if there is no PyTorch that can be rehearsed.
    """
    cuda = build().cuda
    version, planner = cudnn(cuda)
    values = {
        "name": gpu.name,
        "cuda": cuda,
        "cudnn": version,
        "devices": devices,
        "memory": memory,
        "context": context,
        "capability": gpu.capability,
        "multiprocessors": gpu.multiprocessors,
        "shared_per_block": gpu.shared_per_block,
        "shared_per_multiprocessor": gpu.shared_per_multiprocessor,
        "threads_per_multiprocessor": gpu.threads_per_multiprocessor,
        "blocks_per_multiprocessor": gpu.blocks_per_multiprocessor,
        "cache": gpu.cache,
        "bus": gpu.bus,
        "placement": placement,
    }
    if planner is not None:
        values["planner"] = planner
    return ";".join(f"{key}={value}" for key, value in values.items())


def why_not(despite_gpu: bool) -> str | None:
    """Return why a rehearsal is not possible in this process, or None if it is."""
    if sys.platform != "linux":
        return f"expected Linux, found {platform.system()}: rehearse in a container with Linux"
    if "torch" in sys.modules:
        return "expected a process that has not imported PyTorch yet: rehearse before that (memviz rehearse does)"
    if has_gpu() and not despite_gpu:
        return (
            "expected no GPU, found one: record on it, or rehearse without using it (--despite-gpu, despite_gpu=True)"
        )
    return None


class Library:
    """The stand-in, loaded into this process until it exits."""

    def __init__(self) -> None:
        where = folder()
        loaded = [ctypes.CDLL(str(where / name), mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES]
        self._library = loaded[0]
        self._library.memviz_rehearsal_reads.restype = ctypes.c_uint64
        self._library.memviz_rehearsal_refused.restype = ctypes.c_size_t
        self._library.memviz_rehearsal_refused.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._listener: object = None
        # Triton links its launchers with the driver library when it compiles them.
        os.environ.setdefault("TRITON_LIBCUDA_PATH", str(where))

    def on_read(self, listener: Callable[[int, int], None]) -> None:
        """Call a function for each value read from a device, with its bytes and the kind of read."""
        # Keep a reference, since the library does not.
        self._listener = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int)(listener)
        self._library.memviz_rehearsal_on_read(self._listener)

    def on_no_read(self) -> None:
        """Stop calling the listener."""
        self._library.memviz_rehearsal_on_read(None)

    def assume(self, size: int) -> None:
        """Return this value, instead of 0, for the next size that this thread reads from a device."""
        self._library.memviz_rehearsal_assume(ctypes.c_uint64(size))

    def cudnn(self) -> dict[str, int]:
        """Return the number of cuDNN operations so far: those of unknown, of planned and of uncertain workspaces.

        The last two numbers say by how many bytes an uncertain workspace may be smaller or larger than planned.
        """
        names = ("cudnn_operations", "cudnn_planned", "cudnn_uncertain", "cudnn_smaller", "cudnn_larger")
        counts = (ctypes.c_uint64 * len(names))()
        self._library.memviz_rehearsal_cudnn(ctypes.byref(counts))
        return dict(zip(names, counts, strict=True))

    def refused(self) -> list[str]:
        """Return the functions that failed because they cannot be rehearsed."""
        room = self._library.memviz_rehearsal_refused(None, 0)
        names = ctypes.create_string_buffer(room + 1)
        self._library.memviz_rehearsal_refused(names, room)
        return names.value.decode().splitlines()
