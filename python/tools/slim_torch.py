#!/usr/bin/env python3
"""Writes empty libraries in place of CUDA's, for a PyTorch that was installed without them and is only rehearsed.

    pip install --no-deps torch==2.11.0 nvidia-cuda-nvrtc==13.0.*       570 MB, instead of 3 GB with all dependencies
    python/tools/slim_torch.py FOLDER           the site-packages folder with PyTorch

The stand-in for CUDA defines the functions that PyTorch calls, so only the names of the libraries and their symbol
versions are missing. NVRTC, which compiles without a device, is the real one. Requires cc, nm and readelf.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

#: Libraries present on every system, by the start of their names.
OF_THE_SYSTEM = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "ld-linux", "libgomp.")

#: Functions of CUDA and related libraries.
OF_CUDA = re.compile(r"(?:__cuda|cu|nccl|nvrtc|nvml|nvshmem)[A-Za-z]*[A-Z_]")


def output(*command: str | Path) -> str:
    """Run a command and return its output."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def asked(site: Path, libraries: list[Path]) -> dict[str, dict[str, set[str]]]:
    """Return the missing libraries, with the functions required from each of their versions."""
    there = {path.name for path in (*libraries, *site.glob("nvidia/**/*.so*"))}
    names = [re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", output("readelf", "-d", path)) for path in libraries]
    missing = {name for found in names for name in found if name not in there and not name.startswith(OF_THE_SYSTEM)}
    versions: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in sorted(missing)}
    for path in libraries:
        for line in output("nm", "-D", "--undefined-only", path).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            # NVIDIA names versions after the library, or after NVSHMEM. For all other symbols, any library will do.
            owners = [
                name for name in missing if name == version or (version and name.startswith(f"lib{version.lower()}"))
            ]
            if owners or (not version and OF_CUDA.match(symbol)):
                # Rehearsals load a driver of their own.
                versions[min(owners or missing - {"libcuda.so.1"})][version].add(symbol)
    return versions


def main() -> None:
    """Write the libraries next to those of PyTorch, which search for them there."""
    site = Path(sys.argv[1])
    forget_requirements(site)
    folder = site / "torch" / "lib"
    found = sorted(site.glob("nvidia/**/libnvrtc-builtins.so.*"))
    builtins = ["-Wl,--no-as-needed", *map(str, found), *(f"-Wl,-rpath,{path.parent.resolve()}" for path in found)]
    with tempfile.TemporaryDirectory() as scratch:
        for name, versions in asked(site, sorted(folder.glob("*.so*"))).items():
            source, script = Path(scratch) / "empty.c", Path(scratch) / "empty.map"
            symbols = sorted({symbol for held in versions.values() for symbol in held})
            # Without the stand-in for CUDA, there is no device: cudaErrorNoDevice.
            source.write_text("".join(f"int {symbol}(void) {{ return 100; }}\n" for symbol in symbols))
            nodes = [
                f"{version} {{ {''.join(f'{it}; ' for it in held)}}};" for version, held in versions.items() if version
            ]
            script.write_text("\n".join(nodes))
            options = [f"-Wl,--version-script={script}"] if nodes else []
            # NVRTC opens a library by name only, which works if the library is already loaded.
            if name.startswith("libcudart"):
                options += builtins
            output("cc", "-shared", "-nostdlib", "-w", "-o", folder / name, source, f"-Wl,-soname,{name}", *options)


def forget_requirements(site: Path) -> None:
    """Prevent pip from installing those libraries with the next package that needs PyTorch."""
    [metadata] = site.glob("torch-*.dist-info/METADATA")
    lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
    # The attention backend that PyTorch prefers depends on the version of cuDNN that it was built for.
    for name, version in re.findall(r"Requires-Dist: (nvidia-cudnn[\w-]*)==([\d.]+)", "".join(lines)):
        about = site / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    left = (line for line in lines if not re.match(r"Requires-Dist: (?:cuda|nvidia|triton)", line))
    metadata.write_text("".join(left), encoding="utf-8")


if __name__ == "__main__":
    main()
