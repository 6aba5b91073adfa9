"""Builds models of transformers without their weights: `from_pretrained` reads only the configuration."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any


def leave_out(modeling: ModuleType, names: list[str]) -> None:
    """Make `from_pretrained` use empty tensors instead of reading weights, and add the names of such models to `names`.

    The tensors are host memory that is never touched. They have the types from the configuration, and are moved to
    where the weights of a file would go.
    """
    import torch

    model_class = modeling.PreTrainedModel
    load = model_class.from_pretrained.__func__

    @classmethod  # type: ignore[misc]
    @functools.wraps(load)
    def from_pretrained(cls: Any, name: Any = None, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        if name is None or kwargs.get("state_dict") is not None:
            return load(cls, name, *args, config=config, **kwargs)
        if not hasattr(config, "to_dict"):
            where = {key: kwargs[key] for key in ("cache_dir", "revision", "subfolder", "token") if key in kwargs}
            config = cls.config_class.from_pretrained(config or name, **where)
        names.append(str(name))
        weights = _weights(torch, cls, config)
        return load(cls, None, *args, config=config, state_dict=weights, **kwargs)

    model_class.from_pretrained = from_pretrained


def _weights(torch: Any, cls: Any, config: Any) -> dict[str, Any]:
    kept = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    before = torch.get_default_dtype()
    try:
        if isinstance(kept, torch.dtype):
            torch.set_default_dtype(kept)
        with torch.device("meta"):
            model = cls(config)
    finally:
        torch.set_default_dtype(before)
    # A file stores tied weights once, and all weights sorted by name.
    is_tied = getattr(config, "tie_word_embeddings", True)
    tied = set(getattr(model, "_tied_weights_keys", None) or ()) if is_tied else set()
    tensors = model.state_dict()
    names = sorted(name for name in tensors if name not in tied)
    return {name: torch.empty(tensors[name].shape, dtype=tensors[name].dtype, device="cpu") for name in names}
