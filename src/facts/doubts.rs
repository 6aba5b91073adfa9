//! Why a figure is not exact: all notes about a recording, and their effect on the figure.
//!
//! A figure is exact only if nothing contradicts it. The code destructures all fields of the facts, so a new field does not
//! compile until its effect is decided here.

use crate::model::memory_stats::DeviceStats;
use crate::model::rehearsal::{Rehearsal, ValueReads};
use crate::model::{Format, Snapshot, SourceNotes, StackId, StrId};
use crate::replay::{Completeness, History, Metric, SegmentSpan, Track};

/// Why a figure is not known exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing was allocated on any device, or recording was off: the file does not show which.
    NothingRecorded,
    /// Work ran on a GPU, but none of its memory was recorded.
    NoGpuMemory,
    /// The device has no data; these devices have data.
    NoSuchDevice(Vec<i32>),
    /// The device has this many anomalies.
    Contradicts(u64),
    /// PyTorch's own counters, which the file contains, differ from those of the entries.
    CountersDiffer,
    /// PyTorch counted memory on this device, of which the file contains nothing else.
    DeviceMissing(i32),
    /// The file lacks PyTorch's own counters of the device.
    NoCounters,
    /// No history was recorded.
    NoHistory,
    /// The ring buffer dropped entries, as PyTorch says.
    Overflowed,
    /// The ring buffer is full, and the file does not show whether it dropped entries.
    RingFull,
    /// Blocks or segments from before the first kept entry have stacks, so earlier entries are lost.
    LostBeginning,
    /// Memory was in use before the first kept entry: recording started late, or a ring buffer dropped earlier entries.
    LateStart,
    /// The file was cut off.
    CutOff,
    /// The trace has no running totals.
    NoTotals,
    /// CPU memory is counted only while a profiler is on.
    WhileProfiling,
    /// The file shows memory only at some instants.
    Sampled,
    /// PyTorch 2.0 does not record frees of blocks from before the recording.
    UnrecordedFrees,
    /// The page that contains the recording may leave out what was freed.
    FreedLeftOut,
    /// `free_requested` was not recorded.
    NoFreeRequested,
    /// Blocks from before the recording take up to this many bytes more: the recording does not show their exact sizes.
    UncertainSizes(u64),
    /// Memory timelines do not record reserved memory.
    NoReserved,
    /// The instant of the peak is not known exactly, for that reason.
    PeakNotExact(Box<Doubt>),
    /// Blocks of this many bytes are from before the recording or have no stack, so the code that allocated them is unknown.
    UnknownStacks(u64),
    /// There are only this many steps.
    TooFewSteps(usize),
    /// This many bytes that steps leave behind have no stack, so it is unknown whether they are part of a leak.
    UnknownLeaks(u64),
    /// This many bytes that steps leave behind have the stack of blocks whose entries are lost, so it is unknown in how many
    /// steps there are more.
    LostLeaks(u64),
    /// There are this many steps, and none of them contains an entry.
    EmptySteps(usize),
    /// The analysis that measures the figure refused, with this reason.
    Refused(String),
    /// There are entries with an action that this version does not know.
    UnknownAction(String),
    /// There is a key that this version does not know.
    UnknownKey(String),
    /// A value is missing, or has another type than PyTorch writes: where, and what was expected.
    Malformed(String),
    /// Allocator settings are missing from a file of a release that writes them.
    NoSettings,
    /// This many memory events were left out.
    MemoryLeftOut(u64),
    /// More data follows the recording in the same file.
    Followed,
    /// Recorded without stacks, so it is unknown whether a ring buffer dropped entries.
    NoStacks,
    /// Some segments are not in any entry.
    SegmentsNotRecorded,
    /// The ranges around an event of a trace are too uncertain to attribute it to a line, or frames are incomplete.
    LooseSites,
    /// No stack of the device names a file.
    NoLines,
    /// The baseline has no such device.
    NotInBaseline,
    /// The baseline has the device, but the recording does not.
    OnlyInBaseline,
    /// The baseline's own figure is not exact.
    BaselineNotExact,
    /// Rehearsed, and sizes depended on values on the device, which were 0: the first line that read such a value.
    SizesFromValues(String),
    /// Rehearsed, and workspaces that cuDNN planned may be up to this many bytes larger.
    UncertainWorkspaces(u64),
}

/// The effect of a doubt on a replayed figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// The figure is unknown: data that memviz did not understand may increase or decrease it.
    Nothing,
    /// It is a lower bound: the true value may be higher.
    LowerBound,
    /// It is a lower bound; the upper bound is this many bytes higher.
    UpTo(u64),
    /// There is only an upper bound, this many bytes above the figure.
    AtMost(u64),
    /// It lies between two bounds, this many bytes below and above the figure.
    Around(u64, u64),
}

/// The doubt about the maximum of a counter on a device, if any.
pub fn of_maximum(track: Track<'_>, metric: Metric) -> Option<(Doubt, Leaves)> {
    let history = track.history;
    let of_metric = || match metric {
        Metric::Reserved => of_reserved(track),
        _ => of_allocated(history),
    };
    of_device(track).or_else(of_metric).or_else(|| of_workspaces(track.snapshot, metric))
}

/// The doubt about every figure of a device, if any.
pub fn of_device(track: Track<'_>) -> Option<(Doubt, Leaves)> {
    let Track { snapshot, history } = track;
    if history.anomalies.total() > 0 {
        return Some((Doubt::Contradicts(history.anomalies.total()), Leaves::Nothing));
    }
    let of_file = of_file(snapshot);
    if let Some((_, Leaves::Nothing)) = of_file {
        return of_file;
    }
    if history.completeness.counters_differ {
        return Some((Doubt::CountersDiffer, Leaves::Nothing));
    }
    let lower = |doubt| Some((doubt, Leaves::LowerBound));
    match &history.completeness {
        Completeness { no_entries: true, .. } => lower(Doubt::NoHistory),
        Completeness { overflowed: true, .. } => lower(Doubt::Overflowed),
        Completeness { ring_full: true, .. } => lower(Doubt::RingFull),
        Completeness { truncated: true, .. } => lower(Doubt::CutOff),
        Completeness { no_totals: true, .. } => lower(Doubt::NoTotals),
        Completeness { while_profiling: true, .. } => lower(Doubt::WhileProfiling),
        Completeness { freed_left_out: true, .. } => lower(Doubt::FreedLeftOut),
        _ => match beginning(track) {
            Some(doubt) => lower(doubt),
            None => of_file,
        },
    }
}

/// The prefix of unknown keys of stack frames. They are the only unknown keys without an effect: bytes do not depend on
/// frames, and a frame is defined by its file, line and name. A key of an entry, a block, a segment or the whole file may
/// concern memory, or change the meaning of other keys.
const FRAME: &str = "frame.";

/// The doubt about every figure of every device of a file, if any.
pub fn of_file(snapshot: &Snapshot) -> Option<(Doubt, Leaves)> {
    let SourceNotes {
        // Facts without an effect.
        format: _,
        bytes: _,
        device_memory: _,
        device_memory_from: _,
        protocol: _,
        rank: _,
        source_code: _,
        tensors: _,
        // What it says about memory has marks of its own.
        holders: _,
        device_type: _,
        // Reported by `Snapshot::lacks_gpu_memory`.
        runs_on_gpu: _,
        device_names: _,
        // PyTorch before 2.3 writes none; other gaps of 2.0 are reported for each device.
        has_times: _,
        // Included in `truncated_at`.
        segments_truncated: _,
        // Relevant only for attribution: see `of_sites`.
        coarse_times: _,
        left_out: _,
        no_addresses: _,
        // Reported as `Completeness::no_entries`.
        segments_only: _,
        // Reported as `Completeness::no_totals`.
        no_totals: _,
        // Reported as `Completeness::freed_left_out`.
        in_page: _,
        // Reported as `Completeness::overflowed` and `Completeness::ring_full`.
        trace_overflowed: _,
        ring_capacity: _,
        // Labels: see `of_sites`.
        unread_forward_lines: _,
        frames_in_part: _,
        truncated_at,
        // Compared with each device: see `Completeness::counters_differ`.
        memory_stats: _,
        followed,
        malformed,
        unknown_keys,
        unknown_actions,
        memory_left_out,
        rehearsal,
    } = &snapshot.notes;
    let first_size = |rehearsal: &Rehearsal| rehearsal.sizes().next().map(ValueReads::place);
    let by_value = rehearsal.as_ref().and_then(first_size).unwrap_or_default();
    let unknown_key = unknown_keys.keys().find(|key| !key.starts_with(FRAME));
    let doubt = if *memory_left_out > 0 {
        Doubt::MemoryLeftOut(*memory_left_out)
    } else if !malformed.is_empty() {
        Doubt::Malformed(malformed[0].clone())
    } else if settings_are_missing(snapshot) {
        Doubt::NoSettings
    } else if let Some(device) = missing_device(snapshot) {
        Doubt::DeviceMissing(device)
    } else if !by_value.is_empty() {
        Doubt::SizesFromValues(by_value)
    } else {
        match (unknown_actions.keys().next(), unknown_key) {
            (Some(action), _) => Doubt::UnknownAction(action.clone()),
            (None, Some(key)) => Doubt::UnknownKey(key.clone()),
            (None, None) if *followed => return Some((Doubt::Followed, Leaves::LowerBound)),
            (None, None) => return truncated_at.map(|_| (Doubt::CutOff, Leaves::LowerBound)),
        }
    };
    Some((doubt, Leaves::Nothing))
}

/// The doubt about bytes attributed to sites, if any: an event is at the boundary of two lines, or the spans around it are
/// missing.
pub fn of_sites(snapshot: &Snapshot) -> Option<Doubt> {
    let notes = &snapshot.notes;
    let is_loose = notes.coarse_times || notes.no_addresses || !notes.left_out.is_empty();
    (is_loose || notes.unread_forward_lines > 0).then_some(Doubt::LooseSites).or_else(|| of_frames(snapshot))
}

/// The doubt about figures by stack, if any: parts of frames are missing.
pub fn of_frames(snapshot: &Snapshot) -> Option<Doubt> {
    (snapshot.notes.frames_in_part > 0).then_some(Doubt::LooseSites)
}

/// The doubt about figures by line of code: no stack names a line, since none were recorded or all were lost.
pub fn of_lines(track: Track<'_>) -> Option<Doubt> {
    let snapshot = track.snapshot;
    let mut stacks = track.stacks().iter();
    let is_told = !snapshot.notes.format.has_segments() || stacks.any(|&stack| names_file(snapshot, stack));
    (!is_told).then_some(Doubt::NoLines)
}

/// Whether a frame of a stack names a file.
pub fn names_file(snapshot: &Snapshot, stack: StackId) -> bool {
    snapshot.stacks.frames(stack).any(|frame| frame.filename != StrId::EMPTY)
}

/// A device on which PyTorch counted requests or memory, and of which the file contains neither entries nor segments.
fn missing_device(snapshot: &Snapshot) -> Option<i32> {
    let counted = (0..).zip(&snapshot.notes.memory_stats.as_ref()?.devices);
    let reserved = |stats: &DeviceStats| stats.end.as_ref()?.get("reserved_bytes.all.current").copied();
    let is_used = |stats: &DeviceStats| [stats.requests(), reserved(stats)].into_iter().flatten().any(|it| it > 0);
    let mut used = counted.filter(|(_, stats)| is_used(stats)).map(|(device, _)| device);
    used.find(|&device| snapshot.trace(device).is_none() && snapshot.notes.truncated_at.is_none())
}

/// Whether PyTorch counted the requests of the device at both ends of the recording.
pub fn is_counted(track: Track<'_>) -> bool {
    let index = usize::try_from(track.history.device).ok();
    let stats = track.snapshot.notes.memory_stats.as_ref().zip(index);
    stats.and_then(|(stats, index)| stats.devices.get(index)?.requests()).is_some()
}

/// Whether settings are missing that the release which wrote the file would have written. Early releases write none;
/// `compile_context` was added later, and then every entry has it. Settings come after the entries, so a file that was cut
/// off lacks them, too; that is reported separately.
fn settings_are_missing(snapshot: &Snapshot) -> bool {
    let is_later = || snapshot.contexts.iter().any(|context| context.compile_context != StrId::EMPTY);
    let expected = snapshot.notes.format == Format::CudaSnapshot && snapshot.notes.truncated_at.is_none();
    expected && !snapshot.settings.recorded && is_later()
}

/// The doubt about maxima since the start of a program, if any: memory was in use or reserved before the first recorded
/// entry. A ring buffer that dropped entries can look the same, unless the file says that it dropped none.
pub fn late_start(track: Track<'_>) -> Option<Doubt> {
    (track.history.completeness.has_baseline && !lost_nothing(track)).then_some(Doubt::LateStart)
}

/// Whether the file itself says that its ring buffer did not drop any entry.
fn lost_nothing(track: Track<'_>) -> bool {
    let Track { snapshot, history } = track;
    let has_room = |capacity| (history.rows.len() as u64) < capacity;
    snapshot.notes.trace_overflowed == Some(false) || snapshot.notes.ring_capacity.is_some_and(has_room)
}

/// The doubt about entries before the first recorded one: they are lost, or it is unknown whether they are. A block or
/// segment from before has a stack only if recording was on then: a ring buffer (`max_entries`) dropped its entry, or an
/// earlier recording ended, which removes all of its entries. A recording that started late has no such stacks, but neither
/// does a recording without stacks.
fn beginning(track: Track<'_>) -> Option<Doubt> {
    let Track { snapshot, history } = track;
    if !snapshot.notes.format.has_segments() || !history.completeness.has_baseline || lost_nothing(track) {
        return None;
    }
    // The later growth of an expandable segment has a stack, too.
    let old_segment = |span: &SegmentSpan| span.made == 0 && !span.expandable && span.stack != StackId::EMPTY;
    if history.baseline.iter().any(|origin| origin.stack != StackId::EMPTY) || history.segments.iter().any(old_segment)
    {
        return Some(Doubt::LostBeginning);
    }
    if history.baseline.is_empty() {
        return None;
    }
    // PyTorch 2.0 does not have this option.
    let stacks = track.stacks();
    let has_stacks = stacks.iter().any(|&stack| stack != StackId::EMPTY);
    (!has_stacks && !snapshot.is_of_2_0()).then_some(Doubt::NoStacks)
}

fn of_allocated(history: &History) -> Option<(Doubt, Leaves)> {
    let Completeness {
        // Reported for every figure: see `of_device`.
        no_entries: _,
        truncated: _,
        overflowed: _,
        ring_full: _,
        no_totals: _,
        while_profiling: _,
        // Only requested bytes depend on it.
        rounded_requests: _,
        freed_left_out: _,
        counters_differ: _,
        // The replay takes each free as completed; only active and requested bytes depend on that.
        no_free_completed: _,
        // They explain every entry.
        inferred_rule: _,
        whole_segments: _,
        // The peak is the peak since then: see `late_start`.
        has_baseline: _,
        // There are no limits on requested and active bytes.
        blocks_only: _,
        no_reserved: _,
        // This concerns the baseline; only its effect on the peak matters.
        baseline_uncertain_bytes: _,
        sampled,
        unrecorded_frees,
        no_free_requested,
        peak_uncertain_bytes,
        other_rules_bytes,
    } = history.completeness;
    let more = peak_uncertain_bytes.saturating_add(other_rules_bytes);
    if sampled {
        Some((Doubt::Sampled, Leaves::LowerBound))
    } else if unrecorded_frees {
        Some((Doubt::UnrecordedFrees, Leaves::LowerBound))
    } else if no_free_requested {
        Some((Doubt::NoFreeRequested, Leaves::AtMost(more)))
    } else if more > 0 {
        Some((Doubt::UncertainSizes(more), Leaves::UpTo(more)))
    } else {
        None
    }
}

/// The doubt about a maximum if cuDNN's workspaces are only known within bounds. One of them is held at a time. How much
/// more is reserved for a larger one depends on the free blocks.
fn of_workspaces(snapshot: &Snapshot, metric: Metric) -> Option<(Doubt, Leaves)> {
    let rehearsal = snapshot.notes.rehearsal.as_ref().filter(|rehearsal| rehearsal.cudnn_uncertain > 0)?;
    let leaves = match metric {
        Metric::Reserved => Leaves::Nothing,
        _ => Leaves::Around(rehearsal.cudnn_smaller, rehearsal.cudnn_larger),
    };
    Some((Doubt::UncertainWorkspaces(rehearsal.cudnn_larger), leaves))
}

fn of_reserved(track: Track<'_>) -> Option<(Doubt, Leaves)> {
    let snapshot = track.snapshot;
    if snapshot.notes.format == Format::MemoryTimeline {
        return Some((Doubt::NoReserved, Leaves::Nothing));
    }
    lacks_segments(track).then_some((Doubt::SegmentsNotRecorded, Leaves::LowerBound))
}

/// Whether a block from before the first kept entry is in no segment known to have existed then, so that the end of that
/// segment was not recorded (`skip_actions`).
fn lacks_segments(track: Track<'_>) -> bool {
    let Track { snapshot, history } = track;
    if !snapshot.notes.format.has_segments() || history.completeness.unrecorded_frees {
        return false;
    }
    let mut spans: Vec<(u64, u64, bool)> =
        history.segments.iter().filter(|span| span.born == 0).map(|it| (it.addr, it.end(), it.expandable)).collect();
    spans.sort_unstable();
    // Adjacent ranges of expandable segments are merged; a block is never in two segments.
    let mut known: Vec<(u64, u64, bool)> = Vec::new();
    for (start, end, expandable) in spans {
        match known.last_mut() {
            Some(last) if expandable && last.2 && start <= last.1 => last.1 = last.1.max(end),
            _ => known.push((start, end, expandable)),
        }
    }
    let baseline = history.allocations.iter().take(history.baseline.len());
    baseline.filter(|block| block.is_baseline()).any(|block| {
        let before = known.partition_point(|&(start, ..)| start <= block.addr);
        let span = before.checked_sub(1).map(|index| known[index]);
        span.is_none_or(|(_, end, _)| block.addr.saturating_add(block.size) > end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{AnomalyKind, Maximum};

    fn history() -> History {
        History {
            device: 0,
            rows: 0..0,
            allocations: Vec::new(),
            baseline: Vec::new(),
            segments: Vec::new(),
            start: crate::replay::Counters::default(),
            end: crate::replay::Counters::default(),
            maxima: [Maximum::default(); 4],
            at_maxima: None,
            anomalies: crate::replay::Anomalies::default(),
            completeness: Completeness::default(),
            counted: Vec::new(),
            operators: Vec::new(),
            links: Vec::new(),
            corrections: Vec::new(),
        }
    }

    /// The doubt about a device after changes to the file's notes and the device's history.
    fn doubt(file: impl Fn(&mut SourceNotes), device: impl Fn(&mut History)) -> Option<Doubt> {
        let (mut snapshot, mut history) = (Snapshot::default(), history());
        file(&mut snapshot.notes);
        device(&mut history);
        of_maximum(Track::new(&snapshot, &history), Metric::Allocated).map(|(doubt, _)| doubt)
    }

    #[test]
    fn every_note_on_a_file_is_a_doubt() {
        assert_eq!(doubt(|_| (), |_| ()), None);
        let of = |change: fn(&mut SourceNotes)| doubt(change, |_| ());
        assert_eq!(of(|notes| notes.truncated_at = Some(9)), Some(Doubt::CutOff));
        assert_eq!(of(|notes| notes.followed = true), Some(Doubt::Followed));
        assert_eq!(of(|notes| notes.memory_left_out = 2), Some(Doubt::MemoryLeftOut(2)));
        assert!(matches!(of(|notes| notes.malformed.push("x".to_owned())), Some(Doubt::Malformed(_))));
        assert!(matches!(
            of(|notes| notes.unknown_keys.extend([("x".to_owned(), 1)])),
            Some(Doubt::UnknownKey(key)) if key == "x"
        ));
        let keys = |notes: &mut SourceNotes, keys: &[&str]| {
            notes.unknown_keys.extend(keys.iter().map(|&key| (key.to_owned(), 1)));
        };
        assert_eq!(doubt(|notes| keys(notes, &["frame.column"]), |_| ()), None, "frames have no bytes");
        for key in ["snapshot.x", "segment.x", "block.x", "trace entry.x", "trace entry.frame.x"] {
            let found = doubt(|notes| keys(notes, &["frame.column", key]), |_| ());
            assert_eq!(found, Some(Doubt::UnknownKey(key.to_owned())));
        }
        assert!(matches!(
            of(|notes| notes.unknown_actions.extend([("x".to_owned(), 1)])),
            Some(Doubt::UnknownAction(action)) if action == "x"
        ));
        let mut snapshot = Snapshot::default();
        snapshot.notes.coarse_times = true;
        assert_eq!(of_sites(&snapshot), Some(Doubt::LooseSites));
    }

    #[test]
    fn every_note_on_a_device_is_a_doubt() {
        let of = |change: fn(&mut Completeness)| doubt(|_| (), |history| change(&mut history.completeness));
        assert_eq!(of(|it| it.no_entries = true), Some(Doubt::NoHistory));
        assert_eq!(of(|it| it.counters_differ = true), Some(Doubt::CountersDiffer));
        assert_eq!(of(|it| it.overflowed = true), Some(Doubt::Overflowed));
        assert_eq!(of(|it| it.ring_full = true), Some(Doubt::RingFull));
        assert_eq!(of(|it| it.truncated = true), Some(Doubt::CutOff));
        assert_eq!(of(|it| it.sampled = true), Some(Doubt::Sampled));
        assert_eq!(of(|it| it.unrecorded_frees = true), Some(Doubt::UnrecordedFrees));
        assert_eq!(of(|it| it.no_free_requested = true), Some(Doubt::NoFreeRequested));
        assert_eq!(of(|it| it.peak_uncertain_bytes = 5), Some(Doubt::UncertainSizes(5)));
        for kind in AnomalyKind::ALL {
            let found = doubt(|_| (), |history| history.anomalies.add(kind, None, 0));
            assert_eq!(found, Some(Doubt::Contradicts(1)), "{kind:?}");
        }
    }
}
