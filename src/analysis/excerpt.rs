//! A part of a recording as a separate recording: some devices, each from one instant to another.
//!
//! It contains the entries between the instants and the segments at the later one: what PyTorch would have dumped then if its
//! ring buffer had started at the earlier one. So it is replayed like any recording that starts late: the earlier state is
//! inferred from its end. Whether the inference is correct is known here, with the whole recording; if it is not, the part is
//! refused.

use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::facts::segments::layout::{Layout, Piece, SegmentLayout};
use crate::facts::time::annotations::Annotations;
use crate::model::{Block, BlockState, DeviceId, DeviceTrace, Segment, Snapshot, SourceNotes, StackId, TraceEntries};
use crate::replay::{Counters, History, Instant, Metric, Track, replay};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub device: DeviceId,
    pub from: Instant,
    pub to: Instant,
}

impl Window {
    pub fn whole(device: &Device<'_>) -> Self {
        Self { device: device.id(), from: 0, to: device.track.entries() }
    }
}

/// A recording of only these windows. Instant 0 of a device is the first instant of its window.
///
/// Counters are those of the whole recording at each instant, and so are segments at the end. Facts that depend on the past
/// of an allocation, such as its category, may be lost.
///
/// # Errors
/// If the input is not a snapshot, is cut off or contradicts itself; if a device is missing or has no such instants;
/// or if the memory from before a window cannot be reconstructed from that window.
pub fn excerpt(devices: &Devices<'_>, windows: &[Window]) -> Result<Snapshot> {
    let whole = devices.snapshot();
    let format = whole.notes.format;
    if !format.has_segments() {
        return Err(Error::Request(format!(
            "expected a CUDA memory snapshot to cut a part out of, found a {}",
            format.title()
        )));
    }
    if whole.notes.truncated_at.is_some() {
        let message =
            "expected a complete file: in a truncated file, the segments show a later state than the last entry";
        return Err(Error::Request(message.to_owned()));
    }
    let mut windows = windows.to_vec();
    windows.sort_unstable_by_key(|window| window.device);
    windows.dedup_by_key(|window| window.device);
    let mut entries = TraceEntries::default();
    let (mut traces, mut segments) = (Vec::new(), Vec::new());
    let mut cut = Vec::new();
    for window in &windows {
        let device = *devices.wanted(&[window.device])?.first().ok_or_else(|| missing(window))?;
        let track = device.track;
        if window.from > window.to || window.to > track.entries() {
            return Err(missing(window));
        }
        let start = entries.len();
        let rows = track.history.rows.start + window.from as usize..track.history.rows.start + window.to as usize;
        for entry in whole.entries.rows(rows) {
            entries.push(entry);
        }
        traces.push(DeviceTrace { device: window.device, rows: start..entries.len(), truncated: false });
        if window.to == track.entries() {
            segments.extend_from_slice(track.segments());
        } else {
            segments.extend(segments_at(track, window.to)?);
        }
        if *window != Window::whole(device) {
            cut.push((window, track));
        }
    }
    if !whole.notes.has_times {
        for trace in &traces {
            entries.number_times(trace.rows.clone());
        }
    }
    let times = entries.times();
    let span = times.iter().min().copied().zip(times.iter().max().copied()).filter(|_| whole.notes.has_times);
    let annotations = match span {
        Some(span) if !cut.is_empty() => Annotations::recorded_within(whole, span),
        _ => whole.annotations.clone(),
    };
    let snapshot = Snapshot {
        strings: whole.strings.clone(),
        stacks: whole.stacks.clone(),
        contexts: whole.contexts.clone(),
        annotations,
        settings: whole.settings.clone(),
        notes: SourceNotes {
            format,
            has_times: whole.notes.has_times,
            trace_overflowed: whole.notes.trace_overflowed,
            rehearsal: whole.notes.rehearsal.clone(),
            ring_capacity: ring_capacity(devices, &traces),
            ..SourceNotes::default()
        },
        view: whole.view.clone(),
        entries,
        traces,
        segments,
    };
    if !cut.is_empty() {
        let histories = replay(&snapshot);
        for (window, track) in cut {
            let history = histories.iter().find(|history| history.device == window.device);
            compare(window, track, Track::new(&snapshot, history.ok_or_else(|| missing(window))?))?;
        }
    }
    Ok(snapshot)
}

fn missing(Window { device, from, to }: &Window) -> Error {
    Error::Request(format!("device {device} has no instants {from} to {to}"))
}

/// A ring buffer capacity with which a device whose buffer was full, and may have lost entries, still counts as full.
fn ring_capacity(devices: &Devices<'_>, traces: &[DeviceTrace]) -> Option<u64> {
    let was_full = |device| devices.get(device).is_some_and(|device| device.history().completeness.ring_full);
    let full = traces.iter().filter(|trace| was_full(trace.device) && !trace.rows.is_empty());
    let kept = full.map(|trace| trace.rows.len() as u64).min();
    kept.or(devices.snapshot().notes.ring_capacity)
}

/// What `torch.cuda.memory_snapshot()` would have returned for a device at an instant.
fn segments_at(track: Track<'_>, instant: Instant) -> Result<Vec<Segment>> {
    let layout = Layout::at(track, instant);
    if !layout.stray.is_empty() {
        let message =
            format!("the recording contradicts itself: device {} has blocks outside of segments", track.device());
        return Err(Error::Request(message));
    }
    layout.segments.iter().map(|segment| segment_of(track, &layout, segment)).collect()
}

fn segment_of(track: Track<'_>, layout: &Layout, segment: &SegmentLayout) -> Result<Segment> {
    let pieces = layout.pieces_of(segment);
    let blocks: Vec<Block> = pieces.iter().map(|piece| block(track, piece)).collect();
    let sum = |counts: fn(&Block) -> u64| blocks.iter().map(counts).fold(0u64, u64::wrapping_add);
    let unknown = || {
        let device = track.device();
        Error::Request(format!("the stream of a segment of device {device}, at {:#x}, is not recorded", segment.addr))
    };
    Ok(Segment {
        device: track.device(),
        address: segment.addr,
        total_size: segment.size,
        allocated_size: sum(|block| if block.state == BlockState::ActiveAllocated { block.size } else { 0 }),
        active_size: sum(|block| if block.state == BlockState::Inactive { 0 } else { block.size }),
        requested_size: Some(sum(|block| if block.state == BlockState::Inactive { 0 } else { block.requested_size })),
        stream: segment.stream.ok_or_else(unknown)?,
        segment_type: segment.segment_type,
        pool: segment.pool,
        is_expandable: segment.expandable,
        stack: segment.stack,
        blocks,
    })
}

fn block(track: Track<'_>, piece: &Piece) -> Block {
    let free = Block {
        address: piece.addr,
        size: piece.size,
        requested_size: 0,
        state: piece.state,
        stack: StackId::EMPTY,
        forward: StackId::EMPTY,
    };
    let allocation = piece.allocation.and_then(|index| Some((index, track.allocation(index)?)));
    let Some((index, allocation)) = allocation else { return free };
    let forward = match History::entry_before(allocation.born) {
        Some(entry) => track.context(entry).forward,
        None => track.history.baseline.get(index).map_or(StackId::EMPTY, |origin| origin.forward),
    };
    Block { requested_size: allocation.requested, stack: track.stack_of(index), forward, ..free }
}

/// Checks that a window on its own replays to the same state as in the whole recording.
fn compare(window: &Window, whole: Track<'_>, part: Track<'_>) -> Result<()> {
    let mut expected: Vec<Counters> = Vec::with_capacity((window.to - window.from) as usize + 1);
    expected.push(whole.counters_at(window.from));
    whole.walk_to(window.to, |instant, counters| {
        if instant > window.from {
            expected.push(*counters);
        }
    });
    let mut differ = None;
    let mut look = |instant: Instant, found: &Counters| {
        let expected = expected.get(instant as usize);
        if differ.is_none() && expected != Some(found) {
            differ = Some((instant, *found));
        }
    };
    look(0, &part.history.start);
    part.walk(look);
    let refused = |why: String| {
        let Window { device, from, to } = window;
        Error::Request(format!(
            "the part from instant {from} to {to} of device {device} does not show what was allocated before it ({why}); \
             start elsewhere, or at the start of the recording"
        ))
    };
    if let Some((instant, found)) = differ {
        let known = expected.get(instant as usize).copied().unwrap_or_default();
        let metric = Metric::ALL.into_iter().find(|&metric| known.get(metric) != found.get(metric)).unwrap_or_default();
        let (name, known, found) = (metric.name(), known.get(metric), found.get(metric));
        return Err(refused(format!(
            "{name} would come out as {found} bytes at instant {}, but it is {known}",
            window.from + instant
        )));
    }
    let (all, alone) = (whole.history, part.history);
    if alone.anomalies.total() > all.anomalies.total() {
        return Err(refused("it would contradict itself".to_owned()));
    }
    if alone.completeness.no_free_requested != all.completeness.no_free_requested {
        return Err(refused("the times at which frees were requested would be unknown".to_owned()));
    }
    Ok(())
}
