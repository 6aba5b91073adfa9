//! What limits the figures of a device, and where its entries contradict each other.

use super::place::{START, instant_name};
use super::settings::settings_warning;
use super::text::signed;
use crate::Recording;
use crate::analysis::fragmentation::DeviceFragmentation;
use crate::analysis::oom::{DeviceOoms, IN_FULL, ROWS_LATER};
use crate::analysis::peak::DevicePeak;
use crate::facts::time::moment::Moment;
use crate::model::bytes::Bytes;
use crate::replay::{Anomalies, AnomalyKind, Completeness, Counters, History, InferredRule};
use crate::report::common::words::{count, listed, ordinal};
use crate::report::ledger::words as ledger;
use indexmap::IndexMap;

/// What a rule that the file does not state says, and what it rests on.
fn inferred(rule: InferredRule) -> &'static str {
    match rule {
        InferredRule::Ascend => {
            "block sizes are those of an Ascend NPU, where each request gets 32 bytes more (inferred: only this rule explains the final segments)"
        }
        InferredRule::ExpandableChanged => {
            "expandable_segments was changed while recording (inferred: only this explains the kinds of segments)"
        }
        InferredRule::NoFreeCompleted => {
            "frees are taken as completed when they were requested (inferred: only this explains every entry and the final segments)"
        }
    }
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
    if let Some(rule) = completeness.inferred_rule {
        lines.push(inferred(rule).to_owned());
    }
    if completeness.whole_segments {
        lines.push(
            "a private pool gives each request a whole segment, as MemPool(no_split=True) does (inferred: it did not use the rest of a \
             segment)"
                .to_owned(),
        );
    }
    if completeness.other_rules_bytes > 0 {
        lines.push(format!(
            "the figure for the peak may be up to {} too low: the recording does not show whether a private pool splits its segments \
             (all but MemPool(no_split=True) do), or exactly when expandable_segments was changed",
            Bytes(completeness.other_rules_bytes)
        ));
    }
    if completeness.no_free_completed {
        lines.push(
            "free_completed was not recorded: active and requested are lower bounds (they decrease at free_requested, like allocated)"
                .to_owned(),
        );
    }
    lines.extend(of_source(completeness).map(str::to_owned));
    if completeness.unrecorded_frees {
        lines.push(
            "PyTorch 2.0 does not record frees of blocks from before the recording: the figure for memory allocated \
             at the start of the recording is a lower bound"
                .to_owned(),
        );
    }
    if completeness.freed_left_out {
        lines.push(
            "the page shows no freed block: _memory_viz.py trace_plot -f leaves out what was freed, so allocated bytes are lower \
             bounds; the recording that the page was made from has all of them"
                .to_owned(),
        );
    }
    if completeness.overflowed {
        lines.push("the file says that the ring buffer dropped entries (trace_alloc_overflowed)".to_owned());
    }
    if completeness.counters_differ {
        lines.push(
            "the recorded counters of PyTorch differ from those of the entries: entries are missing or wrong, and so may be \
             every figure"
                .to_owned(),
        );
    }
    if completeness.ring_full {
        lines.push(
            "the ring buffer is full (trace_alloc_max_entries): it may have dropped entries, and memory may have been \
             higher before"
                .to_owned(),
        );
    }
    lines.extend(uncertain_sizes(completeness));
    lines
}

/// What the source of the figures does not record.
fn of_source(completeness: &Completeness) -> impl Iterator<Item = &'static str> {
    let lines = [
        (
            completeness.blocks_only,
            "requested bytes, and bytes whose free is still pending, are not recorded: requested and active are shown as \
             equal to allocated",
        ),
        (
            completeness.rounded_requests,
            "entries of pinned memory have rounded sizes: requested bytes are upper bounds",
        ),
        (
            completeness.sampled,
            "the file has totals only at some instants: peaks between them are missing (.raw.json.gz has them), so maxima are lower bounds",
        ),
        (
            completeness.no_totals,
            "the trace has no running totals (before PyTorch 1.11): figures are sums over its events, without memory \
             from before the trace; reserved memory is unknown",
        ),
        (
            completeness.while_profiling,
            "PyTorch counts CPU memory only while a profiler is on: memory from before, and from between two of its sessions, is \
             missing, so figures are lower bounds",
        ),
    ];
    lines.into_iter().filter_map(|(holds, line)| holds.then_some(line))
}

/// That blocks from before the recording may be larger than counted.
fn uncertain_sizes(completeness: &Completeness) -> Option<String> {
    // If frees are missing, it is also unknown how much more memory there was.
    let unknown_anyway = completeness.truncated && completeness.has_baseline || completeness.unrecorded_frees;
    if completeness.baseline_uncertain_bytes == 0 || unknown_anyway {
        return None;
    }
    let bytes = Bytes(completeness.baseline_uncertain_bytes);
    let peak = match completeness.peak_uncertain_bytes {
        0 => "the figure for the peak of the recorded part is exact".to_owned(),
        bytes => format!("the figure for the peak of the recorded part may be up to {} too low", Bytes(bytes)),
    };
    Some(format!(
        "the figure for the memory allocated at the start of the recording may be up to {bytes} too low, because the \
         sizes of some freed blocks are unknown; {peak}"
    ))
}

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
    if elsewhere > 0 {
        format!("no request failed on the selected devices; {} on others", failures(elsewhere))
    } else if !format.has_segments() {
        format!("a {} cannot explain failed requests", format.title())
    } else if !histories.iter().any(is_known) {
        "no history was recorded, so whether a request failed is unknown".to_owned()
    } else if histories.iter().any(is_cut) {
        "no request failed in the recorded part (no oom entry)".to_owned()
    } else {
        "no request failed during the recording (no oom entry)".to_owned()
    }
}

pub fn failures(number: usize) -> String {
    match number {
        0 => "no request failed".to_owned(),
        number => format!("{} failed", count(number as u64, "request")),
    }
}

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
        lines.push(format!("{}: memviz {}", failures(device.failed), listed(&shown)));
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
