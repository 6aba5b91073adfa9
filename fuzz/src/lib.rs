//! What the fuzz targets do, so that `cargo test` can do it again with what they found: reading, replaying, and what must hold
//! afterwards.

pub mod bytes;
pub mod commands;
pub mod cuts;
pub mod entries;
pub mod looks;
pub mod mutation;
pub mod pairs;
pub mod plays;
pub mod texts;

use memviz::Recording;
use memviz::analysis::check::{Budgets, CheckOptions, CheckVerdict, EarlierRun};
use memviz::analysis::checkpoint::CheckpointOptions;
use memviz::analysis::diff::DiffReport;
use memviz::analysis::flame::FlameOptions;
use memviz::analysis::fragmentation::FragmentationOptions;
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::oom::OomOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::ranks::RanksReport;
use memviz::analysis::timeline::{TimelineOptions, XAxis};
use memviz::analysis::triage::TriageOptions;
use memviz::facts::grouping::GroupBy;
use memviz::input::{ReadOptions, read_observed};
use memviz::model::{Action, Snapshot};
use memviz::replay::{AnomalyKind, HeadStart, History, Metric, Track, replay};
use memviz::report::flamegraph::folded;
use memviz::report::page::Page;
use memviz::report::{AnswerFormat, Source, Sources, TextStyle};
use std::io::Cursor;

/// Reads and replays a file from a stranger. Errors are fine, panics are not.
pub fn read_and_replay(bytes: Vec<u8>, allow_truncated: bool) {
    let mut options = ReadOptions::default();
    options.allow_truncated = allow_truncated;
    let Ok((input, head_start)) = read_observed(Cursor::new(bytes), &options, HeadStart::default()) else { return };
    let snapshot = input.snapshot;
    let histories = head_start.finish(&snapshot);
    check(&snapshot, &histories);
    for (early, late) in histories.iter().zip(replay(&snapshot)) {
        assert_eq!(early.allocations, late.allocations, "a replay made while reading is no other");
        assert_eq!(early.anomalies, late.anomalies, "a replay made while reading is no other");
    }
}

/// Opens any file, and asks every question about what is in it. Errors of one line are fine, panics are not.
///
/// # Panics
/// When an error has several lines.
pub fn open_and_answer(bytes: &[u8]) {
    for allow_truncated in [false, true] {
        let mut options = ReadOptions::default();
        (options.allow_truncated, options.on_one_thread) = (allow_truncated, true);
        match Recording::read(Cursor::new(bytes.to_vec()), &options) {
            Ok(recording) => answer(&recording),
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "an error is one line: {error}"),
        }
    }
}

/// Reads bytes as lines of `memviz ranks`, compares the ranks, and writes the answer. Errors are fine, panics are not.
pub fn read_lines(bytes: &[u8]) {
    let (lines, _) = memviz::wire::rank_lines::read_lines(bytes, Metric::Allocated, &[]);
    let report = RanksReport::of(lines, Metric::Allocated);
    let style = TextStyle { width: Some(80), color: false, advice: true, ..TextStyle::default() };
    for format in AnswerFormat::ALL {
        let mut out = Vec::new();
        let _ = format.write(&report, (), style, &mut out);
    }
}

/// Reads a text as answers of `memviz check`, and takes them for baselines. Errors are fine, panics are not.
pub fn read_baseline(text: &str) {
    let Ok(answers) = memviz::wire::answers::read_answers(text) else { return };
    for answer in &answers {
        let _ = EarlierRun::of_answer(answer);
    }
}

/// Panics unless the numbers of each history agree with one another, however contradictory the entries are.
///
/// # Panics
/// When they do not.
pub fn check(snapshot: &Snapshot, histories: &[History]) {
    assert_eq!(snapshot.traces.len(), histories.len());
    for history in histories {
        counters_are_sums(history);
        let counts: u64 = Track::new(snapshot, history).action_counts().iter().sum();
        assert_eq!(counts, u64::from(history.entries()));
        for index in 0..history.allocations.len() {
            let allocation = history.allocations[index];
            assert!(allocation.born <= allocation.freed && allocation.freed <= allocation.completed);
            assert_eq!(allocation.is_baseline(), history.born_row(index).is_none());
            if let Some(row) = history.born_row(index) {
                let entry = snapshot.entries.get(row).expect("allocations are born in rows");
                assert_eq!(
                    (entry.action, entry.addr, entry.size),
                    (Action::Alloc, allocation.addr, allocation.requested)
                );
            }
        }
    }
}

/// Asks every question about a recording and writes every answer. Errors are fine, panics are not.
///
/// # Panics
/// When answers contradict one another.
pub fn answer(recording: &Recording) {
    let source = Source { path: "snapshot.pickle", recording };
    let style = TextStyle { width: Some(80), color: false, advice: true, ..TextStyle::default() };
    let fragmentation = FragmentationOptions::default().points(Some(8));
    let timeline = TimelineOptions::default()
        .peak(PeakOptions::default().top(Some(3)))
        .axis(XAxis::Time)
        .columns(50)
        .inactive(true);
    for format in AnswerFormat::ALL {
        let mut out = Vec::new();
        let _ = recording.peak(&PeakOptions::default()).map(|report| format.write(&report, source, style, &mut out));
        let _ = recording.oom(&OomOptions::default()).map(|report| format.write(&report, source, style, &mut out));
        let _ = recording.leaks(&LeakOptions::default()).map(|report| format.write(&report, source, style, &mut out));
        let _ = recording.fragmentation(&fragmentation).map(|report| format.write(&report, source, style, &mut out));
        let _ = recording
            .checkpoint(&CheckpointOptions::default())
            .map(|report| format.write(&report, source, style, &mut out));
        let _ = recording.info(&[]).map(|report| format.write(&report, source, style, &mut out));
        for by in [GroupBy::Category, GroupBy::Phase] {
            let options = PeakOptions::default().by(by);
            let _ = recording.peak(&options).map(|report| format.write(&report, source, style, &mut out));
        }
        let _ =
            recording.triage(&TriageOptions::default()).map(|report| format.write(&report, source, style, &mut out));
        if let Ok(side) = recording.diff_input(&PeakOptions::default()) {
            let sources = Sources { base: source, new: source };
            let _ = format.write(&DiffReport::of(&side, &side, Some(3)), sources, style, &mut out);
        }
    }
    let _ = recording.flame(&FlameOptions::default()).map(|report| folded::write(&report, &mut Vec::new()));
    judge(recording);
    if let Ok(overview) = recording.overview(&timeline) {
        let page = Page { source, overview: &overview };
        let mut out = Vec::new();
        page.svg(&mut out).and_then(|()| page.html(&mut out)).and_then(|()| page.markdown(&mut out)).expect("it fits");
    }
}

/// What contradicts itself passes no budget, and nothing passes a budget below what it is known to have had.
fn judge(recording: &Recording) {
    for history in &recording.histories {
        let highest = history.maxima[Metric::Allocated as usize].bytes;
        for limit in [u64::MAX, u64::try_from(highest).unwrap_or(0).saturating_sub(1)] {
            let budgets = Budgets::default().devices(vec![history.device]).max_peak(Some(limit));
            let report = recording.check(&CheckOptions::default().budgets(vec![budgets]).top(1));
            let passes = report.verdict() == CheckVerdict::Passed;
            assert!(!passes || history.anomalies.total() == 0, "it contradicts itself");
            let is_upper = history.completeness.no_free_requested || highest <= 0;
            assert!(!passes || limit == u64::MAX || is_upper, "{highest} bytes pass {limit}");
        }
    }
}

/// The counters at the end are those of what is still there.
fn counters_are_sums(history: &History) {
    let end = history.entries();
    let (mut allocated, mut active, mut requested, mut reserved) = (0i64, 0i64, 0i64, 0i64);
    for allocation in &history.allocations {
        if allocation.allocated_at(end) {
            allocated = allocated.wrapping_add_unsigned(allocation.size);
        }
        if allocation.active_at(end) {
            active = active.wrapping_add_unsigned(allocation.size);
            requested = requested.wrapping_add_unsigned(allocation.requested);
        }
    }
    assert_eq!([history.end.allocated, history.end.active, history.end.requested], [allocated, active, requested]);

    let disputed = [AnomalyKind::OverlappingSegment, AnomalyKind::UnknownSegment];
    if history.anomalies.kinds().any(|anomaly| disputed.contains(&anomaly.kind)) {
        return;
    }
    for span in history.segments.iter().filter(|span| span.reserved_at(end)) {
        reserved = reserved.wrapping_add_unsigned(span.size);
    }
    assert_eq!(history.end.reserved, reserved);
}
