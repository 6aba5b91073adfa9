#!/usr/bin/env python3
"""Writes `symbols.txt`: the functions of CUDA's libraries that releases of PyTorch ask for.

    rehearsal/symbols.py FOLDER...      adds what the torch in each FOLDER (a site-packages) imports

Names stay in the list when a release no longer asks for them. Takes nm, of binutils.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).with_name("symbols.txt")

#: What PyTorch imports. NVRTC compiles without a device, so the real one does; NVSHMEM and cuFile are not rehearsed.
IMPORTED = re.compile(r"(?:__cuda|cuda|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nccl)[A-Z]\w*|cu[A-EG-Z]\w*|cuF(?!ile)\w*")

#: What it looks up at run time, by names that are text in its libraries.
NAMED = re.compile(
    rb"(?<![A-Za-z0-9_])(nvml[A-Z]\w{3,60}|cu(?:Ctx|Dev|Func|Get|Green|Kernel|Launch|Link|Logs|Mem|Module|Multicast|Stream|Tensor)\w{3,60})\x00"
)
NAMING = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so")

#: The driver's functions in Triton's launcher, which is compiled when it is needed.
CALLED = re.compile(r"\bcu[A-Z]\w+(?=\()|(?<=\")cu[A-Z]\w+(?=\")")


def names(site: Path) -> set[str]:
    """What the PyTorch in a folder asks for."""
    found: set[str] = set()
    for library in sorted(site.glob("torch/lib/lib*.so")):
        listed = subprocess.run(["nm", "-D", "--undefined-only", str(library)], check=True, capture_output=True, text=True)
        symbols = (line.split()[-1].split("@")[0] for line in listed.stdout.splitlines())
        found |= {symbol for symbol in symbols if IMPORTED.fullmatch(symbol)}
        if library.name in NAMING:
            found |= {name.decode() for name in NAMED.findall(library.read_bytes())}
    for launcher in site.glob("triton/backends/nvidia/driver.*"):
        found |= set(CALLED.findall(launcher.read_text()))
    return found


def main() -> None:
    """Add to the list what is asked for."""
    known = {line for line in LIST.read_text().splitlines() if line and line[0] != "#"} if LIST.exists() else set()
    for folder in sys.argv[1:]:
        known |= names(Path(folder))
    head = "# Functions of CUDA's libraries that PyTorch asks for, in any release from 2.1 on, and cuDNN. symbols.py adds to this list.\n"
    LIST.write_text(head + "".join(f"{name}\n" for name in sorted(known)))


if __name__ == "__main__":
    main()
