//! A part of a recording as a separate file, compared with the same part of the whole.

use crate::support::programs::{plain_or_expandable, programs};
use crate::support::snapshot_file::Facts;
use crate::support::{self, assert_none, cases};
use memviz::Recording;
use memviz::analysis::excerpt::{Window, excerpt};
use memviz::facts::device::Devices;
use memviz::facts::segments::layout::{Layout, Piece, SegmentLayout};
use memviz::facts::time::annotations::{AnnotationRange, Annotations};
use memviz::input::ReadOptions;
use memviz::model::{BlockState, Frame, PoolId, SegmentType, Snapshot};
use memviz::replay::{Counters, History, Metric, Track, replay};
use memviz::wire;
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::Cursor;

/// A snapshot, written and read again.
fn through_a_file(snapshot: &Snapshot) -> Recording {
    let mut bytes = Vec::new();
    wire::snapshot::write(snapshot, &mut bytes).unwrap();
    Recording::read(Cursor::new(bytes), &ReadOptions::default()).unwrap()
}

/// The counters of a device at each instant of a window.
fn counters(track: Track<'_>, from: u32, to: u32) -> Vec<Counters> {
    let mut all = vec![track.history.start];
    track.walk(|_, counters| all.push(*counters));
    all[from as usize..=to as usize].to_vec()
}

/// A segment and its blocks, each with its address, size, state and stack.
type SegmentRow = (u64, u64, bool, SegmentType, Option<PoolId>, Vec<(u64, u64, BlockState, Vec<String>)>);

/// What there is at an instant.
fn segments(track: Track<'_>, instant: u32) -> Vec<SegmentRow> {
    let layout = Layout::at(track, instant);
    let frames = |piece: &Piece| {
        let stack = piece.allocation.map(|index| track.stack_of(index)).unwrap_or_default();
        let Snapshot { stacks, strings, .. } = track.snapshot;
        let text = |frame: &Frame| format!("{}:{}", strings.get(frame.filename), frame.line);
        stacks.frames(stack).map(text).collect()
    };
    let row = |segment: &SegmentLayout| {
        let pieces = layout.pieces_of(segment).iter();
        let blocks = pieces.map(|piece| (piece.addr, piece.size, piece.state, frames(piece))).collect();
        (segment.addr, segment.size, segment.expandable, segment.segment_type, segment.pool, blocks)
    };
    layout.segments.iter().map(row).collect()
}

/// How a part differs from the whole; `None` if there is no such part.
fn differences(devices: &Devices<'_>, windows: &[Window]) -> Option<Vec<String>> {
    let recording = through_a_file(&excerpt(devices, windows).ok()?);
    let mut problems = Vec::new();
    for window in windows {
        let Window { device, from, to } = *window;
        let track = devices.get(device).unwrap().track;
        let Some(history) = recording.history(device) else {
            let is_empty = from == to && segments(track, to).is_empty();
            problems.extend((!is_empty).then(|| format!("{window:?}: the device is missing")));
            continue;
        };
        let part = Track::new(&recording.snapshot, history);
        let (expected, found) = (counters(track, from, to), counters(part, 0, part.entries()));
        if expected != found {
            let at = expected.iter().zip(&found).position(|(expected, found)| expected != found);
            problems.push(format!("{window:?}: {} and {} instants, {at:?}", expected.len(), found.len()));
        }
        for metric in Metric::ALL {
            let highest = expected.iter().map(|counters| counters.get(metric)).max().unwrap();
            if history.maxima[metric as usize].bytes != highest {
                problems.push(format!("{window:?}: the peak of {} is not {highest}", metric.name()));
            }
        }
        let (expected, found) = (segments(track, to), segments(part, part.entries()));
        if expected != found {
            let differ = expected.iter().zip(&found).find(|(expected, found)| expected != found);
            problems.push(format!("{window:?}: {} and {} segments: {differ:x?}", expected.len(), found.len()));
        }
    }
    if let [window] = windows
        && *window != Window::whole(devices.get(window.device).unwrap())
        && named_ranges(&recording.snapshot, (i64::MIN, i64::MAX))
            != named_ranges(devices.snapshot(), window_times(&recording.snapshot))
    {
        problems.push(format!("{window:?}: annotations differ"));
    }
    Some(problems)
}

/// When the first and the last entry were recorded; all times if there is none.
fn window_times(snapshot: &Snapshot) -> (i64, i64) {
    let times = snapshot.entries.times();
    let (first, last) = (times.iter().min(), times.iter().max());
    if snapshot.notes.has_times && !times.is_empty() { (*first.unwrap(), *last.unwrap()) } else { (i64::MIN, i64::MAX) }
}

/// The `record_function` ranges with something of a time span in them.
fn named_ranges(snapshot: &Snapshot, (first, last): (i64, i64)) -> Vec<(String, i64, i64, usize)> {
    let ranges = Annotations::of(snapshot).ranges;
    let shown = ranges.iter().filter(|range| range.start_us <= last && range.end_us >= first);
    let name = |range: &AnnotationRange| snapshot.strings.get(range.name).to_owned();
    shown.map(|range| (name(range), range.start_us, range.end_us, range.depth)).collect()
}

/// Windows that divide a history unevenly, those at its ends included.
fn windows(track: Track<'_>) -> Vec<Window> {
    let last = u64::from(track.entries());
    let at = |part: u64| (last * part / 97) as u32;
    let edges = [(0, 13), (5, 6), (29, 61), (44, 97)];
    edges.iter().map(|&(from, to)| Window { device: track.device(), from: at(from), to: at(to) }).collect()
}

#[test]
fn parts_of_recordings_match_the_whole() {
    let cases = cases(support::FIXTURES);
    assert!(cases.len() > 100, "only {} fixtures were found", cases.len());
    let mut problems = Vec::new();
    let (mut tried, mut refused) = (0, 0);
    for case in cases {
        let recording = support::open(&case.path);
        let devices = recording.devices();
        for device in devices.all() {
            for window in windows(device.track) {
                tried += 1;
                match differences(&devices, &[window]) {
                    Some(found) => problems.extend(found.into_iter().map(|found| format!("{}: {found}", case.path))),
                    None => refused += 1,
                }
            }
        }
    }
    assert_none(&problems);
    // Parts that cannot be reconstructed are refused; most can be.
    assert!(tried > 500 && refused * 20 < tried, "{refused} of {tried} were refused");
}

#[test]
fn written_recordings_are_read_back() {
    // The million entries repeat a short recording, and would take as long as all others together.
    for case in cases(support::FIXTURES).into_iter().filter(|case| case.name != "big_1m") {
        let recording = support::open(&case.path);
        let read = through_a_file(&recording.snapshot);
        let [expected, found] = [&recording.snapshot, &read.snapshot].map(Facts::of);
        assert_eq!(expected.entries, found.entries, "{}", case.path);
        assert_eq!(expected.segments, found.segments, "{}", case.path);
        assert_eq!(expected.annotations, found.annotations, "{}", case.path);
        assert_eq!(format!("{:?}", expected.settings), format!("{:?}", found.settings), "{}", case.path);
        let figures = |recording: &Recording| {
            let of = |history: &History| {
                let History { device, allocations, baseline, maxima, end, completeness, .. } = history;
                format!("{device} {:?} {:?} {maxima:?} {end:?} {completeness:?}", allocations.len(), baseline.len())
            };
            recording.histories.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(figures(&recording), figures(&read), "{}", case.path);
        assert!(read.snapshot.notes.unknown_keys.is_empty() && read.snapshot.notes.malformed.is_empty());
    }
}

proptest! {
    /// The truth comes from the model, which knows what actually happened.
    #[test]
    fn parts_of_programs_match_the_model(
        program in programs(plain_or_expandable(), false),
        edges in vec((0..=1000usize, 0..=1000usize), 3),
    ) {
        let model = program.run();
        let snapshot = model.snapshot();
        let histories = replay(&snapshot);
        let devices = Devices::of(&snapshot, &histories);
        let windows = devices.all().iter().zip(&edges).map(|(device, &(a, b))| {
            let at = |part: usize| (device.track.entries() as usize * part / 1000) as u32;
            Window { device: device.id(), from: at(a.min(b)), to: at(a.max(b)) }
        });
        let windows: Vec<Window> = windows.collect();
        let Some(problems) = differences(&devices, &windows) else { return Ok(()) };
        prop_assert!(problems.is_empty(), "{:?}", problems);
        let part = through_a_file(&excerpt(&devices, &windows)?);
        for window in windows {
            let Some(history) = part.history(window.device) else { continue };
            let moments = &model.logs[window.device as usize].moments[window.from as usize..=window.to as usize];
            let found = counters(Track::new(&part.snapshot, history), 0, history.entries());
            for (moment, found) in moments.iter().zip(found) {
                let found = Metric::ALL.map(|metric| found.get(metric) as u64);
                prop_assert_eq!(moment.counters(), found);
            }
        }
    }
}
