"""Python runs this file first in processes started by `memviz rehearse`, and in their child processes."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path


def _rehearse() -> None:
    # This file is in `torch_memviz/_rehearsal/site`.
    root = str(Path(__file__).parents[3])
    is_new = root not in sys.path
    if is_new:
        sys.path.append(root)
    try:
        from torch_memviz._rehearsal.start import in_new_process
    finally:
        if is_new:
            sys.path.remove(root)
    in_new_process()


def _next() -> None:
    """Run the `sitecustomize` that this file hides."""
    here = str(Path(__file__).parent)
    paths = [path for path in sys.path if path != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_next()
_rehearse()
