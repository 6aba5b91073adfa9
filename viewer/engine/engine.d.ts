// The interface between the page and the engine. The engine computes everything.
//
// Bytes are numbers (exact below 2^53). An *instant* counts the entries of a device that have happened: 0 is before the
// first kept entry, `entries` after the last one. Texts and trees are JSON strings; long data is a typed
// array in a plain object, whose buffers can be transferred. Errors are thrown as `Error` with the one line that the command
// line prints, without `memviz: `.

/**
 * The unit of an x axis: `entry` instants, `time` microseconds since the first entry of the recording, `folded` the same except that
 * long periods without activity are shortened, `step` millionths of the device's steps, if it has steps.
 */
export type Axis = "entry" | "time" | "folded" | "step";
export type Metric = "allocated" | "active" | "requested" | "reserved";
/** A name of `--by`: `Figures.by` lists the names that a file supports. */
export type By = string;

/** A range of an axis in columns of equal width: column `k` is `[from + k * w, from + (k + 1) * w)` with `w = (to - from) / columns`. */
export interface Curve {
    /** The highest value in each column, including the value at its left edge: exact. */
    values: Float64Array;
    /** The first instant of the column that has it. */
    instants: Uint32Array;
}

export interface Group {
    label: string;
    /** The category of most of its memory, if it is known, by its name and in words. */
    category: string | null;
    purpose: string | null;
    /** Colors on a light and a dark background, `#RRGGBB`, as in the pictures. */
    light: string;
    dark: string;
    inferred: boolean;
}

export interface Bands {
    /** Bands from the bottom of the stack up; the last one may be `(other)`. */
    groups: Group[];
    /** `groups.length * columns`, row by row: bytes at the column's instant. Columns sum to `totals`. */
    values: Float64Array;
    /** Like `Curve.values` and `Curve.instants` for this metric. */
    totals: Float64Array;
    instants: Uint32Array;
}

/** Live allocations, or segments for reserved memory, stacked by start, at the instant of each column where the metric is highest. */
export interface Blocks {
    /** Groups that determine the colors of shapes. */
    groups: Group[];
    /** One for each shape: the id of the allocation or of the reserved range, its bytes, its index into `groups`. */
    allocations: Uint32Array;
    /** The instant after the entry that allocated it; 0 if it is from before the recording. */
    made: Uint32Array;
    bytes: Float64Array;
    group: Uint32Array;
    /** Shape `i` has the points `starts[i]..starts[i + 1]` and ends before column `ends[i]`. */
    starts: Uint32Array;
    ends: Uint32Array;
    /** From this column on, a shape is at this offset (bytes): pairs (column, offset). */
    points: Float64Array;
    /** Bytes of all other allocations in each column; on top of the shapes. Shapes and rest sum to `totals`. */
    rest: Float64Array;
    totals: Float64Array;
    instants: Uint32Array;
}

export class Engine {
    /**
     * Reads a recording of any kind that memviz supports. `read(at, length)` returns up to `length` bytes from `at` on, and none
     * only at the end; it is called from the start to the end, synchronously. One engine per instance of the wasm module:
     * its memory is released with the instance (end the worker). `options` are the options of the command line for reading,
     * as it writes them into a page; empty for the defaults. `samples` is the text of the `.device.json` of the recording;
     * empty if there is none.
     */
    static open(read: (at: number, length: number) => Uint8Array, name: string, options: string, samples: string): Engine;
    /** JSON: `Figures`. */
    figures(): string;
    /** Microseconds of each instant since the first entry of the recording, `entries + 1` of them, never decreasing. */
    times(device: number): Float64Array;
    curve(device: number, metric: Metric, axis: Axis, from: number, to: number, columns: number): Curve;
    /** A counter at each of some instants. */
    values(device: number, metric: Metric, instants: Uint32Array): Float64Array;
    bands(device: number, metric: Metric, by: By, axis: Axis, from: number, to: number, columns: number, top: number): Bands;
    blocks(device: number, metric: Metric, by: By, axis: Axis, from: number, to: number, columns: number, limit: number): Blocks;
    /** JSON: the answer of `memviz peak --device D --metric M --at entry:N --by BY --top TOP --format json`; `top` 0 for all. */
    attribution(device: number, metric: Metric, by: By, instant: number, top: number): string;
    /** JSON: `Difference`, for a range or, if both instants are equal, for an instant; rows sum to its totals. */
    difference(device: number, metric: Metric, by: By, from: number, to: number, top: number): string;
    /** JSON: `Flow`, the totals of `difference`. */
    flow(device: number, metric: Metric, from: number, to: number): string;
    /** JSON: `FlameNode[]`, the tree of `memviz flamegraph --at entry:N` from the root down, each before its callees. */
    flame(device: number, metric: Metric, instant: number): string;
    /** JSON: `FlameNode[]`, the tree of memory that was allocated, freed, or allocated and kept, from one instant to another. */
    flame_of_range(device: number, metric: Metric, from: number, to: number, part: RangePart): string;
    /** JSON: `SegmentMap`. */
    segments(device: number, instant: number): string;
    /** JSON: `Allocation`. */
    allocation(device: number, id: number): string;
    /** JSON: `Annotation[]`. */
    annotations(device: number): string;
    /** JSON: `Steps`. */
    steps(device: number): string;
    /** JSON: `PhaseSpan[]`, without gaps. */
    phases(device: number): string;
    /** JSON: `Sample[]`, of the whole device, in their order. */
    samples(device: number): string;
    /** JSON: `Gpu[]`, starting with those that recordings most likely come from. */
    gpus(): string;
    /** IDs of the allocations with a matching frame, in ascending order, as with `--include`. */
    search(device: number, pattern: string): Uint32Array;
    /** JSON in and out: for each of the second `Named[]`, the `Partner` among the first ones, as `memviz diff` matches rows. */
    matched(by: By, base: string, now: string): string;
    /** For each text, 1 if it matches like a frame, otherwise 0. */
    matches(pattern: string, texts: string[]): Uint8Array;
    /** JSON: `Frame[]`, the frames that the labels of a row's stack represent, in their order. */
    frames(device: number, labels: string[]): string;
    /** The entries with one of these actions (all if none is named), at least this many bytes, and a matching frame. */
    listed(device: number, actions: string[], atLeast: number, pattern: string): Uint32Array;
    /** JSON: `Event[]`, of entries by their numbers. */
    events(device: number, entries: Uint32Array): string;
    /** JSON: `Frame[]`, the stack of an entry. */
    stack(device: number, entry: number): string;
    /** The requests of a device. */
    requests(device: number): Asked;
    /** Where the requests of a device differ from `requests` of another recording; null if they do not, or if that is unknown. */
    apart(
        device: number,
        whole: boolean,
        step: number | undefined,
        entries: Uint32Array,
        bytes: Float64Array,
        failed: Uint32Array,
    ): Apart | null;
    /** JSON: `string`, the request of the entry of `apart`, worded as in `memviz diff`, with a name for the recording. */
    request(device: number, name: string, entry: number | undefined): string;
    /** Bytes of the given allocations, in ascending order, at the instant of each column of `curve` for the metric. */
    held(device: number, metric: Metric, axis: Axis, from: number, to: number, columns: number, allocations: Uint32Array): Float64Array;
    /** Computes a part of what `findings` needs, in about the time of one simulation; returns whether there is more. */
    explore(): boolean;
    /** JSON: `Finding[]`, the most urgent first. Takes a while: call it when there is time, after `explore`. */
    findings(): string;
    /**
     * JSON: `Tried`, the needs of a device with the cures at some places of its list, under other settings, with this many bytes
     * in total (0 for the recorded device), or with changes by name, as in `checkpoint:Block`; null if cures alone save too little.
     */
    tried(device: number, cures: Uint32Array, allocConf: string | undefined, capacity: number, changes: string[]): string;
    /**
     * `Curve.values` with what is tried, NaN after the request that ends the program; null for metrics other than allocated and
     * reserved, and for reserved memory if the recording starts with free segments.
     */
    curve_tried(
        device: number,
        metric: Metric,
        axis: Axis,
        from: number,
        to: number,
        columns: number,
        cures: Uint32Array,
        allocConf: string | undefined,
        capacity: number,
        changes: string[],
    ): Float64Array | null;
    /** JSON: `Choices`, what changes of the program can name. */
    choices(device: number): string;
    /** All steps of a device above each other. */
    overlay(device: number, metric: Metric, columns: number): Overlay;
    free(): void;
}

/** Recordings of one program that differ in one number, such as the batch size. */
export class Fit {
    constructor();
    /** Reads one more recording, like `Engine.open`. */
    add(read: (at: number, length: number) => Uint8Array, name: string, options: string): void;
    /** JSON: the answer of `memviz fit --vary PARAMETER=VALUES --at AT --format json`: `Predicted`. */
    predicted(
        device: number,
        parameter: string,
        values: Float64Array,
        at: Float64Array,
        allocConf: string | undefined,
        capacity: number,
        top: number,
    ): string;
    /**
     * `Curve.values` of the recording at a place, as they would be at `value`, NaN after the request that ends the program; null
     * for all recordings except the one that defines the order of requests, if no prediction is possible, and for metrics and
     * recordings for which `Engine.curve_tried` is null.
     */
    curve_predicted(
        place: number,
        device: number,
        metric: Metric,
        axis: Axis,
        from: number,
        to: number,
        columns: number,
        values: Float64Array,
        value: number,
        allocConf: string | undefined,
        capacity: number,
    ): Float64Array | null;
    free(): void;
}

export interface Figures {
    /** The name with which it was opened. */
    name: string;
    /** `cuda_snapshot`, `profiler_trace`, `memory_timeline` or `device_memory_profile`. */
    format: string;
    bytes: number;
    version: string;
    /** Whether the time axis is known; if not, only `entry` is. */
    has_times: boolean;
    /** Microseconds since 1970 at 0 of the time axis; null if times are not those of a clock that other machines share. */
    clock_us: number | null;
    /** Whether there are segments. */
    has_segments: boolean;
    /** What was cut off or not understood. */
    notes: string[];
    /** Periods without activity on any device, which the axis `folded` shortens: microseconds, and the length of each on that axis. */
    folds: Folds;
    /** Names of `--by` that this file supports; groups of `function` overlap, so it is only for tables. */
    by: string[];
    devices: DeviceFigures[];
}

export interface Folds { periods: [from: number, to: number][]; length: number }

export interface DeviceFigures {
    device: number;
    /** `Device 0`, `Pinned host memory`, `CPU memory`. */
    name: string;
    entries: number;
    allocations: number;
    /** Where entries start and end on the time axis. */
    start_us: number;
    end_us: number;
    /** The memory that the device could reserve at the first failed request; null if none failed. */
    capacity_bytes: number | null;
    /** Whether reserved memory is recorded: CPU memory and memory timelines have none. */
    has_reserved: boolean;
    /** The maxima of the four metrics. `bound` is null if the value is exact, otherwise `lower`, `upper` or `unknown`. */
    peak: Record<Metric, { bytes: number; instant: number; bound: string | null }>;
    /** Like `bound`, for the values at all instants: a peak may have been before the first of these, or between them. */
    bounds: Record<Metric, string | null>;
    baseline: Record<Metric, number>;
    /** Like `bounds`, for `baseline`. */
    baseline_bound: string | null;
    end: Record<Metric, number>;
    complete: boolean;
    /** The limits of the figures, in words. */
    doubts: string[];
    ooms: FailedRequest[];
}

export interface Annotation { name: string; from_us: number; to_us: number; from: number; to: number; depth: number }

/** `steps` is empty if there are none, and `why` gives the reason. */
export interface Steps { why: string | null; steps: { name: string; from: number; to: number }[] }

/** Consecutive entries of one phase; `to` is after the last one. */
export interface PhaseSpan { phase: string; from: number; to: number; recorded: boolean; light: string; dark: string }

/** The memory in use on the whole device at one time. */
export interface Sample {
    /** `start`, `peak`, `oom`, `dump`, `end`. */
    occasion: string;
    /** The last instant before it; null if its time is unknown. */
    instant: number | null;
    time_us: number | null;
    used_bytes: number;
    total_bytes: number;
    reserved_bytes: number;
}

export interface Gpu { name: string; memory_bytes: number }

/** The functions that `checkpoint:NAME` can name, and the optimizers of `optimizer:NAME`. */
export interface Choices { calls: string[]; optimizers: string[] }

/** All steps in the same columns: each column is the same part of the entries of each step. */
export interface Overlay {
    /** The least, the middle and the most bytes of all steps in each column; the lower middle of an even number of steps. */
    lowest: Float64Array;
    median: Float64Array;
    highest: Float64Array;
    /** For each step, how far it is above and below the median where it is farthest from it; 0 if it never is. */
    above: Float64Array;
    below: Float64Array;
}

/** The part of a range that a flame graph shows. */
export type RangePart = "allocated" | "freed" | "survived";

/** Memory over the instants `from` to `to`, exactly: `from_bytes + allocated_bytes - freed_bytes = to_bytes`. */
export interface Flow {
    from_bytes: number;
    /** Allocated after `from`, until `to`. */
    allocated_bytes: number;
    /** Freed after `from`, until `to`, including blocks from before. */
    freed_bytes: number;
    /** Allocated after `from` and live at `to`. */
    survived_bytes: number;
    to_bytes: number;
    /** `to_bytes - from_bytes`. */
    bytes: number;
    from_blocks: number;
    allocated_blocks: number;
    freed_blocks: number;
    survived_blocks: number;
    to_blocks: number;
}

export interface DifferenceRow extends Flow {
    label: string;
    /** The category of most of its memory, in words, if it is known. */
    purpose: string | null;
    light: string;
    dark: string;
    inferred: boolean;
    stack: string[];
}

export interface Difference extends Flow {
    by: string;
    metric: Metric;
    from: number;
    to: number;
    inclusive: boolean;
    /** The largest change first, the rest in `(other)`. */
    rows: DifferenceRow[];
    /** The uses of private pools, and the code that used them first, if rows represent pools. */
    notes: string[];
}

/** A row of one of two recordings. */
export interface Named {
    label: string;
    /** If rows represent stacks. */
    stack: readonly string[];
}

/** Its row in the other recording, by its place; `null` if there is none. */
export interface Partner {
    base: number | null;
    /** Where it was in the other recording if its label differs, such as ` (was line 12)`. */
    was: string;
}

export interface FlameNode {
    label: string;
    light: string;
    dark: string;
    bytes: number;
    own_bytes: number;
    blocks: number;
    depth: number;
    /** Bytes left of it. */
    start: number;
}

export interface SegmentMap {
    instant: number;
    reserved_bytes: number;
    active_bytes: number;
    segments: {
        address: string;
        bytes: number;
        expandable: boolean;
        /** `small` or `large`. */
        type: string;
        stream: number | null;
        pool: string | null;
        /** They tile the segment. */
        blocks: {
            offset: number;
            bytes: number;
            /** `allocated`, `pending_free` or `inactive`. */
            state: string;
            /** Its ID; null if it is free. */
            allocation: number | null;
            /** Free bytes that cannot be released because of it, as `memviz fragmentation` attributes them. */
            keeps: number;
        }[];
    }[];
    /** Blocks in use that are in no segment: only in recordings that contradict themselves. */
    stray: number[];
    /** The request that has just failed; null if there is none. */
    failed: Unserved | null;
}

/** A failed request, and the free blocks of the segments that serve such requests. */
export interface Unserved {
    bytes: number;
    site: string;
    /** The largest free block that is too small, or that would have been used. */
    largest_bytes: number;
    free_bytes: number;
    /** Their number, and the bytes of the largest ones. */
    holes: number;
    largest_holes: number[];
}

export interface Allocation {
    id: number;
    /** Null if it is unknown. */
    address: string | null;
    requested_bytes: number;
    block_bytes: number;
    /** The first instant at which it is live, and at which it no longer is; null for never. `born` 0: from before the recording. */
    born: number;
    freed: number | null;
    completed: number | null;
    born_us: number | null;
    freed_us: number | null;
    site: string;
    /** In words. */
    category: string;
    /** The reason. */
    evidence: string;
    /** Whether the category is inferred rather than recorded. */
    inferred: boolean;
    /** What holds it in the program, such as `model.fc1.weight`, the most telling first; empty if that is unknown. */
    holders: string[];
    phase: string | null;
    stream: number | null;
    pool: string | null;
    annotations: string[];
    /** Innermost first. */
    stack: Frame[];
    /** For memory that backward allocated: the forward stack that it belongs to, and whether that is inferred. */
    forward: Frame[];
    forward_inferred: boolean;
    /** Whether its segment is known, and its neighbors when it is allocated; null at the ends of the segment. */
    in_segment: boolean;
    before: Neighbor | null;
    behind: Neighbor | null;
}

/** A request that failed, with allocated and reserved memory at that time. */
export interface FailedRequest {
    instant: number;
    requested_bytes: number;
    capacity_bytes: number | null;
    allocated_bytes: number;
    reserved_bytes: number;
    text: string;
}

/** All requests of a device, including failed ones. */
export interface Asked {
    /** Whether the recording has the whole history. */
    whole: boolean;
    /** The instant at which its first step ends; null if steps are unknown. */
    step: number | null;
    entries: Uint32Array;
    bytes: Float64Array;
    /** The entries of those that failed. */
    failed: Uint32Array;
}

/** The first requests that differ. */
export interface Apart {
    /** The number of equal requests before it, in the words of `memviz diff`. */
    alike: string;
    /** The entry in each recording; null if it ends before. */
    base: number | null;
    new: number | null;
}

/** An entry. */
export interface Event {
    entry: number;
    /** Its name in PyTorch: `alloc`, `free_requested`, ... */
    action: string;
    bytes: number;
    /** Null if there is none or it is unknown; for a failed request, the free memory of the device. */
    address: string | null;
    device_free: number | null;
    /** Null if streams are not recorded. */
    stream: number | null;
    pool: string | null;
    site: string;
    /** The allocation that it allocates or frees. */
    allocation: number | null;
    /** The instant after the entry that frees what it allocates, or allocates what it frees; null if there is none. */
    partner: number | null;
}

/** A frame of a stack; `own` if it is the user's code. */
export interface Frame { label: string; path: string; own: boolean }

export interface Neighbor { bytes: number; state: string; allocation: number | null; label: string }

export interface Finding {
    /** `oom`, `ledger`, `leak`, `growth`, `fragmentation`, `activations`, `devices`. */
    kind: string;
    /** `alarm` or `note`. */
    severity: string;
    device: number;
    sentence: string;
    /** Details, one line each: causes, remedies. For a cure, the first line states the saving. */
    lines: string[];
    /** The lines of Python that make a change. */
    code: string[];
    /** The command that shows more. */
    command: string;
    /** Its options. */
    options: string;
    /** Its instant; null if it has none. */
    instant: number | null;
    from: number | null;
    to: number | null;
    /** For a cure that can be tried. */
    cure: Cure | null;
    /** Other cures of the same mistake, each instead of this one, with what each saves and its lines of code. */
    alternatives: { sentence: string; lines: string[]; code: string[]; cure: Cure | null }[];
}

/** Its place in the list of its device, which the alternatives follow, and whether it can be combined with others. */
export interface Cure { place: number; combines: boolean; saves_allocated_bytes: number; saves_reserved_bytes: number }

/** Peaks as recorded, and with what is tried; null if it cannot be simulated, and `because` gives the reason. */
export interface Tried {
    allocated: { before: number; after: number } | null;
    reserved: { before: number; after: number } | null;
    /** The minimum and maximum of reserved memory, if it depends on where the driver places segments. */
    reserved_range: [number, number] | null;
    /** Bytes that the allocator can use; null for an unlimited device, and for cures alone. */
    capacity_bytes: number | null;
    /** The instant after the first entry whose request fails; null if all are served. */
    fails: number | null;
    /** `num_alloc_retries`; null for cures alone. */
    retries: number | null;
    /** `exact`, `predicted`, `uncertain`, `refused`. */
    trust: string;
    reserved_trust: string;
    because: string;
    warnings: string[];
}

/** The part of `memviz fit` that the page shows. */
export interface Predicted {
    devices: {
        device: number;
        refused: string | null;
        notes: string[];
        capacity_bytes: number | null;
        scaling: {
            parameter: string;
            points: number[];
            largest: number | null;
            fails: number | null;
            predictions: Prediction[];
        };
    }[];
}

export interface Prediction {
    value: number;
    recorded: boolean;
    finishes: boolean;
    max_allocated_bytes: number;
    max_allocated_bytes_range: [number, number] | null;
    max_reserved_bytes: number;
    max_reserved_bytes_range: [number, number] | null;
    trust: string;
    because: string;
}
