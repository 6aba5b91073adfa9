"""The answers of all commands as dataclasses, with the keys of `--format json` as fields.

Generated from the JSON Schema of the binary by `tools/generate_answers.py`; do not edit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ._decode import REST
from ._table import Answer


@dataclass(frozen=True, kw_only=True)
class Across(Answer):
    """The comparison of the ranks."""

    command: str
    """`ranks`."""

    schema_version: int
    """Changes when the meaning of a key does."""

    line: Literal["across"]
    """Which line it is."""

    across: tuple[AcrossGroup, ...]
    """How figures are distributed, by kind of memory."""

    duplicates: tuple[DuplicateRank, ...]
    """Ranks that occur more than once."""

    earlier_rows: int | None
    """Number of rows of earlier runs that failures are compared with; null without `--earlier`."""

    failed: int
    """Number of inputs that could not be analyzed."""

    failures: tuple[RanksFailure, ...]
    """Failed requests by signature; those on the most rows are first."""

    metric: Metric
    """The metric that is attributed."""

    missing: tuple[MissingRanks, ...]
    """Ranks without a row."""

    outliers: tuple[RankOutlier, ...]
    """Outlying maxima, by rank and device."""

    skipped: int
    """Number of files that are neither recordings nor summaries."""

    unsigned_requests: int
    """Failed requests without a signature: those after the first five of a row, and those of recordings that do
    not show the cause.
    """


@dataclass(frozen=True, kw_only=True)
class AcrossGroup:
    """Rows about one kind of memory."""

    because: str | None
    """The same in words; null for ranks."""

    figures: tuple[FigureSpread, ...]
    """Figures that at least one rank has."""

    median_rank: RankName | None
    """The rank that represents the median."""

    memory: str
    """`device`, `pinned_host` or `cpu`."""

    relation: str
    """The relation of the recordings, as far as is known: `ranks` of one run; different `programs`; `dumps` of one
    process, which start with the same entry; `apart`, one after the other on the same device. Only ranks have
    outliers.
    """

    rows: int
    """Number of rows."""

    programs: tuple[tuple[RankName, ...], ...] | None = None
    """The rows of each program, if there are several."""


@dataclass(frozen=True, kw_only=True)
class AdviceCost:
    """The cost of a change."""

    copies_bytes: int | None
    """Total bytes that the changed program copies to the CPU; null if it copies none."""

    words: str | None
    """The cost in words; null if there is none."""


@dataclass(frozen=True, kw_only=True)
class AdviceLine:
    """A line of code."""

    file: str
    """The file, as recorded."""

    function: str
    """The function."""

    line: int
    """The line."""


@dataclass(frozen=True, kw_only=True)
class AdviceRow:
    """Something to change in the program."""

    alternatives: tuple[AlternativeRow, ...]
    """Other changes that cure the same mistake, each in place of this one."""

    at_least: bool
    """Whether the allocated bytes are a lower bound: the change may save more."""

    because: str
    """Why the allocated bytes are less certain; empty if they are exact."""

    change: str
    """What to change, as a request."""

    code: str
    """The lines of Python that make the change; empty if they depend on the program."""

    cost: AdviceCost
    """The cost of the change."""

    evidence: str
    """The evidence for the mistake, in a sentence."""

    kind: str
    """The mistake."""

    reserved_trust: Trust
    """How far you can trust the reserved bytes: less if the recording starts with free segments, which no change
    to the recorded program removes.
    """

    saves_allocated_bytes: int | None
    """Bytes that the change saves at the peak of allocated bytes, in a simulation: negative if it raises the peak;
    null if nothing was simulated.
    """

    saves_reserved_bytes: int | None
    """The same for reserved bytes."""

    trust: Trust
    """How far you can trust the allocated bytes."""

    where: tuple[AdviceLine, ...]
    """The line with the mistake; empty if no stack contains it."""


@dataclass(frozen=True, kw_only=True)
class AlternativeRow:
    """Another change that cures a mistake."""

    at_least: bool
    """Whether the allocated bytes are a lower bound: the change may save more."""

    because: str
    """Why the allocated bytes are less certain; empty if they are exact."""

    change: str
    """What to change, as a request."""

    code: str
    """The lines of Python that make the change."""

    reserved_trust: Trust
    """How far you can trust the reserved bytes."""

    saves_allocated_bytes: int | None
    """Bytes that the change saves at the peak of allocated bytes, in a simulation: negative if it raises the peak;
    null if nothing was simulated.
    """

    saves_reserved_bytes: int | None
    """The same for reserved bytes."""

    trust: Trust
    """How far you can trust the allocated bytes."""


@dataclass(frozen=True, kw_only=True)
class AnnotationCount:
    """Annotations of one name."""

    count: int
    """Number of ranges."""

    name: str
    """Which line it is."""

    open: int
    """Number of ranges without an end."""

    total_us: int
    """Total time within ranges with both ends; time within several of them counts once."""


@dataclass(frozen=True, kw_only=True)
class AnomalyCounts:
    """Contradictions."""

    kinds: dict[str, int]
    """By kind; kinds that did not occur are left out."""

    total: int
    """The number of all contradictions."""


@dataclass(frozen=True, kw_only=True)
class AttributionRow:
    """Bytes held by one group."""

    blocks: int
    """Blocks; segments if the metric is `reserved`."""

    bytes: int
    """Bytes of the metric."""

    inferred: bool
    """Whether the label is inferred rather than recorded."""

    label: str
    """The group."""

    stack: tuple[str, ...]
    """The stack with the most bytes in the group, innermost frame first; empty if groups do not depend on stacks."""

    evidence: tuple[EvidenceRow, ...] | None = None
    """The evidence that assigns blocks to the group, the most bytes first. Left out unless rows represent
    categories.
    """


@dataclass(frozen=True, kw_only=True)
class AttributionRows:
    """The memory at an instant by group. Rows sum to the total, unless grouping is inclusive."""

    by: GroupBy
    """What rows represent."""

    inclusive: bool
    """Whether rows overlap."""

    rows: tuple[AttributionRow, ...]
    """Groups, largest first."""

    total_bytes: int
    """Bytes of the metric at the instant. Rows sum to it, unless they are inclusive."""

    library_below: tuple[str, ...] | None = None
    """The user's lines that rows show as lines of a library, because its model runs below them and holds the most
    there. Left out if there are none.
    """

    mean_over_us: int | None = None
    """Duration of the range whose mean rows show, in microseconds. Left out if they show an instant."""

    private_pools: tuple[PrivatePoolFacts, ...] | None = None
    """The private pools of the device. Left out unless rows represent pools, or if there are none."""


@dataclass(frozen=True, kw_only=True)
class BlockLives:
    """The fate of blocks from one instant of a recording to a later one: `born` and `survived` sum to the live
    blocks of the later one, `freed` and `survived` to those of the earlier one.
    """

    born_blocks: int
    """Blocks of them."""

    born_bytes: int
    """Bytes that are live only at the later instant."""

    freed_blocks: int
    """Blocks of them."""

    freed_bytes: int
    """Bytes that are live only at the earlier instant."""

    survived_blocks: int
    """Blocks of them."""

    survived_bytes: int
    """Bytes that are live at both."""


@dataclass(frozen=True, kw_only=True)
class BlockRow:
    """One block."""

    address: str
    """Its address, in hexadecimal."""

    allocated: Instant | None
    """When it was allocated; null if before the recording."""

    bytes: int
    """Bytes as the allocator rounded them."""

    category: str
    """Its category."""

    completed: Instant | None
    """When its memory could be used again, later than the free if another stream still used it; null if it could
    not while recording.
    """

    evidence: str
    """The evidence for the category."""

    free_stack: tuple[str, ...]
    """The stack that freed it, innermost frame first; empty if not recorded."""

    freed: Instant | None
    """When the program freed it; null if it did not while recording."""

    freed_by: str | None
    """The line that freed it; null if not recorded."""

    id: int
    """Its place among all blocks of the device, for `--id`."""

    inferred: bool
    """Whether the site or the category is inferred."""

    phase: str | None
    """The phase in which it was allocated; null if unknown."""

    pool_id: tuple[int, int] | None
    """Private pool; null if it is in none, or if pools are not recorded."""

    requested_bytes: int
    """Which line it is."""

    site: str
    """The line that allocated it."""

    stack: tuple[str, ...]
    """The stack that allocated it, innermost frame first."""

    step: int | None
    """The step in which it was allocated, from 1; null if unknown."""

    stream: int | None
    """CUDA stream; null if not recorded."""

    code: str | None = None
    """The line that allocated it, if the recording contains the source code and the caller asks for it."""

    tensors: tuple[BlockTensor, ...] | None = None
    """Tensors of its size that torch-snapkit logged at its address, each shape and type once. Left out if there
    are none.
    """


@dataclass(frozen=True, kw_only=True)
class BlockTensor:
    """A tensor in a block."""

    dtype: str
    """Its type, such as `float32`."""

    operator: str
    """The first operator that returned it."""

    shape: tuple[int, ...]
    """Its shape."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BlocksAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[BlocksDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class BlocksDevice:
    """`memviz blocks`, one device."""

    at: Instant | None
    """The instant at which the blocks are allocated; null for blocks of any time."""

    blocks: tuple[BlockRow, ...]
    """The first of them, up to `--top`."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory, -2 for memory of the CPU."""

    found: int
    """Number of matching blocks."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    total_bytes: int
    """Their total size."""


#: The direction in which the true value of an inexact number lies.
Bound = Literal[
    # The true value is this or higher.
    "lower",
    # The true value is this or lower.
    "upper",
    # The direction is unknown.
    "unknown",
]

#: Why a request failed.
Cause = Literal[
    # The inactive memory in the pool of the request would not have been enough, nor the free memory of the device
    # and every inactive byte together for a new segment.
    "capacity",
    # One of these would have been, but no single block was, and no segment could be released to make room.
    "fragmentation",
    # There would have been enough, but not in the private pool of the request: while that pool is in use, the
    # allocator releases no memory of other pools.
    "private_pool",
    # Memory that accumulates from step to step fills the device: with that fixed, the request would have been
    # served.
    "leak",
    # The device had much less free memory than at another time: something outside the allocator holds memory.
    "other_process",
    # The device had enough free, but the settings limit the process to a part of it.
    "limit",
    # The recording does not show it.
    "unknown",
]


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """Whether maxima are `exact` (since the recording started), a `lower` or `upper` bound, or `unknown`, as
    `memviz check` judges them, considering all doubts.
    """

    allocated_bytes: str
    """The maximum of allocated."""

    reserved_bytes: str
    """The maximum of reserved."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change to the code."""

    caller: str | None
    """The line that calls the function; null if not recorded, and for transformers models."""

    code: str
    """The code to write there, for a function that is called as `block(x)`."""

    kind: ChangeKind
    """The kind of change."""


#: How to checkpoint a function.
ChangeKind = Literal[
    # Wrap its call in `torch.utils.checkpoint.checkpoint`.
    "wrap",
    # Wrap `forward` of its modules: the calling line is in an installed package.
    "wrap_forward",
    # Call `gradient_checkpointing_enable` of a transformers model.
    "transformers",
]


@dataclass(frozen=True, kw_only=True)
class CheckAnswer:
    """`memviz check`, one input."""

    checks: tuple[CheckRow, ...]
    """Every budget on every device."""

    command: str
    """The subcommand."""

    devices: tuple[MeasuredDevice, ...]
    """The measured values of each device, with any limits."""

    input: InputHead
    """The file."""

    passed: bool
    """Whether every budget is known to be met."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    verdict: str
    """`passed`, `failed`, or `unknown` if a budget could not be judged."""


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """One budget on one device."""

    budget: str | None
    """The entry of `memviz.toml` that limits it; null for flags."""

    device: int | None
    """The device; null if the recording has none."""

    headroom_bytes: int | None
    """The limit minus the measured value; null if it is not judged, and for `max-fragmentation`."""

    limit_bytes: int | None
    """The limit, or the value of the baseline if the verdict is `shown`. Null if the baseline does not have it,
    and for `max-fragmentation`.
    """

    measured_bytes: int | None
    """The measured value: exact, or a bound as in `bound`. Null if unknown, and for `max-fragmentation`."""

    name: str
    """What is limited: `max-peak`, `max-reserved`, `max-fragmentation`, `max-leak`, `max-site`, `max-residue`,
    `baseline-peak` or `baseline-reserved`.
    """

    passed: bool
    """Whether the limit is known to be met."""

    verdict: str
    """`passed`, `failed`, `unknown`, or `shown` for a comparison that is not judged."""

    basis: str | None = None
    """The meaning of the bytes of `sites`: `held`, `grown`, `reserved`, `pinned`, `leaked` or `born`."""

    between: str | None = None
    """The instants of `max-residue`, as `A..B`."""

    bound: str | None = None
    """`lower` or `upper` if the measured value is only a bound."""

    limit_share: float | None = None
    """The limit of `max-fragmentation`, from 0 to 1."""

    matching_sites: int | None = None
    """Number of recorded sites at the peak that the expression of `max-site` matches, or 0."""

    measured_share: float | None = None
    """The inactive share measured, from 0 to 1."""

    pattern: str | None = None
    """The expression of `max-site`."""

    reason: str | None = None
    """Why it is not known exactly."""

    sites: tuple[CheckSite, ...] | None = None
    """The sites that caused an exceeded limit or growth, the largest first."""


@dataclass(frozen=True, kw_only=True)
class CheckSite:
    """A site that caused an exceeded limit."""

    bytes: int
    """Which line it is."""

    file: str | None
    """Its file, as recorded; null if it is not Python code."""

    inferred: bool
    """Whether the label is inferred rather than recorded."""

    label: str
    """The site: `file.py:line function`."""

    line: int | None
    """Its line."""

    stack: tuple[str, ...]
    """A stack of the site, innermost frame first."""


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckpointAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[CheckpointDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class CheckpointCandidate:
    """A function that a forward pass calls repeatedly, and the effect of checkpointing its calls."""

    activation_bytes: int
    """Bytes that these calls hold at the recorded peak and that checkpointing would free."""

    calls: int
    """How often a forward pass calls it."""

    change: Change
    """The code to write."""

    label: str
    """The function, by file, first line and name."""

    limit: CheckpointLimit
    """What prevents a lower peak."""

    plan: tuple[CheckpointPlan, ...]
    """Every call checkpointed, every second, every third and so on."""

    predicted_peak_allocated_bytes: int
    """The peak with every call checkpointed."""

    recompute_share: float | None
    """`recompute_us / forward_us`, from 0 to 1; null if the file has no times."""

    recompute_us: int | None
    """Mean CPU time of its calls in a forward pass, which recomputation adds; null if the file has no times."""

    saved_bytes: int
    """The recorded peak minus that."""


@dataclass(frozen=True, kw_only=True)
class CheckpointDevice:
    """`memviz checkpoint`, one device."""

    activation_bytes: int | None
    """Bytes at the peak that forward allocated and backward will free; null if the recording ends before backward
    does. Without a backward pass, bytes that outlive their forward pass.
    """

    at_failure: OomFit | None
    """What checkpointing does for a failed request that interrupts the step at the peak, with bounds for the whole
    step; null if none does, or if that is unknown.
    """

    baseline_bytes: int
    """Allocated before the first kept entry."""

    candidates: tuple[CheckpointCandidate, ...]
    """Functions worth checkpointing, the lowest new peak first. They are alternatives: their savings cannot be
    added together.
    """

    checkpointed: tuple[CheckpointedFunction, ...]
    """Functions that the recorded program already checkpoints."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory."""

    forward_passes: int
    """Number of forward passes with a backward pass, or otherwise of those that keep what one would need."""

    forward_us: int | None
    """Mean time of such a pass on the CPU; null if the file has no times."""

    left_out: int
    """Candidates that `--top` left out."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    optimizer: PeakInOptimizer | None
    """The memory at the peak, if the peak is in the optimizer and no candidate would lower it; null otherwise."""

    peak: PhasedInstant
    """Its instant."""

    peak_allocated_bytes: int
    """The recorded peak."""

    reason: NoCandidates | None
    """Why there are no candidates; null if there are some."""

    reason_text: str | None
    """The same in words."""

    without_backward: bool
    """Whether no backward pass follows these: the new peak is then that of forward alone."""

    fit: FitSearch | None = None
    """The cheapest calls that keep allocated memory below the size that `--fit` names; left out without `--fit`."""


@dataclass(frozen=True, kw_only=True)
class CheckpointLimit:
    """The new peak."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    entry: int | None
    """Entry that leads to it, counted within the device's trace; null before the first entry."""

    phase: Phase
    """The phase."""

    rerun: bool
    """Whether a call is recomputed there."""

    rerun_bytes: int
    """Bytes that the recomputed call has allocated by then."""

    rows: tuple[AttributionRow, ...]
    """Other memory at the peak, by site, the largest first and the rest as `(other)`."""

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""

    unfinished: bool
    """Whether its training step is incomplete in the recording, so that what checkpointing frees in it is unknown."""

    workspace_bytes: int
    """Workspaces of the autograd engine's thread, which it needs to recompute calls."""


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """A plan that checkpoints some of the calls of a pass."""

    every: int
    """The first call and every N-th after it."""

    predicted_peak_allocated_bytes: int
    """The peak of allocated bytes then."""


@dataclass(frozen=True, kw_only=True)
class CheckpointedFunction:
    """A function that the recorded run checkpoints."""

    calls: int
    """How often a forward pass calls it under `torch.utils.checkpoint`."""

    label: str
    """The function."""

    other_calls: int
    """How often a forward pass calls it without checkpointing."""


@dataclass(frozen=True, kw_only=True)
class CodeSample:
    """The user's own lines that allocate, innermost on their stacks. If there are many, those with the smallest
    hashes, so that two recordings of the same program have the same lines in their samples.
    """

    lines: int
    """Number of lines."""

    sample: str
    """Hashes of up to 64 of them, smallest first, each with six hexadecimal digits."""


@dataclass(frozen=True, kw_only=True)
class ComparedCounter:
    """A counter of PyTorch and its replayed value."""

    at: CountedAt
    """When it had these values."""

    counted: int
    """What PyTorch counted."""

    name: str
    """Its name in `torch.cuda.memory_stats()`."""

    replayed: int
    """What memviz replayed."""


@dataclass(frozen=True, kw_only=True)
class ComparedDevice:
    """A device at its peak."""

    bytes: int
    """Bytes of the metric at its peak."""

    device: int
    """Which line it is."""

    bound: Bound | None = None
    """Which bound the value is. Left out if it is exact."""


@dataclass(frozen=True, kw_only=True)
class ComparedGroup:
    """A group on all devices."""

    bytes: tuple[int, ...]
    """Its bytes at the peak of each device, in the order of `peaks`."""

    inferred: bool
    """Whether the label is inferred, on any device."""

    label: str
    """The group."""


#: When a counter had a value.
CountedAt = Literal[
    # When the recording started.
    "start",
    # Over the whole recording.
    "all",
    # When it was written.
    "end",
]


@dataclass(frozen=True, kw_only=True)
class CounterBytes:
    """The four counters."""

    active_bytes: int
    """Blocks in use until their free completes."""

    allocated_bytes: int
    """Blocks in use until their free is requested."""

    requested_bytes: int
    """Bytes that callers requested, until the free completes."""

    reserved_bytes: int
    """Segments."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Values of the four counters in bytes. Signed, since a contradictory history can make them negative."""

    active_bytes: int
    """`active_bytes`."""

    allocated_bytes: int
    """`allocated_bytes`."""

    requested_bytes: int
    """`requested_bytes`."""

    reserved_bytes: int
    """`reserved_bytes`."""


@dataclass(frozen=True, kw_only=True)
class CurveDevice:
    """`memviz timeline`, one device."""

    by: str
    """What groups represent."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory, -2 for memory of the CPU."""

    entries_per_point: int
    """A point is the highest of this many consecutive entries; 1 if every entry is a point."""

    groups: tuple[CurveGroup, ...]
    """Groups, those that hold the most at the peak first."""

    metric: str
    """The selected counter, to which the groups add up at each point."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    peak_bytes: int
    """Highest value of the selected counter, which is that of a point."""

    points: tuple[CurvePoint, ...]
    """Points, in the order of entries."""

    bounds: dict[str, Bound] | None = None
    """Counters that are not exact, as in the answer of `memviz peak`: an `upper` or `lower` bound, or `unknown`.
    Left out when all are exact.
    """

    window: Window | None = None
    """The part of the history that the points are from, if it is not the whole history."""


@dataclass(frozen=True, kw_only=True)
class CurveGroup:
    """A group over time."""

    bytes: tuple[int, ...]
    """Bytes of the selected counter at each point."""

    groups: int
    """Number of groups in it: 1, except for `(other)`."""

    inferred: bool
    """Whether any of its memory is in the group because of an inference rather than a record."""

    label: str
    """The group, as in the rows of `memviz peak`; `(other)` for all that are not listed."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The counters after an entry."""

    active_bytes: int | None
    """Blocks in use until their free completes."""

    allocated_bytes: int | None
    """Blocks in use until their free is requested."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    entry: int | None
    """The entry, counted within the device's trace; null before the first entry."""

    requested_bytes: int | None
    """Bytes that callers requested, until the free completes; null if unknown, as for the other counters."""

    reserved_bytes: int | None
    """Segments."""

    step: int | None
    """The step that contains the entry, counted from 1; null outside of steps, and if the recording does not show
    them.
    """

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""


@dataclass(frozen=True, kw_only=True)
class DeviceComparison:
    """How CUDA devices compare, each at its own peak. Only present if the fullest device exceeds the mean by at
    least a tenth of its own memory.
    """

    by: GroupBy
    """What rows represent."""

    emptiest: int
    """The device that holds the least."""

    fullest: int
    """The device that holds the most."""

    mean_bytes: int
    """Their mean, rounded down."""

    metric: Metric
    """The counter that is compared."""

    peaks: tuple[ComparedDevice, ...]
    """The devices, in order."""

    rows: tuple[ComparedGroup, ...]
    """The groups in which the fullest and the emptiest device differ most, the largest difference first. Empty if
    groups overlap.
    """


#: The kind of device, by the part of PyTorch that allocates its memory.
DeviceKind = Literal[
    # `torch.cuda` on NVIDIA GPUs.
    "cuda",
    # `torch.cuda` on AMD GPUs.
    "rocm",
    # `torch.xpu` on Intel GPUs.
    "xpu",
    # `torch_npu` on Huawei's Ascend NPUs.
    "ascend",
]


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """A whole device, in the sample in which the most memory was in use."""

    at: Occasion
    """When the sample was taken."""

    outside_bytes: int
    """Bytes of these that PyTorch's allocator did not reserve: contexts, NCCL, other processes. Negative if
    figures contradict each other.
    """

    total_bytes: int
    """Bytes of the device."""

    used_bytes: int
    """Bytes in use by any program or library."""


@dataclass(frozen=True, kw_only=True, repr=False)
class DiffAnswer(Answer):
    """The whole answer of `memviz diff`."""

    command: str
    """The subcommand."""

    devices: tuple[DiffDevice, ...]
    """Devices of both files."""

    identical: bool
    """Whether nothing differs."""

    input: DiffInput
    """The files."""

    only_base_devices: tuple[int, ...]
    """Devices that only the base has."""

    only_new_devices: tuple[int, ...]
    """Devices that only the new file has."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    settings: tuple[SettingValues, ...]
    """Allocator settings that differ."""


@dataclass(frozen=True, kw_only=True)
class DiffDevice:
    """`memviz diff`, one device."""

    base: DiffSide
    """The base."""

    base_device: int
    """Device in the base: may differ if each file has a single GPU."""

    by: GroupBy
    """What rows represent."""

    delta_bytes: int
    """Growth of the counter between the two selected instants."""

    device: int
    """Device in the new file, -1 for pinned host memory, -2 for memory of the CPU."""

    inclusive: bool
    """Whether rows overlap, so that they do not sum to the delta."""

    left_out: int
    """Rows that `--top` summed up in one labeled `(other)`; inclusive ones are left out."""

    metric: Metric
    """The counter compared."""

    new: DiffSide
    """The new file."""

    rows: tuple[DiffRow, ...]
    """What changed, the largest change first. Rows sum to `delta_bytes`, unless they are inclusive."""

    unchanged: Unchanged
    """Rows that did not change."""

    lives: BlockLives | None = None
    """The fate of all blocks. Left out unless both sides are instants of one recording."""


@dataclass(frozen=True, kw_only=True)
class DiffFigures:
    """Sums over the segments."""

    inactive_bytes: int
    """Bytes of free blocks."""

    inactive_share: float
    """Their share of reserved memory, from 0 to 1."""

    largest_free_block_bytes: int
    """The largest free block."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    releasable_bytes: int
    """Free bytes that `empty_cache` releases."""

    rounding_bytes: int
    """Bytes of active blocks beyond the requested bytes."""

    segments: int
    """Number of segments."""


@dataclass(frozen=True, kw_only=True)
class DiffInput:
    """The two files."""

    base: InputHead
    """The file to compare with."""

    new: InputHead
    """The compared file."""


@dataclass(frozen=True, kw_only=True)
class DiffRow:
    """A group on both sides."""

    base_blocks: int
    """Its blocks in the base; segments if the metric is `reserved`."""

    base_bytes: int
    """Its bytes in the base. Negative only if a recording contradicts itself."""

    base_label: str | None
    """Its label in the base, if it differs because the line has moved; otherwise null."""

    delta_bytes: int
    """The difference."""

    inferred: bool
    """Whether the label is inferred, in either file."""

    label: str
    """The group, as the new file names it; as the base names it if it has vanished."""

    new_blocks: int
    """Its blocks in the new file."""

    new_bytes: int
    """Its bytes in the new file."""

    stack: tuple[str, ...]
    """The stack with the most bytes in the group, innermost frame first; of the base if it has vanished."""

    status: RowStatus
    """Whether it is on both sides."""

    lives: BlockLives | None = None
    """The fate of its blocks. Left out unless both sides are instants of one recording."""


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One side of a device."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    complete_history: bool
    """Whether the history is complete."""

    end: CounterBytes
    """Counters at the end."""

    fragmentation: DiffFigures | None
    """How the segments are used at the instant; null if the file has none."""

    maxima: CounterBytes
    """Each counter's own maximum."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    peak: PeakInstant
    """The selected instant."""

    bounds: dict[str, Bound] | None = None
    """Numbers that are not exact, as in `memviz peak`. Left out when all are exact."""


@dataclass(frozen=True, kw_only=True)
class DuplicateRank:
    """Several files for one rank and device."""

    device: int
    """Which line it is."""

    rank: int
    """Which line it is."""

    rows: int
    """The number of rows."""


@dataclass(frozen=True, kw_only=True)
class EachRange:
    """The kind of ranges of a device."""

    by: str
    """`step`, `phase` or `annotation`."""

    left_out: int
    """Number of ranges that are not listed, since there are too many: all have lower peaks than the listed ones."""

    step_name: str | None
    """The annotations that are steps, with `N` in place of numbers, or the site that returns in each step; null
    for other ranges.
    """

    step_source: StepSourceName | None
    """The source of the steps; null for other ranges."""

    left_out_bytes: int | None = None
    """The highest peak of the ranges that are not listed."""


@dataclass(frozen=True, kw_only=True)
class EmptyRank(Answer):
    """A rank without memory."""

    command: str
    """`ranks`."""

    schema_version: int
    """Changes when the meaning of a key does."""

    line: Literal["empty"]
    """Which line it is."""

    path: str
    """The recording."""

    rank: int
    """Number of the rank."""

    rank_source: RankSource
    """Where that number is from."""


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
    """Why blocks are in a category."""

    blocks: int
    """Blocks that it decided about."""

    bytes: int
    """Bytes that it decided about."""

    reason: str
    """In words."""


@dataclass(frozen=True, kw_only=True)
class FailedInput(Answer):
    """An input that could not be analyzed."""

    command: str
    """`ranks`."""

    schema_version: int
    """Changes when the meaning of a key does."""

    line: Literal["failed"]
    """Which line it is."""

    error: str
    """Why not, in a line."""

    path: str
    """The input."""


@dataclass(frozen=True, kw_only=True)
class FailedRequest:
    """A failed request."""

    capacity_bytes: int
    """The most that the process could use then: what it had reserved, plus what was free."""

    cause: str
    """The cause of the failure, as in `memviz oom`."""

    device_free_bytes: int
    """Free bytes of the device."""

    failed_requests: int
    """Number of failed requests of the device."""

    requested_bytes: int
    """Bytes of the requested block."""


@dataclass(frozen=True, kw_only=True)
class FailedRequest2:
    """A failed request. Figures are those after the allocator released what it could and tried again."""

    advice: tuple[Said, ...]
    """What would have helped, as far as the recording shows."""

    allocated_bytes: int
    """Bytes of blocks in use."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    attribution: AttributionRows
    """The groups that hold the allocated bytes."""

    cause: Cause
    """Why it failed."""

    device_free_bytes: int
    """Free bytes of the device."""

    driver_bytes: int
    """Bytes that the driver would have had to supply for it: a whole segment, or whole pages."""

    entry: int | None
    """Entry that leads to it, counted within the device's trace; null before the first entry."""

    evidence: tuple[Said, ...]
    """The evidence."""

    inactive_bytes: int
    """Bytes of free blocks."""

    largest_free_block_bytes: int
    """The largest of them."""

    pending_free_bytes: int
    """Bytes of blocks freed by the program that another stream may still use."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    pinning: tuple[PinningGroup, ...]
    """The code that keeps free bytes from being released."""

    releasable_bytes: int
    """Free bytes in segments, or pages of expandable ones, without a live block."""

    request: Requester
    """The code that made the request."""

    requested_bytes: int
    """Bytes of the requested block: the request, rounded up."""

    reserved_bytes: int
    """Bytes of all segments."""

    retry_freed_bytes: int
    """Bytes that the allocator returned to the driver right before."""

    retry_freed_segments: int
    """The number of segments or mapped ranges of these bytes."""

    rounding_bytes: int
    """Rounding loss of blocks in use."""

    serving: ServingPool
    """The pool that could have served the request."""

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""

    fit: OomFit | None = None
    """For the first failed request, whether the program fits, and with what. Left out for others, and if that
    takes long.
    """

    holders: AttributionRows | None = None
    """The variables that keep them: recordings with holders."""

    signature: FailureSignature | None = None
    """The signature, which the same failure shares with other runs. Left out unless rows are sites, of all stacks."""


@dataclass(frozen=True, kw_only=True)
class FailedRow:
    """A row with failed requests of one signature."""

    path: str
    """Its recording, as named where it was summarized."""

    rank: int
    """Number of the rank."""

    requests: int
    """Number of these requests."""


@dataclass(frozen=True, kw_only=True)
class FailingCapacities:
    """A range of capacities on which a program fails."""

    from_bytes: int
    """The lowest capacity."""

    to_bytes: int
    """The first capacity above on which it works."""


@dataclass(frozen=True, kw_only=True)
class FailureSignature:
    """What similar failed requests have in common, within a run and across runs. Line numbers, addresses, times
    and exact sizes are not part of it.
    """

    cause: str
    """Why the request failed."""

    holder: str
    """The function that held most of the memory, without its line."""

    id: str
    """Sixteen hexadecimal digits, made from the other keys."""

    pool: str
    """`small`, `large` or `private`."""

    requester: str
    """The function that made the request, without its line."""

    size_class_bytes: int
    """The requested size, rounded up to a power of two."""


@dataclass(frozen=True, kw_only=True)
class FigureSpread:
    """How a figure is distributed."""

    figure: str
    """A metric, whose maxima these are; or `baseline`, `inactive`, or `outside`: in use on the device, but not
    reserved by PyTorch's allocator.
    """

    max: RankName | None
    """The first row that has it."""

    max_bytes: int
    """The highest value."""

    median_bytes: int
    """The median; if two values are in the middle, their mean, rounded down."""

    min: RankName | None
    """The first row that has it."""

    min_bytes: int
    """The lowest value."""

    scale: Scale
    """The unit of deviations in scores."""

    skew: float | None
    """Highest divided by median; null if the median is not positive."""

    values: int
    """Number of rows that have it."""


#: Kinds of findings.
FindingKind = Literal[
    # Free memory that live blocks keep reserved, or much free memory if no history was recorded.
    "fragmentation",
    # Free memory that only one side stream or pool can use.
    "stranded",
    # Blocks that are never freed.
    "leak",
    # Blocks that accumulate.
    "growth",
    # Memory that activation checkpointing could free.
    "activations",
    # Reserved memory that other allocator settings save; the label is their string.
    "settings",
]


@dataclass(frozen=True, kw_only=True)
class FindingRow:
    """Something that deserves a closer look."""

    bytes: int
    """Bytes of the finding; per step for leaks and growth."""

    command: str
    """The command that shows more."""

    kind: FindingKind
    """The kind of finding."""

    label: str | None
    """The site of the finding; null if it concerns all sites."""

    text: str
    """The same in words."""


@dataclass(frozen=True, kw_only=True, repr=False)
class FitAnswer(Answer):
    """The whole answer of `memviz fit`."""

    command: str
    """The subcommand."""

    devices: tuple[FitDevice, ...]
    """The answer, device by device."""

    inputs: tuple[InputHead, ...]
    """The files, in the order in which they were named."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""


@dataclass(frozen=True, kw_only=True)
class FitChange:
    """A change to a program."""

    change: str
    """The change, as options of `memviz simulate` name it."""

    code: str
    """The code to write there."""

    place: str
    """The place, in words."""


@dataclass(frozen=True, kw_only=True)
class FitCheck:
    """A recorded run, predicted."""

    allocated_difference_bytes: int
    """Predicted minus recorded `max_memory_allocated()`."""

    reserved_difference_bytes: int
    """Predicted minus recorded `max_memory_reserved()`."""

    value: int
    """Its number."""


@dataclass(frozen=True, kw_only=True)
class FitCureRow:
    """The cure of a known mistake."""

    advice: AdviceRow
    """The mistake and its cure."""

    fits: bool | None
    """Whether the program fits with this cure alone; null if unknown."""

    needs_bytes: int | None
    """The size of a device on which the program always works with the fix, in bytes that the allocator can use;
    null if nothing was simulated.
    """


@dataclass(frozen=True, kw_only=True)
class FitDevice:
    """`memviz fit`, one device."""

    alloc_conf: str
    """The simulated settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them."""

    assumptions: tuple[str, ...]
    """Their assumptions, one sentence each."""

    capacity_bytes: int | None
    """Bytes that the allocator can use; null if no device was named."""

    changes: tuple[str, ...]
    """Changes to the program, such as `accumulate:4` or `optimizer:sgd`: they apply to predictions, not to
    recorded runs.
    """

    context_bytes: int | None
    """Further bytes of the device that CUDA itself uses; null if no device was named."""

    cures: tuple[FitCureRow, ...]
    """Cures of known mistakes in the program of a single recording that does not fit unchanged."""

    cures_together: FitTogetherRow | None
    """Several of the first cures combined; null if fewer than two of them were simulated."""

    cures_with_plan: FitTogetherRow | None
    """The first cures combined with a plan: the easiest one that is enough with them, if it is easier than all
    plans without them; or the closest one, if no plan is enough. Null if cures alone are enough, or if there is
    no such plan.
    """

    device: int
    """Device."""

    need: FitNeed | None
    """What the program needs if a request failed; otherwise null."""

    notes: tuple[str, ...]
    """Notes, in words."""

    peak: FitPeak | None
    """The memory at the peak, by site, at the requested number or the largest that fits; null if there is neither."""

    refused: str | None
    """Why there is no prediction; null if there is one."""

    scaling: FitScaling
    """Memory at other numbers."""

    search: FitSearch | None
    """Changes that make a single recording fit the device; null if there are several recordings, or no simulation."""


@dataclass(frozen=True, kw_only=True)
class FitGeneration:
    """A cache that grows with every token, and how far it can grow on the device."""

    at_most_tokens: int | None
    """The maximum that can fit: the same number, unless the search would take too long."""

    because: str
    """The basis of the numbers, or why they are unknown."""

    bytes_per_token: int | None
    """Bytes by which they grow together per token."""

    fits_tokens: int | None
    """Tokens in the cache that fit."""

    recorded_tokens: int | None
    """Tokens in the cache at the end, including the prompt."""

    tensors: int | None
    """Tensors of the cache; null if its growth is unknown, like everything below."""

    trust: Trust
    """How far you can trust it."""


@dataclass(frozen=True, kw_only=True)
class FitMatching:
    """Two recordings, compared."""

    matched_requests: int
    """Requests in both."""

    only_first_requests: int
    """Requests only in the first."""

    only_second_requests: int
    """Requests only in the second."""


@dataclass(frozen=True, kw_only=True)
class FitNeed:
    """What a program that ran out of memory needs."""

    because: str
    """The reasons for both bounds, in words."""

    need_bytes: tuple[int, int | None]
    """Bounds of the bytes that it needs for the allocator: lower and upper; the latter is null if nothing bounds
    it from above.
    """

    verdict: str
    """Whether it fits the device: `fits`, `fits_if`, `cannot_fit` or `unknown`."""


@dataclass(frozen=True, kw_only=True)
class FitNotPlayed:
    """A change that cannot be simulated with a recording."""

    because: str
    """Why it cannot be simulated."""

    change: str
    """The change."""


@dataclass(frozen=True, kw_only=True)
class FitPeak:
    """The memory at the peak, by site."""

    attribution: AttributionRows
    """The sites."""

    value: int
    """The number."""


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """Settings and changes to a program, simulated together."""

    alloc_conf: str
    """Allocator settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them."""

    alloc_retries: int
    """`num_alloc_retries`."""

    assumptions: tuple[str, ...]
    """Assumptions, in words."""

    because: str
    """Why it is uncertain; empty if it is not."""

    changes: tuple[FitChange, ...]
    """Changes to the program."""

    max_allocated_bytes: int
    """`max_memory_allocated()`."""

    max_reserved_bytes: int
    """`max_memory_reserved()`."""

    needs_bytes: int | None
    """The size of a device on which it always works, in bytes that the allocator can use: the smallest, as far as
    known; null if that was not requested.
    """

    other_settings: bool
    """Whether they differ from the recorded ones."""

    recompute_us: int | None
    """Mean time of recomputed calls in microseconds, per forward pass; null if unknown."""

    tight: bool
    """Whether it fits, but would not fit with one more segment than simulated."""

    trust: Trust
    """How far you can trust it."""


@dataclass(frozen=True, kw_only=True)
class FitPoint:
    """A recorded run."""

    max_allocated_bytes: int
    """`max_memory_allocated()`."""

    max_reserved_bytes: int
    """`max_memory_reserved()`."""

    value: int
    """Its number."""


@dataclass(frozen=True, kw_only=True)
class FitPrediction:
    """A run at a number."""

    alloc_retries: int
    """`num_alloc_retries`."""

    because: str
    """Why it is not exact; empty if it is."""

    fails_at_entry: int | None
    """The first entry whose request is refused, in the recording whose order of requests is simulated; null if it
    finishes.
    """

    finishes: bool
    """Whether every request is served."""

    max_allocated_bytes: int
    """`max_memory_allocated()`; if the program does not finish, up to that entry, like the figures below."""

    max_allocated_bytes_range: tuple[int, ...] | None
    """Its minimum and maximum, if it depends on an unknown; otherwise null."""

    max_reserved_bytes: int
    """`max_memory_reserved()`."""

    max_reserved_bytes_range: tuple[int, ...] | None
    """Its minimum and maximum, if it depends on the driver's placement of segments; otherwise null."""

    recorded: bool
    """Whether it was recorded."""

    trust: Trust
    """How far you can trust it."""

    uncertain: bool
    """Whether it is doubtful for other reasons than its distance from the recorded numbers."""

    unmatched_bytes: int
    """The maximum of their bytes that are live at once."""

    unmatched_requests: int
    """Requests that are in only one recording, or whose sizes follow no rule."""

    value: int
    """The number."""


@dataclass(frozen=True, kw_only=True)
class FitScaling:
    """Runs at other numbers."""

    check: FitCheck | None
    """With three recordings, the last one predicted from the others; null if there are two."""

    fails: int | None
    """The smallest number above it that was found not to fit; null if there is none."""

    largest: int | None
    """The largest number that fits; null if no device was named, none fits, or all do."""

    matching: tuple[FitMatching, ...]
    """How well each recording matches the next."""

    parameter: str
    """The name of the number; empty if there is one recording, like everything below."""

    points: tuple[int, ...]
    """The recorded numbers."""

    predictions: tuple[FitPrediction, ...]
    """Recorded and predicted numbers, ascending."""

    recorded: tuple[FitPoint, ...]
    """The recorded figures at these numbers."""

    tokens: int | None
    """Tokens in a growing cache up to which the requests are served; null if none were requested."""


@dataclass(frozen=True, kw_only=True)
class FitSearch:
    """Changes that make a program fit on a device."""

    as_it_is: FitPlan | None
    """The unchanged program; null if there is no simulation."""

    checkpoints_untried: bool
    """Whether checkpointing was not tried although it may help: the recording does not contain the backward pass
    for which forward passes keep memory, so the peak with recomputation is unknown.
    """

    cut: bool
    """Whether there are more combinations, for which the recording is too long."""

    fits: bool | None
    """Whether it fits unchanged; null if that is unknown, because there is no simulation and no bound decides."""

    forward_us: int | None
    """Mean CPU time of a forward pass in microseconds; null if unknown."""

    generation: FitGeneration | None
    """How many tokens fit, if a KV cache grows with each; null if none does."""

    goal_bytes: int
    """The limit in bytes: memory of the device for the allocator, or a limit on allocated bytes."""

    missing_bytes: int | None
    """How much the closest changes exceed the limit; null if a plan fits."""

    nearest: FitPlan | None
    """If there are none, the closest changes; null if a plan fits, or if none needs less than the unchanged
    program.
    """

    not_played: tuple[FitNotPlayed, ...]
    """Changes that cannot be simulated with this recording."""

    plans: tuple[FitPlan, ...]
    """Changes that make it fit, the easiest first; empty if it fits unchanged, or if there are none."""

    played_to_entry: int | None
    """If the recording runs out of memory, the entry up to which it is simulated; otherwise null."""

    replay_difference_bytes: int | None
    """The largest difference between a simulated maximum with the recorded settings and the recorded one; null if
    there is no simulation.
    """

    settings_tried: int
    """Number of other allocator settings that were simulated alone."""

    tried: int
    """Number of simulated combinations."""


@dataclass(frozen=True, kw_only=True)
class FitTogetherRow:
    """Several cures at once."""

    changes: tuple[str, ...]
    """Further changes, as `memviz simulate` takes them."""

    cures: tuple[int, ...]
    """The cures, numbered from 0."""

    fits: bool | None
    """Whether the program fits with them; null if unknown."""

    needs_bytes: int | None
    """As for a single cure."""

    plan: FitPlan | None
    """These changes with their settings and their code; the figures are those of the program with the cures. Null
    for cures alone.
    """

    saves_allocated_bytes: int | None
    """Their saving at the peak of allocated bytes."""

    trust: Trust
    """How far you can trust the bytes."""


@dataclass(frozen=True, kw_only=True, repr=False)
class FixAnswer(Answer):
    """`memviz fix`."""

    command: str
    """The subcommand."""

    diff: str
    """The changes of all written fixes as a unified diff; empty if none was written."""

    fixes: tuple[FixRow, ...]
    """The fixes of all devices, in the order of the advice."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""


@dataclass(frozen=True, kw_only=True)
class FixRow:
    """A fix, and whether the diff contains it."""

    advice: AdviceRow
    """The fix as other answers describe it."""

    change: str | None
    """The change that the diff makes: that of the advice, or of one of its alternatives; null if the fix was not
    written.
    """

    device: int
    """Device."""

    file: str | None
    """The changed file, below the folder; null if the fix was not written."""

    number: int
    """Its number, which `--only` takes."""

    reason: str | None
    """Why the fix was not written; null if it was."""


#: What kind of file a recording comes from.
Format = Literal[
    # `torch.cuda.memory._dump_snapshot`.
    "cuda_snapshot",
    # `export_chrome_trace` of `torch.profiler` with `profile_memory=True`.
    "profiler_trace",
    # `export_memory_timeline` of `torch.profiler`.
    "memory_timeline",
    # `save_device_memory_profile` of `jax.profiler`.
    "device_memory_profile",
]


@dataclass(frozen=True, kw_only=True, repr=False)
class FragmentationAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[FragmentationDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class FragmentationDevice:
    """`memviz fragmentation`, one device."""

    active_bytes: int
    """Bytes of blocks in use and pending free."""

    allocated_bytes: int
    """Bytes of blocks in use."""

    at: Instant
    """The selected instant."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    block_count: int
    """Number of blocks in use and pending free."""

    by: GroupBy
    """What rows of `pinning` represent."""

    complete_history: bool
    """Whether this device's history is complete."""

    counters: CounterBytes
    """The counters of `memory_stats()` at the instant. They equal the figures unless the recording contradicts
    itself.
    """

    device: int
    """Device, -1 for pinned host memory."""

    free_block_count: int
    """Number of free blocks."""

    free_blocks: tuple[FreeBlocks, ...]
    """Free blocks by size."""

    inactive_bytes: int
    """Bytes of free blocks: `releasable + pinned_free`."""

    inactive_share: float
    """`inactive_bytes / reserved_bytes`, from 0 to 1."""

    inclusive: bool
    """Whether those rows overlap."""

    largest_free_block_bytes: int
    """The largest free block."""

    most_inactive: MostInactiveInstant
    """The instant of the whole history at which the most memory is inactive."""

    notes: tuple[str, ...]
    """What is missing or contradictory, in words."""

    pending_free_bytes: int
    """Bytes of blocks freed by the program that another stream may still use."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    pinning: tuple[PinningGroup, ...]
    """The code that keeps free bytes from being released. Rows sum to `pinned_free_bytes`, unless they are
    inclusive.
    """

    pools: tuple[Pool, ...]
    """The segments by pool and stream, the largest first; they sum to the figures above."""

    releasable_bytes: int
    """Free bytes in segments, or pages of expandable ones, without a live block."""

    requested_bytes: int
    """Requested bytes in active blocks."""

    reserved_bytes: int
    """Bytes of the segments: `allocated + pending_free + inactive`."""

    rounding: tuple[RoundingLoss, ...]
    """Rounding loss of blocks in use and pending free, by block size."""

    rounding_bytes: int
    """`active_bytes - requested_bytes`."""

    segment_count: int
    """Number of segments."""

    segments: tuple[Segment, ...]
    """Every segment, in address order."""

    stray_blocks: int
    """Active blocks that are in no segment or overlap: in no other figure; 0 unless the recording contradicts
    itself.
    """

    stray_bytes: int
    """Their bytes."""

    bounds: dict[str, str] | None = None
    """Figures that are not exact, here and in `pools`, `segments` and `over_time`: an `upper` or `lower` bound, or
    `unknown`. Left out when all are exact.
    """

    over_time: tuple[OverTime, ...] | None = None
    """Rows over time; only if requested."""

    settings: OtherSettings | None = None
    """What other allocator settings would have reserved at the instant, simulated; left out if little is non-
    releasable, or if it is unknown.
    """

    stranded: StrandedMemory | None = None
    """Free memory that only one side stream or pool can use. Left out if there is little."""


@dataclass(frozen=True, kw_only=True)
class FreeBlocks:
    """Blocks of similar size: from `min_bytes` to less than twice that, a power of two."""

    blocks: int
    """Number of blocks."""

    bytes: int
    """Their bytes."""

    max_bytes: int
    """Largest size in the class."""

    min_bytes: int
    """Smallest size in the class, a power of two."""


@dataclass(frozen=True, kw_only=True)
class FunctionToCheckpoint:
    """A repeatedly called function, and the memory that its calls hold."""

    activation_bytes: int
    """Bytes that the calls hold and that checkpointing would free."""

    calls: int
    """The maximum number of calls in a forward pass."""

    change: Change
    """The change to the code."""

    label: str
    """The function, by its file, first line and name."""


#: What rows and bands represent.
GroupBy = Literal[
    # The line of your own code.
    "site",
    # The whole stack.
    "stack",
    # Every function on the stack, inclusive.  A block counts once in each of them, so rows overlap.
    "function",
    # The file of the site.
    "file",
    # The Python package.
    "module",
    # The CUDA stream.
    "stream",
    # The memory pool.
    "pool",
    # Metadata from the program (`_set_memory_metadata`, `_annotate_tensor`).  `metadata:KEY` selects a dictionary
    # key.
    "metadata",
    # The open `record_function` ranges.
    "annotation",
    # The operator (profiler traces, with what each allocated and freed; snapshots with C++ stacks).
    "operator",
    # The `nn.Module` calls (profiler traces).
    "nn_module",
    # The module of the model, numbered among its siblings: `GPT.Block[3].Attention`.
    "module_path",
    # What the memory is for: parameters, gradients, optimizer state, activations and so on.
    "category",
    # The part of the training step that allocated it.
    "phase",
    # The variable, attribute or autograd node that holds it (recordings of `torch_memviz` with holders).
    "holder",
    # The variable from which it is reached.
    "holder_root",
]


@dataclass(frozen=True, kw_only=True, repr=False)
class InfoAnswer(Answer):
    """`memviz info`: the head, with data about the whole file."""

    annotations: tuple[AnnotationCount, ...]
    """Annotations by name."""

    command: str
    """The subcommand."""

    compression: str
    """gzip, zstd, zip or plain."""

    decompressed_bytes: int
    """Bytes after decompression."""

    device_kind: DeviceKind | None
    """The kind of device: cuda, rocm, xpu or ascend; null if nothing in the file shows it."""

    device_kind_evidence: str | None
    """What shows the kind of device; null if nothing does."""

    devices: tuple[InfoDevice, ...]
    """The answer, device by device."""

    frames: int
    """Distinct frames."""

    input: InputHead
    """The file."""

    pickle_protocol: int | None
    """Pickle protocol; null for JSON."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    settings: Settings | None
    """Allocator settings; null if the file has none."""

    stacks: int
    """Distinct stacks."""

    unknown_actions: dict[str, int]
    """Actions that were not understood, with how often each occurs."""

    unknown_keys: dict[str, int]
    """Keys that were not understood, with how often each occurs."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """

    rank: int | None = None
    """Rank of the process, if a profiler trace names it."""

    ring_capacity_entries: int | None = None
    """Entries that the ring buffer of a device can contain (`trace_alloc_max_entries`); left out if the file does
    not say.
    """

    ring_overflowed: bool | None = None
    """Whether the file says that it dropped entries (`trace_alloc_overflowed`); left out if the file does not say."""

    world_size: int | None = None
    """Number of ranks, if a profiler trace names it."""


@dataclass(frozen=True, kw_only=True)
class InfoDevice:
    """`memviz info`, one device."""

    actions: dict[str, int]
    """Trace entries by action; actions that do not occur are left out."""

    anomalies: AnomalyCounts
    """Contradictions."""

    baseline: CounterBytes
    """Counters before the first kept entry."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    blocks: int
    """Blocks at dump time."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory, -2 for memory of the CPU."""

    end: CounterBytes
    """Counters at the end."""

    entries: int
    """Trace entries."""

    first_time_us: int | None
    """Time of the first entry since the epoch."""

    last_time_us: int | None
    """Time of the last entry since the epoch."""

    maxima: CounterBytes
    """Each counter's own maximum."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    phases: tuple[PhaseRow, ...]
    """The phases of its steps that occur."""

    segments: int
    """Segments at dump time."""

    step_name: str | None
    """Name of the annotations, or site, that marks them."""

    step_source: StepSourceName | None
    """How they were found; null if they were not."""

    steps: int | None
    """Steps of the program; null if none were found."""

    memory_stats: tuple[ComparedCounter, ...] | None = None
    """PyTorch's own counters beside the replayed ones; left out if the file does not contain them."""


@dataclass(frozen=True, kw_only=True)
class InputHead:
    """The file that an answer is about."""

    anomalies: AnomalyCounts
    """Contradictions on all devices."""

    bytes: int
    """Size of the file."""

    complete_history: bool
    """Whether recording started with an empty allocator and nothing is missing."""

    entries: int
    """Trace entries of all devices."""

    format: str
    """`cuda_snapshot`, `profiler_trace`, `memory_timeline` or `device_memory_profile`."""

    notes: tuple[str, ...]
    """What was cut off or not understood."""

    path: str
    """As the user named it."""

    rehearsal: RehearsalFacts | None = None
    """The rehearsal that recorded it. Left out for recordings from a GPU."""


@dataclass(frozen=True, kw_only=True)
class Instant:
    """An instant of one device: its entry, its time and the open annotations."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    entry: int | None
    """Entry that leads to it, counted within the device's trace; null before the first entry."""

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""


@dataclass(frozen=True, kw_only=True)
class Leak:
    """A group of blocks that grows, or has grown."""

    allocated_bytes_per_step: int
    """Bytes of the blocks, rounded to the nearest. The allocator rounds requests up, and uses a free block as a
    whole if the rest would be too small, so these bytes fill the device.
    """

    blocks_per_step: float
    """Number of blocks; 0 if it is constant and only their sizes grow."""

    bytes_per_step: int
    """Requested bytes, rounded to the nearest."""

    filled_in_step: int | None
    """The last step, counted from 1, in which a cache reached a new maximum; null if the group still grows."""

    inferred: bool
    """Whether the label is inferred rather than recorded."""

    label: str
    """The group."""

    live_blocks: int
    """Number of these blocks."""

    live_bytes: int
    """Requested bytes that are live at the end of the last step. Blocks that the last step allocated are not part
    of a cache.
    """

    oldest: Oldest | None
    """The oldest block of `stack` that is live at the end of the last step; null if there is none."""

    stack: tuple[str, ...]
    """The stack of most of the blocks that the verdict is about, innermost frame first."""

    verdict: Verdict
    """The behavior of the group."""

    holder: str | None = None
    """What holds most of the blocks of a leak, without the places in lists: `train.history[*]`. Left out unless
    the recording has holders.
    """


@dataclass(frozen=True, kw_only=True, repr=False)
class LeaksAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[LeaksDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class LeaksDevice:
    """`memviz leaks`, one device."""

    advice: tuple[AdviceRow, ...]
    """Changes to the program, the largest saving first."""

    by: GroupBy
    """What rows represent."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory."""

    growing: Rate
    """Total rates of all growth."""

    judged: bool
    """Whether there were enough steps for verdicts. If not, `leaks` is empty and means nothing."""

    leaking: Rate
    """Total rates of all leaks."""

    leaks: tuple[Leak, ...]
    """Groups that leak, then groups that grow, then caches. Groups that do not grow are left out."""

    leaks_known: bool
    """Whether a leak would be found: there are enough steps, and they are steps of training or inference. If not,
    an empty `leaks` means nothing.
    """

    left_out: int
    """Rows that `--top` left out."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    projection: ProjectionSteps | None
    """When the device is full; null if nothing leaks or grows, or if the capacity is unknown."""

    step_name: str | None
    """Name of the annotations, expression, or line by which steps are counted; null if unknown."""

    step_source: StepSourceName | None
    """How they were found; null if they were not."""

    steps: int
    """Number of steps found."""

    warm_up_steps: int
    """Leading steps that are not used for rates."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LedgerAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[LedgerDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class LedgerDevice:
    """`memviz ledger`, one device."""

    device: int
    """Device."""

    name: str | None
    """The name of the GPU; null if unknown."""

    notes: tuple[str, ...]
    """Limits of the figures, in words."""

    pinned_bytes: int | None
    """Pinned host memory that PyTorch had reserved when the recording was written; null if not recorded."""

    pinned_samples: tuple[LedgerPinned, ...]
    """Pinned host memory of the process at each sample, the same for all its devices; empty if the samples do not
    have it.
    """

    samples: tuple[LedgerSample, ...]
    """The device at each sample, in chronological order."""


@dataclass(frozen=True, kw_only=True)
class LedgerHolder:
    """The bytes of one holder."""

    bytes: int
    """Bytes; negative if figures contradict each other."""

    holder: str
    """`pytorch`, `nccl`, `context`, `process`, `other_process` or `unexplained`."""

    label: str
    """The holder in words."""

    pid: int | None = None
    """The ID of another process; absent for all other holders."""


@dataclass(frozen=True, kw_only=True)
class LedgerPinned:
    """Pinned host memory at one instant. It is not part of the device."""

    active_bytes: int
    """The number of these bytes that tensors and copies use."""

    at: Occasion
    """When the sample was taken."""

    reserved_bytes: int
    """Bytes that PyTorch's allocator had pinned."""

    time_us: int | None
    """Its time since the epoch; null if unknown."""


@dataclass(frozen=True, kw_only=True)
class LedgerPool:
    """The segments of pools of one kind."""

    bytes: int
    """Bytes of their segments."""

    kind: PoolKind | None
    """The use of the pools; null for the default pool."""

    pools: int
    """Number of pools."""


@dataclass(frozen=True, kw_only=True)
class LedgerSample:
    """A device at one instant."""

    allocated_bytes: int
    """The number of reserved bytes that are allocated."""

    at: Occasion
    """When the sample was taken."""

    pools: tuple[LedgerPool, ...]
    """Memory reserved by PyTorch's allocator, by kind of pool; empty if unknown. Adds up to its row."""

    rows: tuple[LedgerHolder, ...]
    """Bytes by holder; those that no other row accounts for are last."""

    time_us: int | None
    """Its time since the epoch; null if unknown."""

    total_bytes: int
    """Bytes of the device."""

    used_bytes: int
    """Bytes in use: the sum of all rows."""

    memory_stats: dict[str, int] | None = None
    """All counters of `torch.cuda.memory_stats` by name; absent if the sample does not have them."""

    name: str | None = None
    """The name that the program gave to a point; left out for other samples."""


@dataclass(frozen=True, kw_only=True)
class MeasuredDevice:
    """One device, and how certain its maxima are."""

    attribution: AttributionRows
    """The groups that hold the memory."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    certainty: Certainty
    """Its maxima."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory, -2 for memory of the CPU."""

    end: CounterBytes
    """Counters at the end."""

    maxima: CounterBytes
    """Each counter's own maximum."""

    metric: str
    """The selected counter."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    peak: PeakInstant
    """The selected instant."""

    bounds: dict[str, Bound] | None = None
    """Numbers that are not exact: `baseline_bytes`, or a counter's maximum, as an `upper` or `lower` bound, or
    `unknown`. Left out when all are exact.
    """

    each: EachRange | None = None
    """The kind of the ranges below. Left out unless `--each` requests ranges."""

    operators: tuple[OperatorRow, ...] | None = None
    """Memory allocated in each operator over the whole recording, those that allocated the most themselves first.
    Left out unless rows are operators and the recording shows them.
    """

    ranges: tuple[RangeRow, ...] | None = None
    """The peak of each step, phase or annotation, in the order of their starts, enclosing ones first. Left out
    unless `--each` requests them.
    """

    window: Window | None = None
    """The part of the history that `peak`, `maxima` and `end` refer to, if it is not the whole history."""


#: The kind of memory, as numbered by `ENUM_CUDA_MEM_KIND`.
MemoryKind = Literal[
    # Pageable host memory.
    "pageable",
    # Pinned host memory.
    "pinned",
    # Device memory.
    "device",
    # CUDA arrays.
    "array",
    # Managed memory, which moves between host and devices.
    "managed",
    # Variables of device code.
    "device_static",
    # Managed variables of device code.
    "managed_static",
    # Memory of an unknown kind.
    "unknown",
]

#: A counter, named as in `memory_stats` (`<name>_bytes.all.current`).
Metric = Literal[
    # Blocks, from their allocation until their free is requested.
    "allocated",
    # Blocks, from their allocation until their free completes.
    "active",
    # Requested bytes of blocks, until their free completes.
    "requested",
    # Segments.
    "reserved",
]


@dataclass(frozen=True, kw_only=True)
class MissingRanks:
    """Consecutive ranks."""

    from_: int
    """The first one."""

    to: int
    """The last one."""


@dataclass(frozen=True, kw_only=True)
class MostInactiveInstant:
    """An instant, and the inactive bytes there."""

    entry: int | None
    """First entry that leads there; null before the first entry."""

    inactive_bytes: int
    """Inactive bytes there: `reserved - active`."""

    reserved_bytes: int
    """Reserved bytes there."""


#: Why nothing can be said about checkpointing.
NoCandidates = Literal[
    # The recording has no entries of this device.
    "no_history",
    # Stacks were not recorded, or were recorded without Python frames.
    "no_stacks",
    # A profiler trace: its frames have the line at which a function starts, not the current line, so calls cannot
    # be distinguished.
    "no_lines",
    # The kept history has neither a forward nor a backward pass.
    "no_forward",
    # No forward is followed by a backward, and none keeps what one would need.
    "no_training_step",
    # The pass that contains the peak runs out of memory, or the file was cut off in it: what its backward would
    # have freed is unknown.
    "unfinished",
    # The peak is in a forward pass that no backward follows.
    "no_backward",
    # The peak is in the optimizer's step, when everything that forward keeps for backward has been freed.
    "peak_in_optimizer",
    # No function is called more than once in a forward pass, so none was tried.
    "nothing_repeats",
    # A later pass that runs out of memory needs at least about as much as the peak. What its backward would have
    # freed is unknown.
    "later_unfinished",
    # No function that is called more than once in a forward pass would lower the peak.
    "nothing_saves",
]


@dataclass(frozen=True, kw_only=True, repr=False)
class NsysAnswer(Answer):
    """The answer of `memviz nsys`."""

    command: str
    """The subcommand."""

    input: NsysInput
    """The file."""

    memories: tuple[NsysMemoryAnswer, ...]
    """Memory by process and place."""

    pytorch: NsysPytorch | None
    """The part of it in the recording of `--snapshot`; null without one."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""


@dataclass(frozen=True, kw_only=True)
class NsysInput:
    """The file."""

    bytes: int
    """Size of the file."""

    notes: tuple[str, ...]
    """Limits of all figures, in words."""

    path: str
    """As the user named it."""

    schema_version: str | None
    """Version of the export's tables; null if the file does not contain it."""

    session_start_ns: int | None
    """Nanoseconds since the epoch at which the times of the profile start; null if the file does not contain it."""


@dataclass(frozen=True, kw_only=True)
class NsysMemoryAnswer:
    """Memory of a process at one place."""

    allocated_bytes: int
    """Bytes of all allocations."""

    allocations: int
    """Number of allocations."""

    device: int | None
    """Device; null for other places."""

    frees: int
    """Number of frees."""

    gpu: str | None
    """The name of the GPU; null if unknown."""

    notes: tuple[str, ...]
    """Limits of the figures, in words."""

    peak: NsysPeakAnswer | None
    """The peak; null if the order of the events is unknown."""

    pid: int
    """The process ID."""

    place: str
    """`device`, `managed`, `pinned`, `pageable` or `unknown`."""

    program: str | None
    """The name of the program; null if unknown."""

    ranges: tuple[NsysRange, ...]
    """NVTX ranges of the process by name, those with the most memory first."""

    rows: tuple[NsysRowAnswer, ...]
    """Who allocated."""

    total_bytes: int | None
    """Memory of the GPU; null if unknown."""


@dataclass(frozen=True, kw_only=True)
class NsysPeakAnswer:
    """The highest memory."""

    bytes: int
    """Bytes: the sum of `peak_bytes` of all rows."""

    curve_bytes: tuple[int, ...]
    """Highest number of bytes in equal parts of the time from the first to the last event of the profile."""

    end_bytes: int
    """Bytes that were not freed in the profile."""

    open_ranges: tuple[str, ...]
    """NVTX ranges that are open at the peak, outermost first."""

    time_ns: int
    """Nanoseconds since the start of the session."""


@dataclass(frozen=True, kw_only=True)
class NsysPytorch:
    """The part of a profile that a recording shows."""

    expandable: int
    """Mapped ranges of expandable segments, which cannot be compared."""

    found: int
    """Number of these that are in the profile."""

    found_bytes: int
    """Their bytes."""

    pid: int | None
    """The process of the recording: the one with the most of its segments; null if the profile has none of them."""

    repeated: int
    """Allocations of the profile with the address and size of a segment, beyond the number of such segments: the
    recording may have started later. They count as PyTorch's.
    """

    segment_bytes: int
    """Their bytes."""

    segments: int
    """Segments in the recording, without expandable ones."""


@dataclass(frozen=True, kw_only=True)
class NsysRange:
    """NVTX ranges of one name."""

    allocated_bytes: int
    """Bytes that were allocated while they were open, by any thread of the process."""

    count: int
    """Number of ranges."""

    freed_bytes: int
    """Bytes that were freed while they were open."""

    highest_bytes: int
    """Highest number of bytes while one of them was open, those from before included."""

    name: str
    """Which line it is."""


@dataclass(frozen=True, kw_only=True)
class NsysRowAnswer:
    """The blocks of one holder that were allocated in the same way."""

    allocated_bytes: int
    """Bytes of all allocations."""

    allocations: int
    """Number of allocations."""

    call: str | None
    """The function of the CUDA API; null if unknown."""

    end_bytes: int | None
    """Bytes that were not freed; null if the order of the events is unknown."""

    freed: int
    """Number of these that were freed in the profile."""

    holder: str
    """`pytorch`, `library` or `unknown`."""

    kind: MemoryKind
    """The kind of memory."""

    label: str
    """The holder in words."""

    peak_bytes: int | None
    """Bytes at the peak; null if the order of the events is unknown."""


#: When a sample was taken.
Occasion = Literal[
    # When recording started.
    "start",
    # At the end of the step at which the most memory was in use.
    "peak",
    # When a request failed.
    "oom",
    # When the recording was written, for example on a signal.
    "dump",
    # Where the program asked for it.
    "point",
    # When recording ended.
    "end",
]


@dataclass(frozen=True, kw_only=True)
class Oldest:
    """The oldest live block; all null for a block from before the recording."""

    entry: int | None
    """Its alloc entry, counted within the device's trace."""

    since_start_us: int | None
    """The time since the first entry of the recording; null if the file has no times."""

    step: int | None
    """The step, counted from 1, that allocated it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class OomAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[OomDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class OomDevice:
    """`memviz oom`, one device."""

    advice: tuple[AdviceRow, ...]
    """Changes to the program, the largest saving first."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory."""

    failed_requests: int
    """Number of failed requests."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    ooms: tuple[FailedRequest2, ...]
    """Failed requests, in order: all of them, unless there are too many; the last ones are then only counted."""

    plans: FitSearch | None
    """Changes to the program that would have made room for the failed request; null if unknown, or if other
    allocator settings are enough.
    """

    bounds: dict[str, str] | None = None
    """Figures in `ooms` that are not exact: an `upper` or `lower` bound, or `unknown`. Left out when all are
    exact.
    """

    ledger: LedgerSample | None = None
    """What used the device when a request failed. Left out unless `torch_memviz.record` sampled it."""

    peak: PeakDevice | None = None
    """The peak, if no device of the recording has a failed request."""


@dataclass(frozen=True, kw_only=True)
class OomFit:
    """Whether a program that ran out of memory fits, and with what."""

    because: str
    """The reasons for both bounds, in words."""

    capacity_bytes: int
    """Bytes that the allocator could use when the request failed."""

    fixes: tuple[OomFix, ...]
    """What helps on its own, what lets the request succeed first."""

    need_bytes: tuple[int, int | None]
    """Bounds of the bytes that the unchanged program needs: lower and upper; the latter is null if nothing bounds
    it from above.
    """

    together: OomFixes | None
    """The fewest of these changes with which the whole step fits, if it does with none alone; otherwise those that
    let the request succeed together, if none does alone.
    """

    verdict: str
    """`fits_with` if the whole step fits with one of the changes, otherwise that of the unchanged program: `fits`,
    `fits_if`, `cannot_fit` or `unknown`.
    """


@dataclass(frozen=True, kw_only=True)
class OomFix:
    """A change, and what it does for a failed request."""

    advice: int | None
    """Its place in `advice`, if it is one of these."""

    change: str
    """The change, in words."""

    code: str
    """The lines to write."""

    fits: bool | None
    """Whether the whole step fits; null if unknown."""

    need_bytes: tuple[int, int | None]
    """Bounds of what the whole step needs."""

    reserved_bytes: int | None
    """Bytes reserved once it has succeeded; null if it fails, or if unknown."""

    saves_bytes: int
    """Bytes that they save when the request fails."""

    serves_request: bool | None
    """Whether the request succeeds; null if unknown."""

    uncertain: bool
    """Whether the simulation may be far off."""


@dataclass(frozen=True, kw_only=True)
class OomFixes:
    """Several of the changes together."""

    fits: bool | None
    """Whether the whole step fits; null if unknown."""

    need_bytes: tuple[int, int | None]
    """Bounds of what the whole step needs."""

    places: tuple[int, ...]
    """Their places in `fixes`."""

    reserved_bytes: int | None
    """Bytes reserved once it has succeeded; null if it fails, or if unknown."""

    saves_bytes: int
    """Bytes that they save when the request fails."""

    serves_request: bool | None
    """Whether the request succeeds; null if unknown."""

    uncertain: bool
    """Whether the simulation may be far off."""


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """One operator, as in TensorBoard's memory view. Sums with its callees count a byte in every operator around
    it.
    """

    allocation_count: int
    """Allocations, including those of its callees."""

    allocation_size_bytes: int
    """Bytes allocated, including its callees."""

    calls: int
    """Number of calls."""

    name: str
    """The operator; `(no operator)` for events outside of operators."""

    self_allocation_count: int
    """The same without its callees."""

    self_allocation_size_bytes: int
    """The same without its callees."""

    self_size_increase_bytes: int
    """The same without its callees."""

    size_increase_bytes: int
    """Bytes allocated minus bytes freed, including its callees."""


@dataclass(frozen=True, kw_only=True)
class OtherSettings:
    """Other allocator settings, simulated up to an instant."""

    alloc_conf: str | None
    """The simplest of the settings that reserve the least at the instant, or hardly more, in the syntax of
    `PYTORCH_CUDA_ALLOC_CONF`; null if none reserves notably less.
    """

    reserved_bytes: int | None
    """Bytes reserved with them; the maximum if it depends on the driver's placement of segments."""

    tried: int
    """Number of simulated settings."""

    trust: Trust | None
    """How far you can trust that."""


@dataclass(frozen=True, kw_only=True)
class OutlierRow:
    """A site that differs. If a rank does not list the site, its other sites may include some of it."""

    bytes: int | None
    """Bytes on the rank; null if its summary does not list the site."""

    delta_bytes: int
    """How many more bytes the rank holds. A site that is not listed counts as 0 here, and is included in the rest
    below.
    """

    label: str
    """The site."""

    reference_bytes: int | None
    """Bytes on the reference; null if its summary does not list the site."""

    bound: Bound | None = None
    """Which bound the delta is as a result, if a site is not listed. Left out if it is exact."""

    inferred: bool | None = None
    """Whether the label is inferred on either of them. Left out if false."""


@dataclass(frozen=True, kw_only=True)
class OverTime:
    """The figures at one instant of a series."""

    active_bytes: int
    """Bytes of blocks in use and pending free."""

    allocated_bytes: int
    """Bytes of blocks in use."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    block_count: int
    """Number of blocks in use and pending free."""

    entry: int | None
    """Entry that leads to it, counted within the device's trace; null before the first entry."""

    free_block_count: int
    """Number of free blocks."""

    inactive_bytes: int
    """Bytes of free blocks: `releasable + pinned_free`."""

    inactive_share: float
    """`inactive_bytes / reserved_bytes`, from 0 to 1."""

    largest_free_block_bytes: int
    """The largest free block."""

    pending_free_bytes: int
    """Bytes of blocks freed by the program that another stream may still use."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    releasable_bytes: int
    """Free bytes in segments, or pages of expandable ones, without a live block."""

    requested_bytes: int
    """Requested bytes in active blocks."""

    reserved_bytes: int
    """Bytes of the segments: `allocated + pending_free + inactive`."""

    rounding_bytes: int
    """`active_bytes - requested_bytes`."""

    segment_count: int
    """Number of segments."""

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PeakAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[MeasuredDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class PeakDevice:
    """`memviz peak`, one device."""

    attribution: AttributionRows
    """The groups that hold the memory."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory, -2 for memory of the CPU."""

    end: CounterBytes
    """Counters at the end."""

    maxima: CounterBytes
    """Each counter's own maximum."""

    metric: str
    """The selected counter."""

    notes: tuple[str, ...]
    """What is missing, in words."""

    peak: PeakInstant
    """The selected instant."""

    bounds: dict[str, Bound] | None = None
    """Numbers that are not exact: `baseline_bytes`, or a counter's maximum, as an `upper` or `lower` bound, or
    `unknown`. Left out when all are exact.
    """

    each: EachRange | None = None
    """The kind of the ranges below. Left out unless `--each` requests ranges."""

    operators: tuple[OperatorRow, ...] | None = None
    """Memory allocated in each operator over the whole recording, those that allocated the most themselves first.
    Left out unless rows are operators and the recording shows them.
    """

    ranges: tuple[RangeRow, ...] | None = None
    """The peak of each step, phase or annotation, in the order of their starts, enclosing ones first. Left out
    unless `--each` requests them.
    """

    window: Window | None = None
    """The part of the history that `peak`, `maxima` and `end` refer to, if it is not the whole history."""


@dataclass(frozen=True, kw_only=True)
class PeakInOptimizer:
    """A peak in the optimizer step, by when its blocks were allocated."""

    backward_bytes: int
    """Bytes that backward allocated: gradients."""

    foreach: bool
    """Whether some temporaries are allocated for lists of tensors at once (`foreach=True`)."""

    forward_backward_peak_bytes: int | None
    """The maximum of allocated bytes in forward and backward; null if the recording has neither."""

    forward_function: FunctionToCheckpoint | None
    """The function whose calls hold the most when forward ends, to checkpoint once the optimizer needs less; null
    if there is none.
    """

    kept_bytes: int
    """Bytes that the optimizer allocates and keeps: its states."""

    other_bytes: int
    """Everything else: parameters, and memory from before the recording."""

    temporary_bytes: int
    """Bytes that the optimizer allocates and frees before its step ends."""


@dataclass(frozen=True, kw_only=True)
class PeakInstant:
    """An instant and the counters there."""

    active_bytes: int
    """Blocks in use until their free completes."""

    allocated_bytes: int
    """Blocks in use until their free is requested."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    entry: int | None
    """Entry that leads to it, counted within the device's trace; null before the first entry."""

    requested_bytes: int
    """Bytes that callers requested, until the free completes."""

    reserved_bytes: int
    """Segments."""

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""


#: The part of a training step that an entry belongs to.
Phase = Literal[
    # From the model's inputs to the loss.
    "forward",
    # `backward()`, including recomputation.
    "backward",
    # The optimizer, gradient scaling and clipping, `zero_grad`.
    "optimizer",
    # Moving the inputs to the device.
    "data",
    # Building the model, and everything else that is not part of a step or is unknown.
    "other",
]


@dataclass(frozen=True, kw_only=True)
class PhaseRow:
    """All entries of one phase."""

    entries: int
    """Which line it is."""

    phase: Phase
    """Which line it is."""

    recorded_entries: int
    """Those of its entries whose phase an annotation names; the phase of the others is inferred."""

    time_us: int | None
    """Time from each of its entries to the next one; null if the file has no times. Phases sum to the total."""

    times: int
    """How often it occurs; an optimizer step counts only after a backward pass: `zero_grad` at the start of a step
    does not count.
    """


@dataclass(frozen=True, kw_only=True)
class PhasedInstant:
    """An instant and its phase of the training step."""

    annotations: tuple[str, ...]
    """Open `record_function` ranges, outermost first."""

    entry: int | None
    """Entry that leads to it, counted within the device's trace; null before the first entry."""

    phase: Phase
    """The phase."""

    time_us: int | None
    """Time of that entry since the epoch; null if the file has no times."""


@dataclass(frozen=True, kw_only=True)
class PinningGroup:
    """Free bytes that the blocks of one group keep reserved."""

    alone_free_bytes: int
    """Free bytes in segments (or pages) that only this group's blocks keep reserved. In the row `(other)`, a lower
    bound.
    """

    blocks: int
    """Number of these blocks."""

    bytes: int
    """Bytes of its blocks that keep free bytes reserved."""

    inferred: bool
    """Whether the label is inferred."""

    label: str
    """The group."""

    pinned_free_bytes: int
    """Free bytes attributed to it. Blocks in the same segment (or page) are attributed equal parts."""

    pinned_free_bytes_per_block: float
    """`pinned_free_bytes / blocks`."""

    stack: tuple[str, ...]
    """The stack with the most attributed bytes, innermost frame first."""

    worst_block_bytes: int
    """The most bytes attributed to one block."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Segments whose free blocks can serve the same requests: the allocator keeps these groups separate."""

    active_bytes: int
    """Bytes of blocks in use and pending free."""

    allocated_bytes: int
    """Bytes of blocks in use."""

    block_count: int
    """Number of blocks in use and pending free."""

    expandable: bool
    """Whether its segments are expandable."""

    free_block_count: int
    """Number of free blocks."""

    free_blocks: tuple[FreeBlocks, ...]
    """Its free blocks by size."""

    inactive_bytes: int
    """Bytes of free blocks: `releasable + pinned_free`."""

    inactive_share: float
    """`inactive_bytes / reserved_bytes`, from 0 to 1."""

    largest_free_block_bytes: int
    """The largest free block."""

    pending_free_bytes: int
    """Bytes of blocks freed by the program that another stream may still use."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    pool_id: tuple[int, int] | None
    """Pool id, (0, 0) for the default one; null if the file does not record it."""

    releasable_bytes: int
    """Free bytes in segments, or pages of expandable ones, without a live block."""

    requested_bytes: int
    """Requested bytes in active blocks."""

    reserved_bytes: int
    """Bytes of the segments: `allocated + pending_free + inactive`."""

    rounding_bytes: int
    """`active_bytes - requested_bytes`."""

    segment_count: int
    """Number of segments."""

    segment_type: str
    """`small` for blocks of up to 1 MiB, otherwise `large`."""

    stream: int | None
    """CUDA stream; null if the file does not record it."""

    private: PrivatePoolFacts | None = None
    """Details of a private pool. Left out for other pools."""


#: The evidence for the kind of a pool.
PoolEvidence = Literal[
    # Its ID: (number, 0) for a graph with its own pool, (0, number) for pools created from Python.
    "id",
    # A frame on the stack of a request.
    "stack",
    # Requests on the default stream, on which no graph can be captured.
    "stream",
]

#: The kind of a pool.
PoolKind = Literal[
    # For the CUDA graph that created it.
    "captured_graph",
    # The CUDA graphs of `torch.compile(mode="reduce-overhead")`.
    "cudagraph_trees",
    # Tensors of symmetric memory.
    "symmetric_memory",
    # `torch.cuda.MemPool`.
    "mem_pool",
    # `torch.cuda.MemPool`, or graphs that share a `graph_pool_handle`: their IDs look the same.
    "mem_pool_or_handle",
]


@dataclass(frozen=True, kw_only=True)
class PrivatePoolFacts:
    """A pool other than the default one."""

    evidence: PoolEvidence
    """The evidence for its kind."""

    first_used: str | None
    """The line of the first recorded request that it served; null if no stack shows it."""

    kind: PoolKind
    """Its use."""

    pool_id: tuple[int, int]
    """Which line it is."""


@dataclass(frozen=True, kw_only=True)
class ProjectionSteps:
    """When the device is full, if growth continues."""

    allocated_bytes_per_step: int
    """Bytes of blocks that everything that leaks or grows adds per step."""

    capacity_bytes: int
    """Bytes that the program can use."""

    peak_bytes: int
    """The maximum of allocated bytes within the last step."""

    steps: int
    """The number of further steps that fit the device."""


@dataclass(frozen=True, kw_only=True)
class RangeLeader:
    """A group that holds much at the peak of a range."""

    blocks: int
    """Its blocks."""

    bytes: int
    """Its bytes."""

    inferred: bool
    """Whether the label is inferred."""

    label: str
    """The group."""


@dataclass(frozen=True, kw_only=True)
class RangeRow:
    """A step, phase or annotation with its own peak. Ranges may overlap and nest."""

    from_entry: int | None
    """The entry before the range, whose state the range starts with; null before the first entry."""

    inferred: bool
    """Whether the bounds of the range are inferred."""

    label: str
    """Its name, with a number from the second range with this name on: `forward#2`. `(outside)` is the period
    outside all ranges that contains the overall peak; it is left out if that is in a range.
    """

    peak: PeakInstant
    """The instant at which the metric is highest, from `from_entry` to `to_entry`, both included."""

    to_entry: int | None
    """Last entry of the range; null before the first entry."""

    top: tuple[RangeLeader, ...]
    """The groups that hold the most at the peak, and the rest as `(other)`."""

    total_bytes: int
    """Bytes of the metric that are held at the peak; `top` sums to it, unless groups overlap."""

    bound: Bound | None = None
    """Which bound the metric is there, if it is not exact: a part of the range, or some of the memory, was not
    recorded. Left out if it is exact.
    """


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """Failed requests of a rank with one signature."""

    requests: int
    """How many there are."""

    signature: FailureSignature
    """What they have in common."""


@dataclass(frozen=True, kw_only=True)
class RankName:
    """A row, by its rank."""

    device: int
    """Its device."""

    rank: int
    """Number of the rank."""


@dataclass(frozen=True, kw_only=True)
class RankOutlier:
    """An outlying maximum."""

    bytes: int
    """Its maximum."""

    delta_bytes: int | None
    """The sum of all rows: bytes that the rank holds at its peak in excess of the reference."""

    device: int
    """Its device."""

    median_bytes: int
    """The median over the ranks."""

    metric: Metric
    """The metric."""

    path: str
    """Its recording."""

    rank: int
    """Number of the rank."""

    reference: RankName | None
    """The rank that `rows` compare with; null for metrics that are not attributed."""

    rows: tuple[OutlierRow, ...]
    """Sites that differ, the largest difference first. Empty for metrics that are not attributed."""

    score: float
    """Robust z-score."""


#: Where a rank's number is from.
RankSource = Literal[
    # From the recording itself: `distributedInfo` of a profiler trace.
    "recorded",
    # From the path.
    "path",
    # The position among the inputs, counted from 0.
    "order",
]


@dataclass(frozen=True, kw_only=True)
class RankSummary(Answer):
    """A rank on one device."""

    command: str
    """`ranks`."""

    schema_version: int
    """Changes when the meaning of a key does."""

    line: Literal["rank"]
    """Which line it is."""

    anomalies: int
    """Contradictions in it."""

    baseline_bytes: int
    """Allocated before the first kept entry."""

    complete_history: bool
    """Whether recording started with an empty allocator and nothing is missing."""

    device: int
    """Device: -1 for pinned host memory, -2 for CPU memory."""

    end: Counters
    """Counters at the end."""

    entries: int
    """Entries of the device."""

    format: Format
    """What kind of file the recording is."""

    inactive_bytes: int | None
    """Reserved but not active there. `None` if nothing is ever reserved, as on a CPU."""

    maxima: Counters
    """Each metric's maximum."""

    metric: Metric
    """The metric whose peak `peak` and `top` describe."""

    ooms: int
    """Number of failed requests."""

    path: str
    """The recording, as it was named where it was summarized."""

    peak: Counters
    """The counters at that peak."""

    rank: int
    """Number of the rank."""

    rank_source: RankSource
    """Where that number is from."""

    top: tuple[TopRow, ...]
    """The sites that hold the most at the peak; the rest is the last row, `(other)`."""

    total_bytes: int
    """Bytes held at the peak; `top` sums to it."""

    bounds: dict[str, Bound] | None = None
    """Which of `baseline_bytes` and `maxima` are not exact."""

    code: CodeSample | None = None
    """The lines of code that allocate, if stacks show them."""

    device_memory: DeviceMemory | None = None
    """The whole device, if it was sampled. Left out when it was not."""

    failures: tuple[RankFailure, ...] | None = None
    """The signatures of the first [`SIGNED`] of these."""

    time_us: tuple[int, int] | None = None
    """Times of the first and the last entry in microseconds since the epoch, if the recording has times."""

    world_size: int | None = None
    """Number of ranks in the run, if the recording shows it."""


@dataclass(frozen=True, kw_only=True)
class RanksFailure:
    """Failed requests that have the same signature."""

    earlier: tuple[FailedRow, ...]
    """The rows of earlier runs that have such requests."""

    requests: int
    """Number of these requests."""

    rows: tuple[FailedRow, ...]
    """The rows that have such requests."""

    signature: FailureSignature
    """Their common signature."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How much a group of blocks grows per step."""

    allocated_bytes_per_step: int
    """Bytes of the blocks, rounded to the nearest. The allocator rounds requests up, and uses a free block as a
    whole if the rest would be too small, so these bytes fill the device.
    """

    blocks_per_step: float
    """Number of blocks; 0 if it is constant and only their sizes grow."""

    bytes_per_step: int
    """Requested bytes, rounded to the nearest."""


@dataclass(frozen=True, kw_only=True)
class RecordedSettings:
    """The recording, and its difference from a simulation of its own settings."""

    differs_from_entry: int | None
    """The first entry at which a call to the driver, its address or its size differs; null if all are equal."""

    empty_cache_calls: int
    """Calls of `empty_cache`; they are simulated at their recorded place."""

    max_allocated_bytes: int
    """`max_memory_allocated()`."""

    max_reserved_bytes: int
    """`max_memory_reserved()`."""

    replay_difference_bytes: int | None
    """The largest difference between a simulated and a recorded maximum; null if there is no simulation."""

    retries: int
    """Requests for which the allocator first released memory."""

    uncertain_empty_cache_calls: int
    """The number of these calls that may be retries of the next request instead."""

    uncertain_retries: int
    """The number of retries that may be calls of `empty_cache` instead."""


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """A request that was refused in the recording."""

    entry: int
    """Its entry."""

    served: bool
    """Whether it is served here."""


@dataclass(frozen=True, kw_only=True)
class RehearsalFacts:
    """The facts of a rehearsal. No kernel ran, and every value read from a device was 0."""

    assumed: str | None
    """The assumption about such values; null if there was none."""

    context_bytes: int
    """Memory that CUDA itself was assumed to use."""

    cudnn_larger_bytes: int
    """By how much such a workspace, and so a peak of allocated memory, may be larger."""

    cudnn_operations: int
    """The number of cuDNN operations whose workspaces are unknown and were assumed to be 0."""

    cudnn_planned: int
    """The number of cuDNN operations whose workspaces cuDNN itself planned, without a device."""

    cudnn_smaller_bytes: int
    """By how much such a workspace, and so a peak of allocated memory, may be smaller."""

    cudnn_uncertain: int
    """The number of these whose workspaces may be smaller or larger on the GPU."""

    ended: str | None
    """Why it ended before the program; null if it did not."""

    gpu: str
    """The kind of GPU, as `memviz rehearse --list` names it."""

    memory_bytes: int
    """Memory of each device: the total capacity in PyTorch's messages."""

    not_rehearsed: tuple[str, ...]
    """Calls that are not rehearsed, and so failed or were left out."""

    ranks: int
    """The number of ranks, one of which was rehearsed alone; 1 if all ran, or if there are none."""

    sizes_from_values: bool
    """Whether the size of something came from a value, so that no figure is exact."""

    value_reads: tuple[ValueReadsRow, ...]
    """Lines that read values, those that decided about sizes first."""

    without_weights: tuple[str, ...]
    """Models that were built without their weights."""


@dataclass(frozen=True, kw_only=True)
class Requester:
    """A request as the `oom` entry records it, and the code that made it."""

    compile_context: str
    """`torch.compile` context; empty if there is none."""

    label: str
    """Its site; `(no stack)` in backward passes, unless C++ frames were recorded."""

    last_known_entry: int | None
    """Without Python frames: the entry of the last request that has some."""

    last_known_label: str | None
    """Its site."""

    same_size: tuple[SameSize, ...]
    """Without Python frames: sites of live blocks of the same rounded size. A gradient is as large as the tensor
    it belongs to, so these are inferred candidates, not facts.
    """

    stack: tuple[str, ...]
    """Its stack, innermost frame first; empty in backward passes."""

    user_metadata: str
    """Text that the user attached; empty if there is none."""


@dataclass(frozen=True, kw_only=True)
class RoundingLoss:
    """Blocks in use and pending free of similar size."""

    blocks: int
    """Number of blocks."""

    bytes: int
    """Their bytes."""

    max_bytes: int
    """Largest size in the class."""

    min_bytes: int
    """Smallest size in the class, a power of two."""

    requested_bytes: int
    """Requested bytes in them."""

    rounding_bytes: int
    """`bytes - requested_bytes`."""


#: The files that contain a row.
RowStatus = Literal[
    # On both sides.
    "changed",
    # Only in the new file.
    "new",
    # Only in the base.
    "vanished",
]


@dataclass(frozen=True, kw_only=True)
class Said:
    """A statement with its figures."""

    kind: str
    """Name of its kind."""

    text: str
    """The statement in words: one sentence, without a full stop."""

    others: dict[str, int] = field(metadata=REST)
    """All other keys, which depend on what it is about."""


@dataclass(frozen=True, kw_only=True)
class SameSize:
    """Live blocks as large as a request."""

    blocks: int
    """Number of these blocks."""

    label: str
    """Their site."""


#: The unit of deviations.
Scale = Literal[
    # The median absolute deviation divided by 0.6745, which is the standard deviation of a normal distribution.
    "median_deviation",
    # The mean absolute deviation times 1.2533, for the same reason: used if more than half of the values are equal.
    "mean_deviation",
    # All values are equal.
    "all_equal",
]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A segment and how it is used."""

    active_bytes: int
    """Bytes of blocks in use and pending free."""

    address: int
    """First address."""

    allocated_bytes: int
    """Bytes of blocks in use."""

    block_count: int
    """Number of blocks in use and pending free."""

    expandable: bool
    """Whether it is a mapped part of an expandable segment."""

    free_block_count: int
    """Number of free blocks."""

    inactive_bytes: int
    """Bytes of free blocks: `releasable + pinned_free`."""

    inactive_share: float
    """`inactive_bytes / reserved_bytes`, from 0 to 1."""

    largest_free_block_bytes: int
    """The largest free block."""

    made_by: str
    """Site of the request that created it."""

    pending_free_bytes: int
    """Bytes of blocks freed by the program that another stream may still use."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    pool_id: tuple[int, int] | None
    """Pool id; null if the file does not record it."""

    releasable_bytes: int
    """Free bytes in segments, or pages of expandable ones, without a live block."""

    requested_bytes: int
    """Requested bytes in active blocks."""

    reserved_bytes: int
    """Bytes of the segments: `allocated + pending_free + inactive`."""

    rounding_bytes: int
    """`active_bytes - requested_bytes`."""

    segment_count: int
    """Number of segments."""

    segment_type: str
    """`small` or `large`. Known for segments that exist at the end or contain an active block; otherwise it
    follows from the size.
    """

    stream: int | None
    """CUDA stream; null if the file does not record it."""


@dataclass(frozen=True, kw_only=True)
class ServingPool:
    """The pool and stream of a request."""

    active_bytes: int
    """Bytes of blocks in use and pending free."""

    allocated_bytes: int
    """Bytes of blocks in use."""

    block_count: int
    """Number of blocks in use and pending free."""

    expandable: bool
    """Whether its segments are expandable."""

    free_block_count: int
    """Number of free blocks."""

    inactive_bytes: int
    """Bytes of free blocks: `releasable + pinned_free`."""

    inactive_share: float
    """`inactive_bytes / reserved_bytes`, from 0 to 1."""

    largest_free_block_bytes: int
    """The largest free block."""

    largest_usable_block_bytes: int
    """The largest free block in it, without those that `max_split_size` keeps for other requests."""

    pending_free_bytes: int
    """Bytes of blocks freed by the program that another stream may still use."""

    pinned_free_bytes: int
    """Free bytes that live blocks keep from being released."""

    pool_assumed: bool
    """Whether there are private pools and the request is only assumed to belong to none of them."""

    pool_id: tuple[int, int] | None
    """Pool id; null before PyTorch 2.15, which does not record it."""

    releasable_bytes: int
    """Free bytes in segments, or pages of expandable ones, without a live block."""

    requested_bytes: int
    """Requested bytes in active blocks."""

    reserved_bytes: int
    """Bytes of the segments: `allocated + pending_free + inactive`."""

    rounding_bytes: int
    """`active_bytes - requested_bytes`."""

    segment_count: int
    """Number of segments."""

    segment_type: str
    """`small` for requests of up to 1 MiB, otherwise `large`."""

    stream: int
    """CUDA stream."""


@dataclass(frozen=True, kw_only=True)
class SettingValues:
    """A setting with two values."""

    base: str | None
    """Its value in the base as text; null if not recorded."""

    name: str
    """Its name, as in the snapshot."""

    new: str | None
    """Its value in the new file as text; null if not recorded."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Allocator settings."""

    alloc_conf: str
    """`PYTORCH_CUDA_ALLOC_CONF`."""

    expandable_segments: bool
    """Whether segments grow in place."""

    garbage_collection_threshold: float
    """0 if it is off."""

    max_split_size_bytes: int | None
    """Blocks of at least this size are not split; null for no limit."""

    other: dict[str, str]
    """Every other setting as text."""

    roundup_power2_divisions: tuple[int, ...]
    """Divisions for sizes of 1, 2, 4, ... 32768 MiB."""

    warnings: tuple[str, ...]
    """Settings without the effect that they seem to have, in words."""

    large_segment_size_bytes: int | None = None
    """`large_segment_size_mb`; left out if it is not set."""

    max_non_split_rounding_bytes: int | None = None
    """`max_non_split_rounding_mb`; left out if it is not set."""

    per_process_memory_fraction: float | None = None
    """`per_process_memory_fraction`; left out if it is not set in the string."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulateAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[SimulateDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class SimulateDevice:
    """`memviz simulate`, one device."""

    best_alloc_conf: str | None
    """The settings that need the least, if that is less than with the recorded ones; otherwise null."""

    capacity_bytes: int | None
    """Bytes that the allocator can use in `runs`; null for an unlimited device."""

    complete_history: bool
    """Whether this device's history is complete."""

    context_bytes: int | None
    """Further bytes of the device that CUDA itself uses; null if no device was named."""

    device: int
    """Device, -1 for pinned host memory."""

    live_bytes: int | None
    """The maximum of allocated bytes, which every allocator needs; null if there is no simulation."""

    notes: tuple[str, ...]
    """Notes, in words."""

    recorded: RecordedSettings
    """The recording, compared with a simulation of its own settings."""

    refused: str | None
    """Why there is no simulation; null if there is one."""

    runs: tuple[SimulatedRun, ...]
    """One run for each settings string, the recorded settings first; in a sweep, then those that need the least."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """A program under some settings."""

    alloc_conf: str
    """The settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them."""

    alloc_retries: int | None
    """`num_alloc_retries`."""

    as_it_went_capacity_bytes: int | None
    """If the program continued after a refused request: a capacity from which on it always runs as recorded,
    whether that request is refused again or not; otherwise null. For the capacities above, no request is
    refused.
    """

    assumptions: tuple[str, ...]
    """Their assumptions, one sentence each."""

    because: str
    """Why it is not trusted further; empty if it is exact."""

    capacity_bytes: int | None
    """Bytes that the allocator can use; null for an unlimited device."""

    changes: tuple[str, ...]
    """Changes to the program, such as `checkpoint:model.py:53 forward` or `optimizer:sgd`; empty for the unchanged
    program.
    """

    device_allocs: int | None
    """`num_device_alloc`."""

    device_frees: int | None
    """`num_device_free`."""

    enough_capacity_bytes: int | None
    """A capacity from which on it always works: the safe one, or more if that is unknown."""

    failing_capacities: tuple[FailingCapacities, ...]
    """Capacities between the first and the safe one on which it fails."""

    fails_at_entry: int | None
    """The first entry whose request is refused."""

    finishes: bool
    """Whether every request is served, including those that were refused in the recording."""

    first_capacity_bytes: int | None
    """The lowest capacity on which it works; null if unknown."""

    max_allocated_bytes: int | None
    """`max_memory_allocated()`; null if the settings are refused, like the figures below."""

    max_inactive_bytes: int | None
    """The maximum of reserved bytes outside of blocks in use."""

    max_reserved_bytes: int | None
    """`max_memory_reserved()`."""

    max_reserved_bytes_range: tuple[int, ...] | None
    """Its minimum and maximum, if it depends on the driver's placement of segments; otherwise null."""

    recorded: bool
    """Whether they are the recorded ones."""

    refused_requests: tuple[RefusedRequest, ...]
    """Requests that were refused in the recording."""

    safe_capacity_bytes: int | None
    """The lowest capacity from which on it always works; null if unknown."""

    trust: Trust
    """How far you can trust it."""

    warnings: tuple[str, ...]
    """Notes about the settings."""


@dataclass(frozen=True, kw_only=True)
class SkippedInput(Answer):
    """A file of another kind."""

    command: str
    """`ranks`."""

    schema_version: int
    """Changes when the meaning of a key does."""

    line: Literal["skipped"]
    """Which line it is."""

    path: str
    """The file."""


#: How steps were found.
StepSourceName = Literal[
    # From annotations that look like steps.
    "annotations",
    # From the annotations that `--steps` selects.
    "requested",
    # From the iterations of the program's loop.
    "inferred",
]


@dataclass(frozen=True, kw_only=True)
class StrandedMemory:
    """The free memory of a stream or pool."""

    first_used: str | None
    """The line of its first recorded request; null if no stack shows it."""

    free_bytes: int
    """Which line it is."""

    pool_id: tuple[int, int]
    """Its pool, (0, 0) for the default one."""

    stream: int
    """Which line it is."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TimelineAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[CurveDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class TopRow:
    """The memory of a site."""

    blocks: int
    """Its blocks."""

    bytes: int
    """Its bytes."""

    label: str
    """The site."""

    inferred: bool | None = None
    """Whether the label is inferred rather than recorded. Left out if false, so that summaries stay small."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TriageAnswer(Answer):
    """The start of every answer."""

    command: str
    """The subcommand."""

    devices: tuple[TriageDevice, ...]
    """The answer, device by device."""

    input: InputHead
    """The file."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    comparison: DeviceComparison | None = None
    """The comparison of CUDA devices. Left out if there are fewer than two, if they hardly differ, and if the
    answer is not about peaks.
    """


@dataclass(frozen=True, kw_only=True)
class TriageDevice:
    """`memviz triage`, one device."""

    advice: tuple[AdviceRow, ...]
    """Changes to the program, the largest saving first."""

    at: CounterBytes
    """Counters at that instant."""

    categories: AttributionRows
    """The memory, by category."""

    complete_history: bool
    """Whether this device's history is complete."""

    device: int
    """Device, -1 for pinned host memory, -2 for memory of the CPU."""

    device_bytes: int | None
    """Bytes of the device, from its samples or the device properties of a trace; null if unknown."""

    entry: int | None
    """The entry that leads to the selected instant: the first failed request, or the peak; null if there is none."""

    failure: FailedRequest | None
    """The first failed request; null if none failed."""

    findings: tuple[FindingRow, ...]
    """What deserves a closer look."""

    fit: OomFit | None
    """Whether a program that ran out of memory fits, and with what; null if no request failed, or if that takes
    long.
    """

    notes: tuple[str, ...]
    """What is missing, in words."""

    nothing: str | None
    """Why there is nothing to change, in words; null if there is something, or if unknown."""

    phase: str | None
    """The part of a training step; null if unknown."""

    sites: AttributionRows
    """The sites that hold the most; the rest are one row."""

    step: int | None
    """The step, counted from 1; null if unknown."""

    verdict: str
    """The verdict, in a sentence."""


#: How far a simulation can be trusted.
Trust = Literal[
    # The recording is complete, and a simulation with its own settings matches it, including the order of segments.
    "exact",
    # Something is unknown: the memory before the recording, or where the driver would place segments.
    "predicted",
    # Something that decides the figure is unknown, so the figure may be far off.
    "uncertain",
    # It cannot be simulated.
    "refused",
]


@dataclass(frozen=True, kw_only=True)
class Unchanged:
    """Rows with the same bytes and blocks on both sides."""

    bytes: int
    """Their bytes on either side."""

    rows: int
    """Their number."""


@dataclass(frozen=True, kw_only=True)
class UnreadHead:
    """A file that could not be read."""

    path: str
    """As the user named it."""


@dataclass(frozen=True, kw_only=True)
class UnreadInput:
    """An input that could not be read."""

    checks: tuple[()]
    """Always empty."""

    command: str
    """The subcommand."""

    devices: tuple[()]
    """Always empty."""

    error: str
    """Why it could not be read."""

    input: UnreadHead
    """The file."""

    passed: bool
    """Always false."""

    schema_version: int
    """Version of the keys: see `memviz schema`."""

    verdict: str
    """Always `unknown`."""


@dataclass(frozen=True, kw_only=True)
class ValueReadsRow:
    """A line that read values of a device."""

    code: str
    """Its text."""

    count: int
    """Number of reads."""

    file: str | None
    """Its file; null for backward's own threads."""

    kind: str
    """The purpose: `copy` to the host, one `value`, or the `size` of something."""

    line: int
    """The line."""


#: The behavior of a group of blocks over the steps.
Verdict = Literal[
    # Each step leaves blocks behind that are still live at the end of the recording, or when the program exits.
    "leak",
    # More memory is held step after step, but the blocks do not stay: a buffer that is replaced by a larger one,
    # such as a KV cache, or blocks that accumulate and are freed later.
    "growth",
    # Filled in some step, and unchanged since: parameters, optimizer state, workspaces.
    "cache",
    # Live at the end of each step, and replaced in the next one: gradients, or what a variable keeps of the last
    # step.
    "renewed",
]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of a history: from after one entry to after another; null for before the first entry."""

    from_entry: int | None
    """Entry before the window."""

    to_entry: int | None
    """Last entry of the window."""


#: The result for one input.
CheckOutcome = CheckAnswer | UnreadInput

#: A line of JSON that `memviz ranks` writes.
RanksAnswer = RankSummary | EmptyRank | FailedInput | SkippedInput | Across

#: Version of the keys.
SCHEMA_VERSION = 1

#: The answer of each command.
ANSWERS: dict[str, Any] = {
    "triage": TriageAnswer,
    "info": InfoAnswer,
    "peak": PeakAnswer,
    "blocks": BlocksAnswer,
    "fragmentation": FragmentationAnswer,
    "oom": OomAnswer,
    "leaks": LeaksAnswer,
    "ledger": LedgerAnswer,
    "nsys": NsysAnswer,
    "checkpoint": CheckpointAnswer,
    "simulate": SimulateAnswer,
    "fit": FitAnswer,
    "fix": FixAnswer,
    "diff": DiffAnswer,
    "check": CheckOutcome,
    "ranks": RanksAnswer,
    "timeline": TimelineAnswer,
}
