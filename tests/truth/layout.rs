//! The layout at an instant: at the end it is the snapshot's own, and everywhere it sums to the counters.

use crate::support::{self, assert_none, cases};
use memviz::Recording;
use memviz::facts::segments::layout::{Layout, SegmentLayout};
use memviz::model::{BlockState, DeviceId, PoolId, SegmentType};
use memviz::replay::{History, Track};

/// Instants of each history whose sums are compared.
const INSTANTS: u32 = 24;

/// Device and its pools of a segment, for comparison.
type SegmentRow = (DeviceId, u64, u64, SegmentType, Option<u64>, Option<PoolId>, bool);

#[test]
fn the_layout_at_the_end_is_the_snapshots_own() {
    let mut problems = Vec::new();
    for (path, recording) in recordings() {
        let snapshot = &recording.snapshot;
        for history in &recording.histories {
            let layout = Layout::at(Track::new(snapshot, history), history.entries());
            let found: Vec<SegmentRow> = layout
                .segments
                .iter()
                .map(|segment| {
                    let SegmentLayout { addr, size, segment_type, stream, pool, expandable, .. } = segment.clone();
                    (history.device, addr, size, segment_type, stream, pool, expandable)
                })
                .collect();
            let recorded: Vec<SegmentRow> = snapshot
                .segments_of(history.device)
                .iter()
                .map(|segment| {
                    let (size, expandable) = (segment.total_size, segment.is_expandable);
                    let (segment_type, stream, pool) = (segment.segment_type, Some(segment.stream), segment.pool);
                    (history.device, segment.address, size, segment_type, stream, pool, expandable)
                })
                .collect();
            if found != recorded {
                let differ = found.iter().zip(&recorded).find(|(found, recorded)| found != recorded);
                problems.push(format!("{path}: {} and {} segments: {differ:x?}", found.len(), recorded.len()));
            }
            let found: Vec<(u64, u64, BlockState)> =
                layout.pieces.iter().map(|piece| (piece.addr, piece.size, piece.state)).collect();
            let blocks = snapshot.segments_of(history.device).iter().flat_map(|segment| &segment.blocks);
            let recorded: Vec<(u64, u64, BlockState)> =
                blocks.map(|block| (block.address, block.size, block.state)).collect();
            if found != recorded {
                let differ = found.iter().zip(&recorded).find(|(found, recorded)| found != recorded);
                problems.push(format!("{path}: {} and {} blocks: {differ:x?}", found.len(), recorded.len()));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn parts_sum_to_the_counters_at_every_instant() {
    let mut problems = Vec::new();
    for (path, recording) in recordings() {
        for history in &recording.histories {
            let last = u64::from(history.entries());
            for step in 0..=INSTANTS {
                let instant = (last * u64::from(step) / u64::from(INSTANTS)) as u32;
                problems.extend(sums(&recording, history, instant).map(|problem| format!("{path}: {problem}")));
            }
            for maximum in history.maxima {
                problems.extend(sums(&recording, history, maximum.instant).map(|problem| format!("{path}: {problem}")));
            }
        }
    }
    assert_none(&problems);
}

fn sums(recording: &Recording, history: &History, instant: u32) -> Option<String> {
    let layout = Layout::at(Track::new(&recording.snapshot, history), instant);
    let counters = Track::new(&recording.snapshot, history).counters_at(instant);
    let sum = |wanted: &dyn Fn(BlockState) -> bool| -> u64 {
        layout.pieces.iter().filter(|piece| wanted(piece.state)).map(|piece| piece.size).sum()
    };
    let reserved: u64 = layout.segments.iter().map(|segment| segment.size).sum();
    let tiled: u64 = layout.segments.iter().flat_map(|segment| layout.pieces_of(segment)).map(|piece| piece.size).sum();
    let found = [
        sum(&|state| state == BlockState::ActiveAllocated),
        sum(&|state| state != BlockState::Inactive),
        reserved,
        tiled,
        sum(&|_| true),
    ];
    let expected = [counters.allocated, counters.active, counters.reserved, counters.reserved, counters.reserved];
    let exact = found.iter().zip(expected).all(|(&found, expected)| i64::try_from(found) == Ok(expected));
    (!exact || !layout.stray.is_empty())
        .then(|| format!("instant {instant}: {found:?}, counted {expected:?}, {} stray", layout.stray.len()))
}

fn recordings() -> Vec<(String, Recording)> {
    let cases = cases(support::FIXTURES);
    assert!(cases.len() > 100, "only {} fixtures were found", cases.len());
    cases.into_iter().map(|case| (case.path.clone(), support::open(&case.path))).collect()
}
