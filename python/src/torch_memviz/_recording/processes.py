"""The processes that use a GPU and the memory of each, as reported by NVIDIA's driver."""

from __future__ import annotations

import csv
import ctypes
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

#: NVML's return codes for success, and for a buffer too small for the list of processes.
_SUCCESS, _TOO_SMALL = 0, 7
#: NVML's value for unknown memory, for example in a container or under WDDM.
_UNKNOWN = 2**64 - 1
#: Maximum length of a process name, in bytes.
_NAME = 256
#: Timeout, since `nvidia-smi` may hang when the driver hangs.
_SECONDS = 5


@dataclass(frozen=True)
class Process:
    """A process on a GPU."""

    pid: int
    #: Name of its program, without the folder.
    name: str | None
    #: None if the driver does not report it.
    bytes: int | None


@dataclass(frozen=True)
class Processes:
    """The processes on a GPU."""

    #: None if they cannot be listed.
    listed: list[Process] | None
    #: Source of the list: `nvml`, or `nvidia-smi`, which rounds to MiB.
    source: str | None = None
    #: Why they cannot be listed.
    missing: str | None = None


class _Info(ctypes.Structure):
    """`nvmlProcessInfo_t`, since version 2 of the function."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The library of NVIDIA's driver. It needs no CUDA context and can be called at any time."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @staticmethod
    def load() -> Nvml | str:
        """Load and initialize the library, or return why that failed."""
        name = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
        try:
            library = ctypes.CDLL(name)
            code = int(library.nvmlInit_v2())
        except (OSError, AttributeError) as error:
            return f"{name} cannot be loaded: {error}"
        return Nvml(library) if code == _SUCCESS else f"{name} returned error {code}"

    def processes(self, uuid: str) -> Processes:
        """List the CUDA and graphics processes on the GPU with this UUID."""
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        if code != _SUCCESS:
            return Processes(None, missing=f"NVML returned error {code} for {uuid}")
        found: dict[int, Process] = {}
        for kind in ("Compute", "Graphics"):
            infos = self._running(kind, handle)
            if isinstance(infos, str):
                return Processes(None, missing=infos)
            for info in infos:
                known = None if info.used == _UNKNOWN else int(info.used)
                found.setdefault(info.pid, Process(int(info.pid), self._name(info.pid), known))
        return Processes(sorted(found.values(), key=lambda process: process.pid), "nvml")

    def _running(self, kind: str, handle: ctypes.c_void_p) -> list[_Info] | str:
        names = [f"nvmlDeviceGet{kind}RunningProcesses_v{version}" for version in (3, 2)]
        function = next((getattr(self._library, name) for name in names if hasattr(self._library, name)), None)
        if function is None:
            return f"NVML has no {names[-1]}"
        room = 64
        while True:
            count, infos = ctypes.c_uint(room), (_Info * room)()
            code = function(handle, ctypes.byref(count), infos)
            if code == _SUCCESS:
                return list(infos[: count.value])
            # More processes may start between two calls.
            if code != _TOO_SMALL or room > 1 << 16:
                return f"NVML returned error {code} for its list of processes"
            room = 2 * max(room, count.value)

    def _name(self, pid: int) -> str | None:
        buffer = ctypes.create_string_buffer(_NAME)
        if self._library.nvmlSystemGetProcessName(ctypes.c_uint(pid), buffer, ctypes.c_uint(_NAME)) != _SUCCESS:
            return None
        return _program(buffer.value.decode(errors="replace"))


def of_nvidia_smi(uuid: str) -> Processes:
    """List the processes on a GPU with `nvidia-smi`."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Processes(None, missing="neither NVML nor nvidia-smi is available")
    query = [program, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, encoding="utf-8", timeout=_SECONDS, check=True)
        rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]
        listed = [
            Process(int(pid), _program(name), int(used) << 20 if used.isdecimal() else None)
            for gpu, pid, name, used in rows
            if gpu == uuid
        ]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Processes(None, missing=f"nvidia-smi failed: {error}")
    return Processes(listed, "nvidia-smi")


def _program(path: str) -> str | None:
    """Return the program's name without its folder and arguments, which may be private."""
    words = path.replace("\\", "/").split("/")[-1].split()
    return words[0] if words else None
