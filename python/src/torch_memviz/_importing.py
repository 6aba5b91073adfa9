"""Runs a function right after a module is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class WhenImported(importlib.abc.MetaPathFinder):
    """Runs a function right after a module is imported, wherever the import happens."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        """Wait for the import."""
        self._name, self._act = name, act

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find the module as usual, and run the function once the module is loaded."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_act(module: ModuleType) -> None:
            run(module)
            self._act(module)

        spec.loader.exec_module = run_and_act  # type: ignore[method-assign]
        return spec
