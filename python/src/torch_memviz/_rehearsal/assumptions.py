"""Sizes that follow from values, which a rehearsal does not have: what is assumed of them."""

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

#: Gives which share of a tensor's elements is found, from 0 to 1.
Share = Callable[[Any], float]

WANTED = "expected what nonzero finds, such as nonzero=0.25 or nonzero=FILE.py:FUNCTION"


@dataclass(frozen=True)
class Assumption:
    """How many elements `nonzero` finds; masks as indices, `where` and `masked_select` go through it."""

    text: str
    share: Share

    @classmethod
    def parse(cls, text: str) -> Assumption:
        """Read what somebody typed.

        Raises:
            RehearsalError: when it is neither a share nor a function in a file.
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
        """Have PyTorch find so many elements; give what has to be kept as long as it does."""

        def nonzero(tensor: Any) -> Any:
            library.assume(round(min(max(float(self.share(tensor)), 0.0), 1.0) * tensor.numel()))
            try:
                # What PyTorch's own function does.
                found = torch.empty(0, dtype=torch.int64, device=tensor.device)
                return torch.ops.aten.nonzero.out(tensor, out=found)
            finally:
                library.assume(0)

        overrides = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # That it takes the place of another function is what it is for.
            warnings.simplefilter("ignore")
            overrides.impl("nonzero", nonzero, "CUDA")
        return overrides


def _function(file: Path, name: str) -> Share:
    spec = importlib.util.spec_from_file_location("memviz_assumption", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise RehearsalError(f"expected a file of Python with the function {name}, found none at {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise RehearsalError(f"expected the function {name} in {file}, found none")
    share: Share = function
    return share
