"""Assumptions about sizes that depend on tensor values, which a rehearsal does not have."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .gpus import RehearsalError

if TYPE_CHECKING:
    from .library import Library

#: Returns the share of a tensor's elements that is found, from 0 to 1.
Share = Callable[[Any], float]

WANTED = "expected the share that nonzero finds, such as nonzero=0.25 or nonzero=FILE.py:FUNCTION"


@dataclass(frozen=True)
class Assumption:
    """How many elements `nonzero` finds. Boolean masks as indices, `where` and `masked_select` use it, too."""

    text: str
    share: Share

    @classmethod
    def parse(cls, text: str) -> Assumption:
        """Parse the value of the option.

        Raises:
            RehearsalError: if it is neither a share nor a function in a file.
        """
        operator, _, value = text.partition("=")
        if operator.strip() != "nonzero" or not value:
            raise RehearsalError(f"{WANTED}, found {text!r}")
        file, _, function = value.rpartition(":")
        if file:
            return cls(text, _function(Path(file), function))
        try:
            share = float(value)
        except ValueError:
            raise RehearsalError(f"{WANTED}, found {text!r}") from None
        if not 0 <= share <= 1:
            raise RehearsalError(f"expected a share from 0 to 1, found {value}")
        return cls(text, lambda _: share)

    def apply(self, torch: ModuleType, library: Library) -> Any:
        """Make PyTorch find this many elements, and return an object that must stay alive for this to have effect."""

        def nonzero(tensor: Any) -> Any:
            library.assume(round(min(max(float(self.share(tensor)), 0.0), 1.0) * tensor.numel()))
            try:
                # As in PyTorch's own function.
                found = torch.empty(0, dtype=torch.int64, device=tensor.device)
                return torch.ops.aten.nonzero.out(tensor, out=found)
            finally:
                library.assume(0)

        overrides = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # PyTorch warns that this replaces another function, which is intended.
            warnings.simplefilter("ignore")
            overrides.impl("nonzero", nonzero, "CUDA")
        return overrides


def _function(file: Path, name: str) -> Share:
    spec = importlib.util.spec_from_file_location("memviz_assumption", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise RehearsalError(f"expected a Python file with the function {name}, found none at {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise RehearsalError(f"expected the function {name} in {file}, found none")
    share: Share = function
    return share
