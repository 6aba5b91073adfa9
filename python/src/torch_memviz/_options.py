"""Options of commands, for editors and type checkers: `--no-infer` is `no_infer=True`.

Generated from the help of the binary by `tools/generate_options.py`; do not edit. Nothing imports it at run time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict

#: The value of an option: a number, a path, or a size or instant as on the command line.
Value = str | int | float | os.PathLike[str]


class TriageOptions(TypedDict, total=False):
    """Options of `memviz triage`."""

    no_infer: bool
    source: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class InfoOptions(TypedDict, total=False):
    """Options of `memviz info`."""

    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class PeakOptions(TypedDict, total=False):
    """Options of `memviz peak`."""

    by: (
        Literal[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
            "holder",
            "holder-root",
        ]
        | None
    )
    top: int | None
    at: Value | None
    each: Value | None
    mean: bool
    from_: Value | None
    to: Value | None
    metric: Literal["allocated", "active", "requested", "reserved"] | None
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    all_frames: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class BlocksOptions(TypedDict, total=False):
    """Options of `memviz blocks`."""

    id: int | Sequence[int] | None
    address: Value | Sequence[str | int] | None
    pending: bool
    at: Value | None
    top: int | None
    no_infer: bool
    source: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class FragmentationOptions(TypedDict, total=False):
    """Options of `memviz fragmentation`."""

    at: Value | None
    over_time: bool
    points: int | None
    by: (
        Literal[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
            "holder",
            "holder-root",
        ]
        | None
    )
    top: int | None
    all: bool
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    all_frames: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class OomOptions(TypedDict, total=False):
    """Options of `memviz oom`."""

    by: (
        Literal[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
            "holder",
            "holder-root",
        ]
        | None
    )
    top: int | None
    all: bool
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    all_frames: bool
    source: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class LeaksOptions(TypedDict, total=False):
    """Options of `memviz leaks`."""

    by: Literal["site", "stack", "file", "module"] | None
    steps: Value | None
    capacity: Value | None
    top: int | None
    all: bool
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    all_frames: bool
    source: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class LedgerOptions(TypedDict, total=False):
    """Options of `memviz ledger`."""

    capacity: Value | None
    gpu: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class NsysOptions(TypedDict, total=False):
    """Options of `memviz nsys`."""

    snapshot: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class CheckpointOptions(TypedDict, total=False):
    """Options of `memviz checkpoint`."""

    top: int | None
    fit: Value | None
    x: Literal["time", "entry"] | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class SimulateOptions(TypedDict, total=False):
    """Options of `memviz simulate`."""

    alloc_conf: Value | Sequence[str | int] | None
    sweep: bool
    capacity: Value | None
    gpu: Value | None
    context: Value | None
    checkpoint: Value | Sequence[str | int] | None
    optimizer: Value | None
    shard_optimizer: int | None
    shard_gradients: int | None
    shard_parameters: int | None
    offload: Value | Sequence[str | int] | None
    chunk_loss: Value | None
    accumulate: Value | None
    inference: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class FitOptions(TypedDict, total=False):
    """Options of `memviz fit`."""

    vary: Value | None
    at: Value | Sequence[str | int] | None
    tokens: int | None
    capacity: Value | None
    gpu: Value | None
    context: Value | None
    alloc_conf: Value | None
    top: int | None
    all: bool
    checkpoint: Value | Sequence[str | int] | None
    optimizer: Value | None
    shard_optimizer: int | None
    shard_gradients: int | None
    shard_parameters: int | None
    offload: Value | Sequence[str | int] | None
    chunk_loss: Value | None
    accumulate: Value | None
    inference: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class FixOptions(TypedDict, total=False):
    """Options of `memviz fix`."""

    source: Value | None
    only: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class DiffOptions(TypedDict, total=False):
    """Options of `memviz diff`."""

    by: (
        Literal[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
            "holder",
            "holder-root",
        ]
        | None
    )
    top: int | None
    at: Value | None
    align: Literal["time", "entry", "step"] | None
    fail_on_growth: Value | None
    metric: Literal["allocated", "active", "requested", "reserved"] | None
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class CheckOptions(TypedDict, total=False):
    """Options of `memviz check`."""

    max_peak: Value | None
    max_reserved: Value | None
    max_fragmentation: Value | None
    max_leak: Value | None
    max_site: Value | Sequence[str | int] | None
    max_residue: Value | Sequence[str | int] | None
    capacity: Value | None
    steps: Value | None
    baseline: Value | None
    tolerance: Value | None
    update_baseline: bool
    accept_late_start: bool
    require_counters: bool
    config: Value | None
    top: int | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class RanksOptions(TypedDict, total=False):
    """Options of `memviz ranks`."""

    earlier: Value | None
    metric: Literal["allocated", "active", "requested", "reserved"] | None
    top: int | None
    stdin_name: Value | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class TimelineOptions(TypedDict, total=False):
    """Options of `memviz timeline`."""

    by: (
        Literal[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
            "holder",
            "holder-root",
        ]
        | None
    )
    top: int | None
    x: Literal["time", "entry"] | None
    inactive: bool
    each: Value | None
    from_: Value | None
    to: Value | None
    points: int | None
    metric: Literal["allocated", "active", "requested", "reserved"] | None
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class FlamegraphOptions(TypedDict, total=False):
    """Options of `memviz flamegraph`."""

    by: Literal["category", "phase"] | None
    at: Value | None
    mean: bool
    from_: Value | None
    to: Value | None
    metric: Literal["allocated", "active", "requested", "reserved"] | None
    include: Value | Sequence[str | int] | None
    exclude: Value | Sequence[str | int] | None
    no_infer: bool
    all_frames: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class ReportOptions(TypedDict, total=False):
    """Options of `memviz report`."""

    by: (
        Literal[
            "site",
            "stack",
            "function",
            "file",
            "module",
            "stream",
            "pool",
            "metadata",
            "annotation",
            "operator",
            "nn-module",
            "module-path",
            "category",
            "phase",
            "holder",
            "holder-root",
        ]
        | None
    )
    x: Literal["time", "entry"] | None
    top: int | None
    at: Value | None
    from_: Value | None
    to: Value | None
    no_infer: bool
    all_frames: bool
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool


class ViewOptions(TypedDict, total=False):
    """Options of `memviz view`."""

    from_: Value | None
    to: Value | None
    serve: bool
    port: int | None
    device: Value | Sequence[str | int] | None
    own: Value | Sequence[str | int] | None
    metadata_key: Value | None
    strict: bool
    allow_truncated: bool
    max_memory: Value | None
    no_limit: bool
    threads: int | None
    quiet: bool
