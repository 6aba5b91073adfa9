//! What a recording lacks and where it contradicts itself, in words; used by every report.

mod settings;

pub use settings::{settings, settings_warning, settings_warnings};

use super::rehearsed;
use super::words::{count, listed as joined, ordinal};
use crate::Recording;
use crate::analysis::fragmentation::{DeviceFragmentation, Stranded};
use crate::analysis::oom::DeviceOoms;
use crate::analysis::oom::{IN_FULL, ROWS_LATER};
use crate::analysis::peak::DevicePeak;
use crate::facts::grouping::attribution::Attribution;
use crate::facts::grouping::private_pools::{PoolEvidence, PrivatePool};
use crate::facts::grouping::{BASELINE, GroupBy};
use crate::facts::time::moment::Moment;
use crate::input::Compression;
use crate::model::bytes::Bytes;
use crate::model::profile::DeviceType;
use crate::model::{CPU_DEVICE, DeviceId, Format, HOST_DEVICE, SourceNotes};
use crate::replay::{Anomalies, AnomalyKind, Completeness, Counters, History, Instant};
use crate::report::ledger::words as ledger;
use crate::sorting::SortRows;
use indexmap::{IndexMap, IndexSet};

/// The name of a device in text.
pub fn device_name(device: DeviceId) -> String {
    match device {
        HOST_DEVICE => "Pinned host memory".to_owned(),
        CPU_DEVICE => "CPU memory".to_owned(),
        device => format!("Device {device}"),
    }
}

/// A counter as PyTorch prints sizes; contradictory recordings may lead below zero.
pub fn signed(bytes: i64) -> String {
    let magnitude = Bytes(bytes.unsigned_abs());
    if bytes < 0 { format!("-{magnitude}") } else { magnitude.to_string() }
}

/// One line for each fact that limits a device's numbers.
pub fn limits(completeness: &Completeness, baseline: &Counters) -> Vec<String> {
    let mut lines = Vec::new();
    let allocated = signed(baseline.allocated);
    // The memory of the CPU and memory timelines have no reserved bytes.
    let has_reserved = !completeness.no_reserved;
    if completeness.no_entries {
        let reserved = if has_reserved { format!(", {} reserved", signed(baseline.reserved)) } else { String::new() };
        lines.push(format!(
            "no history was recorded: only the state at dump time is known ({allocated} allocated{reserved}); the peak \
             before it is unknown"
        ));
    } else if completeness.has_baseline {
        let reserved = if has_reserved { format!(" ({} reserved)", signed(baseline.reserved)) } else { String::new() };
        lines.push(format!(
            "incomplete history: {allocated} was already allocated{reserved} at the start of the recording; what happened before \
             it is unknown"
        ));
    }
    if completeness.truncated && completeness.blocks_only {
        lines.push(
            "the file was cut off: a trace is not sorted by time, so events may be missing anywhere, and figures are lower bounds"
                .to_owned(),
        );
    } else if completeness.truncated {
        lines.push(
            "the file was cut off: entries after the cut are missing, so the recorded part ends before the final state"
                .to_owned(),
        );
        if completeness.has_baseline {
            lines.push("memory from before the recording is only partly known: figures are lower bounds".to_owned());
        }
    }
    if completeness.no_free_requested {
        lines.push(
            "free_requested was not recorded: allocated is an upper bound (it decreases at free_completed, like active)"
                .to_owned(),
        );
    }
    if completeness.blocks_only {
        lines.push(
            "requested bytes, and bytes whose free is still pending, are not recorded: requested and active are shown as \
             equal to allocated"
                .to_owned(),
        );
    }
    if completeness.sampled {
        lines.push(
            "the file has totals only at some instants: peaks between them are missing (.raw.json.gz has them), so maxima are lower bounds"
                .to_owned(),
        );
    }
    if completeness.no_totals {
        lines.push(
            "the trace has no running totals (before PyTorch 1.11): figures are sums over its events, without memory \
             from before the trace; reserved memory is unknown"
                .to_owned(),
        );
    }
    if completeness.unrecorded_frees {
        lines.push(
            "PyTorch 2.0 does not record frees of blocks from before the recording: the figure for memory allocated \
             at the start of the recording is a lower bound"
                .to_owned(),
        );
    }
    if completeness.overflowed {
        lines.push("the file says that the ring buffer dropped entries (trace_alloc_overflowed)".to_owned());
    }
    if completeness.ring_full {
        lines.push(
            "the ring buffer is full (trace_alloc_max_entries): it may have dropped entries, and memory may have been \
             higher before"
                .to_owned(),
        );
    }
    let unknown_anyway = completeness.truncated && completeness.has_baseline;
    // If frees are missing, it is also unknown how much more memory there was.
    let unknown_anyway = unknown_anyway || completeness.unrecorded_frees;
    if completeness.baseline_uncertain_bytes > 0 && !unknown_anyway {
        let bytes = Bytes(completeness.baseline_uncertain_bytes);
        let peak = match completeness.peak_uncertain_bytes {
            0 => "the figure for the peak of the recorded part is exact".to_owned(),
            bytes => format!("the figure for the peak of the recorded part may be up to {} too low", Bytes(bytes)),
        };
        lines.push(format!(
            "the figure for the memory allocated at the start of the recording may be up to {bytes} too low, because the \
             sizes of some freed blocks are unknown; {peak}"
        ));
    }
    lines
}

/// Notes about one device's peak, one line each.
pub fn device(device: &DevicePeak) -> Vec<String> {
    let mut lines = limits(&device.completeness, &device.baseline);
    lines.extend(early_peak(device));
    if let Some((from, to)) = device.window {
        lines.push(format!("maximum and end cover only the part from {} to {}", instant_name(from), instant_name(to)));
    }
    lines.extend(contradiction(device));
    lines.extend(anomalies(&device.anomalies));
    lines
}

/// That more memory is allocated than reserved, if the recording says so.
fn contradiction(device: &DevicePeak) -> Option<String> {
    let [allocated, reserved] = [device.at.allocated, device.at.reserved];
    let is_impossible = allocated > reserved && reserved != 0 && !device.completeness.no_reserved;
    is_impossible.then(|| {
        format!(
            "{} allocated of {} reserved is impossible: the entries and the segments contradict each other",
            signed(allocated),
            signed(reserved)
        )
    })
}

/// What is held on a device at the selected instant: `Device 0: peak allocated 4.15 GiB`.
pub fn headline(device: &DevicePeak) -> String {
    let metric = device.metric;
    if device.is_empty() {
        return format!("{}: nothing was allocated", device_name(device.device));
    }
    // If the kept history starts at its maximum, or nothing was recorded, that instant is an ordinary state.
    let is_known = !device.completeness.no_entries && !device.is_early(metric);
    let is_peak = is_known && device.maxima[metric as usize].instant == device.instant;
    let peak = if is_peak { "peak " } else { "" };
    format!("{}: {peak}{} {}", device_name(device.device), metric.name(), signed(device.at.get(metric)))
}

/// Where that instant is: `entry 2939 of 9107, after 690.5 ms, in step_1 / backward`.
pub fn place(device: &DevicePeak) -> String {
    let moment = Moment {
        instant: device.instant,
        entry: device.entry,
        time_us: device.time_us,
        since_start_us: device.since_start_us,
        annotations: device.annotations.clone(),
    };
    position(&moment, device.entries, &device.completeness)
}

/// The instant before the first entry, in words.
pub const START: &str = "the start of the recording";

/// An instant in words.
fn instant_name(instant: Instant) -> String {
    match History::entry_before(instant) {
        Some(entry) => format!("entry {entry}"),
        None => START.to_owned(),
    }
}

/// The place of an instant, in words: `entry 41 of 60, after 3.4 ms, in step_1 / backward`.
pub fn position(moment: &Moment, entries: u32, completeness: &Completeness) -> String {
    let mut text = match moment.entry {
        // Entries are numbered from 0.
        Some(entry) if entry.checked_add(1) == Some(entries) => format!("entry {entry}, the last of {entries}"),
        Some(entry) => format!("entry {entry} of {entries}"),
        None if completeness.no_entries => "at dump time".to_owned(),
        None => format!("at {START}"),
    };
    if let Some(since) = moment.since_start_us {
        text += &format!(", after {}", duration(since));
    }
    if !moment.annotations.is_empty() {
        text += &format!(", in {}", safe(&moment.annotations.join(" / ")));
    }
    text
}

/// Notes about one device's fragmentation, one line each.
pub fn fragmentation(device: &DeviceFragmentation) -> Vec<String> {
    let mut lines = limits(&device.completeness, &device.baseline);
    if let Some(points) = device.fewer_points {
        lines.push(format!("only about {points} rows over time, because the recording has many segments and blocks"));
    }
    let (blocks, bytes) = device.stray;
    if blocks > 0 {
        let bytes = Bytes(bytes);
        let blocks = count(blocks, "block");
        lines.push(format!("left out of all figures: {blocks} ({bytes}) in no segment or overlapping another block"));
    }
    let figures = &device.figures;
    let (reserved, active) = (figures.reserved as i64, figures.active() as i64);
    if (reserved, active) != (device.counters.reserved, device.counters.active) {
        let counted = [device.counters.reserved, device.counters.active].map(signed);
        let [in_segments, in_blocks] = [reserved, active].map(signed);
        lines.push(format!(
            "the counters say {} reserved and {} active, but the segments add up to {in_segments} and {in_blocks}",
            counted[0], counted[1]
        ));
    }
    lines.extend(anomalies(&device.anomalies));
    lines
}

/// The text for a recording without a failed request.
pub fn no_oom(recording: &Recording, elsewhere: usize) -> String {
    let (format, histories) = (recording.snapshot.notes.format, &recording.histories);
    let is_known = |history: &History| !history.completeness.no_entries;
    let is_cut = |history: &History| history.completeness.has_baseline || history.completeness.truncated;
    match () {
        () if elsewhere > 0 => {
            format!("no request failed on the selected devices; {} on others", failures(elsewhere))
        }
        () if !format.has_segments() => format!("a {} cannot explain failed requests", format.title()),
        () if !histories.iter().any(is_known) => {
            "no history was recorded, so whether a request failed is unknown".to_owned()
        }
        () if histories.iter().any(is_cut) => "no request failed in the recorded part (no oom entry)".to_owned(),
        () => "no request failed during the recording (no oom entry)".to_owned(),
    }
}

/// A number of failed requests, in words.
pub fn failures(number: usize) -> String {
    match number {
        0 => "no request failed".to_owned(),
        number => format!("{} failed", count(number as u64, "request")),
    }
}

/// Notes about one device's failed requests, one line each.
pub fn ooms(device: &DeviceOoms) -> Vec<String> {
    let mut lines = limits(&device.completeness, &device.baseline);
    let explained = device.ooms.len();
    if explained > IN_FULL {
        let mut shown = vec![format!("shows at most {ROWS_LATER} rows for each after the first {IN_FULL}")];
        if device.unattributed > 0 {
            shown.push(format!("shows only totals from the {} on", ordinal(explained - device.unattributed + 1)));
        }
        match device.failed - explained {
            0 => {}
            1 => shown.push("only counts the last one".to_owned()),
            rest => shown.push(format!("only counts the last {rest}")),
        }
        lines.push(format!("{}: memviz {}", failures(device.failed), joined(&shown)));
    }
    lines.extend(device.warnings.iter().map(|&warning| settings_warning(warning)));
    lines.extend(device.ledger.as_ref().and_then(ledger::outside));
    lines.extend(anomalies(&device.anomalies));
    lines
}

/// A line for a maximum at the very start of the kept history: memory was highest then or earlier.
fn early_peak(device: &DevicePeak) -> Option<String> {
    (device.is_early(device.metric) && !device.completeness.no_entries)
        .then(|| format!("{} memory is highest at {START}; the true peak may be earlier", device.metric.name()))
}

/// One line on the anomalies of a device, if it has any.
pub fn anomalies(anomalies: &Anomalies) -> Option<String> {
    if anomalies.total() == 0 {
        return None;
    }
    let kinds: Vec<String> = anomalies
        .kinds()
        .map(|anomaly| {
            let [one, several] = anomaly_in_words(anomaly.kind);
            let what = if anomaly.count == 1 { one } else { several };
            let first = if anomaly.count == 1 { "" } else { "the first " };
            match anomaly.first_entry {
                Some(entry) => format!("{} {what} ({first}at entry {entry})", anomaly.count),
                None => format!("{} {what} ({first}at 0x{:x})", anomaly.count, anomaly.first_addr),
            }
        })
        .collect();
    let noun = if anomalies.total() == 1 { "anomaly" } else { "anomalies" };
    Some(format!("{} {noun} (the recording contradicts itself): {}", anomalies.total(), kinds.join(", ")))
}

/// A kind of contradiction in words: one, and several.
fn anomaly_in_words(kind: AnomalyKind) -> [&'static str; 2] {
    match kind {
        AnomalyKind::FreeOfUnknown => ["free of an unknown address", "frees of unknown addresses"],
        AnomalyKind::DoubleFree => ["double free", "double frees"],
        AnomalyKind::CompletedWithoutRequest => {
            ["free that completes without a request", "frees that complete without a request"]
        }
        AnomalyKind::SizeMismatch => [
            "free whose size differs from that of the allocation",
            "frees whose sizes differ from those of the allocations",
        ],
        AnomalyKind::OverlappingAlloc => ["block allocated inside another", "blocks allocated inside others"],
        AnomalyKind::OutsideSegment => ["block outside every segment", "blocks outside every segment"],
        AnomalyKind::OverlappingSegment => ["segment created inside another", "segments created inside others"],
        AnomalyKind::UnknownSegment => ["release of an unknown segment", "releases of unknown segments"],
        AnomalyKind::SnapshotMismatch => [
            "snapshot entry whose active bytes do not match the entries before it",
            "snapshot entries whose active bytes do not match the entries before them",
        ],
        AnomalyKind::TimeReversed => {
            ["entry earlier than the one before it", "entries earlier than the one before them"]
        }
        AnomalyKind::NegativeTotal => ["counter below zero", "counters below zero"],
        AnomalyKind::Overflow => ["counter that exceeds 63 bits", "counters that exceed 63 bits"],
        AnomalyKind::EndBlockMismatch => [
            "block that differs between the entries and the final segments",
            "blocks that differ between the entries and the final segments",
        ],
        AnomalyKind::EndSegmentMismatch => [
            "segment that differs between the entries and the final segments",
            "segments that differ between the entries and the final segments",
        ],
        AnomalyKind::SegmentTotalsMismatch => [
            "final segment whose blocks do not add up to its size",
            "final segments whose blocks do not add up to their sizes",
        ],
        AnomalyKind::TotalGap => ["gap in the running total", "gaps in the running total"],
        AnomalyKind::TotalReset => ["restart of the running total", "restarts of the running total"],
    }
}

/// Lines on the file itself: what it is, and what was cut off, not recorded or not understood.
pub fn source(recording: &Recording) -> Vec<String> {
    file(recording).into_iter().map(|note| note.text).collect()
}

/// A line on a file.
pub struct FileNote {
    /// The text.
    pub text: String,
    /// Whether it only describes the file: nothing is wrong, and no figure is in doubt.
    pub is_plain: bool,
}

impl<T: Into<String>> From<T> for FileNote {
    fn from(text: T) -> Self {
        Self { text: text.into(), is_plain: false }
    }
}

impl FileNote {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_plain: true }
    }
}

/// What a file as a whole lacks, one note each.
pub fn file(recording: &Recording) -> Vec<FileNote> {
    let snapshot = &recording.snapshot;
    let notes = &snapshot.notes;
    let mut lines: Vec<FileNote> = Vec::new();
    if let Some(rehearsal) = &notes.rehearsal {
        let said = rehearsed::lines(rehearsal).into_iter();
        lines.extend(said.map(|(text, is_in_doubt)| FileNote { text, is_plain: !is_in_doubt }));
    }
    if let Some(at) = notes.truncated_at {
        let of = if recording.compression == Compression::None { "" } else { " of the unpacked data" };
        lines.push(format!("the file is cut off at byte {at}{of}; memviz read the part before it").into());
    }
    if notes.segments_truncated {
        lines.push("the list of segments was cut off: totals at dump time are lower bounds".into());
    }
    match notes.format {
        Format::CudaSnapshot => {}
        Format::ProfilerTrace => lines.push(FileNote::plain(
            "a profiler trace does not record segments, or how blocks are placed in them: it shows fragmentation only as reserved minus allocated",
        )),
        Format::MemoryTimeline => lines.push(FileNote::plain(
            "a memory timeline records only categories: no segments, reserved memory or stacks; its device is unnamed, so memviz calls it device 0",
        )),
        Format::DeviceMemoryProfile => lines.push(FileNote::plain(
            "a JAX device memory profile shows the live buffers at one instant: no history, no reserved memory, and \
             no memory that a running program uses internally",
        )),
    }
    if !snapshot.settings.recorded && !snapshot.entries.is_empty() && notes.format == Format::CudaSnapshot {
        lines.push("allocator settings were not recorded; block sizes are computed with PyTorch's defaults".into());
    }
    let listed = |counts: &indexmap::IndexMap<String, u64>| {
        let shown: Vec<String> = counts.iter().take(8).map(|(name, count)| format!("{name} ({count}x)")).collect();
        let more = counts.len().saturating_sub(8);
        if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
    };
    if let Some(from) = &notes.device_memory_from {
        let sizes: IndexSet<u64> = notes.device_memory.iter().map(|&(_, memory)| memory).collect();
        let sizes: Vec<String> = sizes.into_iter().map(|memory| Bytes(memory).to_string()).collect();
        lines.push(FileNote::plain(format!("memory of the device, according to {}: {}", safe(from), sizes.join(", "))));
    }
    if let Some(device_type) = notes.device_type.filter(|&known| known != DeviceType::Cuda) {
        lines.push(FileNote::plain(format!("memory of {}", device_type.name())));
    }
    if !notes.device_names.is_empty() {
        const SHOWN: usize = 16;
        let name = |(device, name): &(DeviceId, String)| format!("{} is {}", device_name(*device), safe(name));
        let mut devices = notes.device_names.clone();
        devices.sort_rows_by_key(|&(device, _)| device);
        let names: Vec<String> = devices.iter().take(SHOWN).map(name).collect();
        let more = if notes.device_names.len() > SHOWN { ", ..." } else { "" };
        lines.push(FileNote::plain(format!("{}{more}", names.join(", "))));
    }
    if notes.no_addresses {
        lines.push(
            "memory events have no addresses (before PyTorch 1.11): each free is assumed to release the latest block of its size; \
             the curve is as recorded, but which code holds which memory is inferred"
                .into(),
        );
    }
    if notes.segments_only {
        lines.push(FileNote::plain(
            "a list of segments, as torch.cuda.memory_snapshot() returns it: the state at one instant; \
             torch.cuda.memory._record_memory_history() and _dump_snapshot() record the history that led to it",
        ));
    }
    if notes.coarse_times {
        lines.push(
            "times are in whole microseconds, as recorded before PyTorch 2.4: an allocation between two operators or lines may be \
             attributed to either"
                .into(),
        );
    }
    if !notes.left_out.is_empty() {
        lines.push(format!("left out: {}", listed(&notes.left_out)).into());
    }
    if notes.unread_forward_lines > 0 {
        let lines_of = count(notes.unread_forward_lines, "line");
        lines.push(format!("left out: {lines_of} of forward_frames not in the format of a Python traceback").into());
    }
    if notes.frames_in_part > 0 {
        let frames = count(notes.frames_in_part, "frame");
        lines
            .push(format!("{frames} without a file, a line or a name: memory may be attributed to other lines").into());
    }
    if notes.followed {
        lines.push("more data follows the recording, perhaps a second dump; only the first is analyzed".into());
    }
    for value in &notes.malformed {
        lines.push(format!("{value}; the default is assumed").into());
    }
    if !notes.unknown_actions.is_empty() {
        lines.push(format!("entries with unknown actions were skipped: {}", listed(&notes.unknown_actions)).into());
    }
    if !notes.unknown_keys.is_empty() {
        lines.push(format!("unknown keys were ignored: {}", listed(&notes.unknown_keys)).into());
    }
    lines
}

/// A line about the ring buffer of the recording, if the file describes it.
pub fn ring(notes: &SourceNotes) -> Option<String> {
    let overflowed = match notes.trace_overflowed {
        Some(true) => "; at least one of them dropped entries",
        Some(false) => "; none of them dropped entries",
        None => "",
    };
    let capacity = notes.ring_capacity?;
    let entries = if capacity == 1 { "entry" } else { "entries" };
    Some(format!("ring buffers of {capacity} {entries}, one per device{overflowed}"))
}

/// Figures that are bounds, by JSON key. If the baseline is not known exactly, more memory may be in use than is
/// known, and then less is free. At the end, the snapshot itself shows everything; `sizes_known` says that no block of
/// unknown size remains at the instant of the figures.
pub fn figure_bounds(
    completeness: &Completeness,
    at_end: bool,
    sizes_known: bool,
) -> IndexMap<&'static str, &'static str> {
    let mut bounds = IndexMap::new();
    if at_end {
        return bounds;
    }
    let blocks_missing = completeness.unrecorded_frees || (completeness.truncated && completeness.has_baseline);
    if blocks_missing || (completeness.baseline_uncertain_bytes > 0 && !sizes_known) {
        bounds.extend([("allocated_bytes", "lower"), ("active_bytes", "lower"), ("inactive_bytes", "upper")]);
        bounds.extend([("releasable_bytes", "upper"), ("largest_free_block_bytes", "upper")]);
        // A missing block may keep memory reserved that looks releasable; a larger block leaves less free memory.
        bounds.insert("pinned_free_bytes", if blocks_missing { "unknown" } else { "upper" });
    }
    if completeness.no_free_requested {
        bounds.extend([("allocated_bytes", "upper"), ("pending_free_bytes", "lower")]);
    }
    bounds
}

/// Whether an instant of a device with this many entries is the instant of the snapshot's own segments, in a recording
/// that distinguishes pending frees.
pub fn is_end(moment: &Moment, entries: u32, completeness: &Completeness) -> bool {
    moment.instant == entries && !completeness.truncated && !completeness.no_free_requested
}

/// How to read the rows, if this is not obvious.
pub fn grouping(by: GroupBy) -> Option<&'static str> {
    by.is_inclusive().then_some(
        "rows overlap: a block is counted in every function on its stack; libraries that start the program are left out",
    )
}

/// Which lines run a library's model, as the start of a sentence; `None` if there are none.
fn run_library(lines: &[String]) -> Option<String> {
    let run = if lines.len() == 1 { "runs" } else { "run" };
    (!lines.is_empty()).then(|| format!("{} {run} a library's model", lines.join(", ")))
}

/// A note that rows name a library's lines instead of the user's line.
pub fn library_below(attribution: &Attribution) -> Option<String> {
    run_library(&attribution.library_below)
        .map(|lines_run| format!("{lines_run}, so rows show the library's lines; add --own '' to see your own"))
}

/// A note that not all memory from before the recording is in the row with that label.
pub fn older_lines(attribution: &Attribution) -> Option<&'static str> {
    let has_row = attribution.rows.iter().any(|row| row.label == BASELINE);
    (attribution.has_older_lines && has_row)
        .then_some("(before the recording) counts only memory without a stack; other memory from before the recording is in the rows of the code that allocated it")
}

/// Lines that run a library's model, in answers that name these lines.
pub fn other_lines(library_below: &[String]) -> Option<String> {
    run_library(library_below).map(|lines_run| format!("{lines_run}; memviz peak shows the library's lines instead"))
}

/// Free memory that only one stream or pool can use.
pub fn stranded(stranded: &Stranded) -> String {
    let Stranded { stream, pool: (first, second), free, reserved, first_used } = stranded;
    let used = first_used.as_ref().map(|site| format!(", first used at {}", safe(site))).unwrap_or_default();
    let (place, other) = match (first, second) {
        (0, 0) => (format!("on stream {stream}"), "stream"),
        _ => (format!("in private pool ({first}, {second})"), "pool"),
    };
    let (free, reserved) = (Bytes(*free), Bytes(*reserved));
    format!("{free} of {reserved} reserved is free {place}{used}; no other {other} can use it")
}

/// A line about each private pool, if rows are pools.
pub fn private_pools(attribution: &Attribution) -> Vec<String> {
    attribution.private_pools.iter().map(private_pool).collect()
}

/// A line with the use of a private pool, the evidence and the line that first used it.
pub fn private_pool(pool: &PrivatePool) -> String {
    let PrivatePool { id: (first, second), kind, evidence, first_used } = pool;
    let evidence = match evidence {
        PoolEvidence::Id => "its ID",
        PoolEvidence::Stack => "the stacks of its requests",
        PoolEvidence::Stream => "its memory on the default stream, where no CUDA graph can be captured",
    };
    let used = first_used.as_ref().map(|site| format!(", first used at {}", safe(site))).unwrap_or_default();
    format!("private pool ({first}, {second}): {}, inferred from {evidence}{used}", kind.words())
}

/// Why backward passes have no stack, and what would record one.
pub const NO_STACKS: &str = "(no stack): backward passes have no Python frames; stacks=\"all\" records C++ frames";

/// The meaning of the star after a site, in commands without `--no-infer`.
pub const INFERRED_SITE: &str = "* inferred: backward has no Python frames";

/// The meaning of the star after a label.
pub fn inferred(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Category => "* inferred from stacks, phases, lifetimes and sizes",
        GroupBy::Phase => "* inferred from stacks and the order of entries",
        GroupBy::ModulePath => "* inferred: calls are numbered in the order in which they occur",
        _ => "* inferred: backward has no Python frames; --no-infer turns this off",
    }
}

/// The same below rows with a star. Categories have no stars: nearly all of them are inferred.
pub fn inferred_rows(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Category => "categories are inferred from stacks, phases, lifetimes and sizes",
        by => inferred(by),
    }
}

/// A duration for people: `812 us`, `3.4 ms`, `12.53 s`, `2 h 05 min`.
pub fn duration(micros: i64) -> String {
    let seconds = micros as f64 / 1e6;
    match micros {
        ..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        1_000_000..60_000_000 => format!("{seconds:.2} s"),
        60_000_000..3_600_000_000 => format!("{} min {:02} s", micros / 60_000_000, micros / 1_000_000 % 60),
        _ => format!("{} h {:02} min", micros / 3_600_000_000, micros / 60_000_000 % 60),
    }
}

/// Text from a file, safe to show: control characters, characters that reorder or hide text, and those that XML does not
/// allow are escaped. So are commands to workflow runners, which read them from the log: `::` at the start of a line (GitHub
/// Actions), and anywhere `##[`, `##vso[` in any case (Azure Pipelines), and `##teamcity[`: that is, `##`, any letters, and
/// `[`.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for next in text.chars() {
        // A line may start with any word, since long lines are broken.
        let command = match next {
            ':' => shown.strip_suffix(':').is_some_and(|line| !line.ends_with(|before: char| !before.is_whitespace())),
            '[' => shown.trim_end_matches(char::is_alphanumeric).ends_with("##"),
            _ => false,
        };
        if command || next.is_control() || is_invisible(next) {
            shown.extend(next.escape_unicode());
        } else {
            shown.push(next);
        }
    }
    shown
}

/// Whether a character is invisible, changes the order of others, or is not a character.
fn is_invisible(next: char) -> bool {
    matches!(next,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(812), "812 us");
        assert_eq!(duration(3_400), "3.4 ms");
        assert_eq!(duration(12_530_000), "12.53 s");
        assert_eq!(duration(7_500_000_000), "2 h 05 min");
    }

    #[test]
    fn commands_to_a_runner_are_shown_not_given() {
        assert_eq!(safe("::stop-commands::x"), ":\\u{3a}stop-commands::x");
        assert_eq!(safe("a  ::add-mask::b"), "a  :\\u{3a}add-mask::b");
        assert_eq!(safe("a ##[error]b ###[x]"), "a ##\\u{5b}error]b ###\\u{5b}x]");
        assert_eq!(safe("##vso[task.x]y ##VsO[a]"), "##vso\\u{5b}task.x]y ##VsO\\u{5b}a]");
        assert_eq!(safe("##teamcity[x] #vso[0] ##vso [0]"), "##teamcity\\u{5b}x] #vso[0] ##vso [0]");
        assert_eq!(safe("at::native::add ops::aten::mm: c10::x"), "at::native::add ops::aten::mm: c10::x");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(safe("a\u{2060}b\u{ad}c\u{e0041}"), "a\\u{2060}b\\u{ad}c\\u{e0041}");
    }

    #[test]
    fn escape_sequences_are_shown_not_sent() {
        assert_eq!(safe("a\u{1b}[31mb\u{202e}"), "a\\u{1b}[31mb\\u{202e}");
    }
}
