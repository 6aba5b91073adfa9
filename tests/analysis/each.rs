//! `memviz peak --each`: the peak of every step, phase and annotation, against models that look at one range at a time.
#![cfg(feature = "cli")]

use crate::support::allocator_model::Expandable;
use crate::support::programs::{EPOCH, plain_or_expandable, programs};
use crate::support::{fixture, memviz};
use memviz::analysis::info::InfoReport;
use memviz::analysis::peak::each::{Each, EachOptions, RangePeak, RangePeaks};
use memviz::analysis::peak::{PeakOptions, PeakReport};
use memviz::facts::device::Devices;
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::attribution::Row;
use memviz::facts::time::when::When;
use memviz::facts::training::steps::StepSource;
use memviz::model::{Annotation, Snapshot, Stage};
use memviz::replay::{Bound, Counters, History, Instant, Metric, Track, replay};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::Value;
use std::collections::BTreeMap;

/// A range of a random program: which of a few names, its start, its length, and which of its ends are recorded.
type RangePlan = (usize, i64, i64, u8);

fn plans() -> impl Strategy<Value = Vec<RangePlan>> {
    vec((0..3usize, -5..400i64, 0..200i64, 0..6u8), 1..12)
}

/// Writes ranges into a snapshot. One in six lacks its start, one in six its end.
fn annotate(snapshot: &mut Snapshot, plans: &[RangePlan]) {
    let mut events: Vec<(i64, Stage, usize)> = Vec::new();
    for &(name, start, length, ends) in plans {
        if ends != 0 {
            events.push((start, Stage::Start, name));
        }
        if ends != 1 {
            events.push((start + length, Stage::End, name));
        }
    }
    events.sort_by_key(|&(time, stage, _)| (time, stage == Stage::End));
    for (time, stage, name) in events {
        let name = snapshot.strings.intern(["inner", "outer 7", "a\u{1b}b"][name]);
        snapshot.annotations.push(Annotation { stage, name, device: 0, time_us: EPOCH + time });
    }
}

fn ask(snapshot: &Snapshot, histories: &[History], options: &PeakOptions) -> Vec<(PeakReport, usize)> {
    let devices = 0..histories.len();
    let one = |device: usize| {
        let options = options.clone().devices(vec![histories[device].device]);
        Some((PeakReport::of(&Devices::of(snapshot, histories), &options).ok()?, device))
    };
    devices.filter_map(one).collect()
}

fn each(each: Each, top: usize) -> EachOptions {
    EachOptions::new(each).top(top)
}

/// Every instant of a device with its counters.
fn all_counters(snapshot: &Snapshot, history: &History) -> Vec<Counters> {
    let mut all = vec![history.start];
    Track::new(snapshot, history).walk(|_, counters| all.push(*counters));
    all
}

/// The first instant with the most bytes from one to another.
fn highest(all: &[Counters], metric: Metric, from: Instant, to: Instant) -> Instant {
    let instants = from..=to;
    instants.rev().max_by_key(|&instant| all[instant as usize].get(metric)).unwrap()
}

proptest! {
    #[test]
    fn every_range_has_the_peak_that_a_look_at_it_alone_finds(
        program in programs(prop_oneof![plain_or_expandable(), Just(Expandable::OutsidePrivatePools)], false),
        plans in plans(),
        cut in vec(0..=500usize, 3),
        metric in prop::sample::select(Metric::ALL.to_vec()),
        by in prop::sample::select(vec![GroupBy::Site, GroupBy::Stack, GroupBy::Function, GroupBy::Stream]),
        top in 0..4usize,
        window in prop::option::of((0..50u32, 0..50u32)),
    ) {
        let mut snapshot = program.run().cut(&cut).snapshot();
        annotate(&mut snapshot, &plans);
        let histories = replay(&snapshot);
        let (from, to) = match window {
            Some((from, length)) => (Some(When::Entry(from)), Some(When::Entry(from + length))),
            None => (None, None),
        };
        let options = PeakOptions::default().metric(metric).by(by).from(from).to(to).each(Some(each(Each::Annotation(None), top)));
        for (report, device) in ask(&snapshot, &histories, &options) {
            let history = &histories[device];
            let all = all_counters(&snapshot, history);
            let peak = &report.devices[0];
            let ranges = peak.ranges.as_ref().unwrap();
            let window = peak.window.unwrap_or((0, history.entries()));
            prop_assert!(ranges.left_out.is_none());
            for range in &ranges.ranges {
                prop_assert!(window.0 <= range.from && range.from <= range.to && range.to <= window.1);
                prop_assert_eq!(range.peak.instant, highest(&all, metric, range.from, range.to));
                prop_assert_eq!(range.at, all[range.peak.instant as usize]);
                same_leaders(&snapshot, &histories, &options, history, range, top)?;
            }
            covers(ranges, peak.instant, window)?;
            same_extents(&snapshot, history, ranges, window)?;
        }
    }
}

/// The groups of a range are those of its peak alone.
fn same_leaders(
    snapshot: &Snapshot,
    histories: &[History],
    options: &PeakOptions,
    history: &History,
    range: &RangePeak,
    top: usize,
) -> TestCaseResult {
    let at = range.peak.entry.map_or(When::Start, When::Entry);
    let alone =
        options.clone().at(Some(at)).from(None).to(None).each(None).top(Some(top)).devices(vec![history.device]);
    let alone = &PeakReport::of(&Devices::of(snapshot, histories), &alone).unwrap().devices[0].attribution;
    prop_assert_eq!(range.total_bytes, alone.total_bytes);
    let fields = |rows: &[Row]| -> Vec<(String, u64, u64, bool)> {
        rows.iter().map(|row| (row.label.clone(), row.bytes, row.blocks, row.inferred)).collect()
    };
    prop_assert_eq!(fields(&range.top), fields(&alone.rows));
    Ok(())
}

/// The overall highest instant is in a range, or in the one period outside all ranges.
fn covers(ranges: &RangePeaks, highest: Instant, window: (Instant, Instant)) -> TestCaseResult {
    let within = |range: &&RangePeak| range.from <= highest && highest <= range.to;
    let (outside, inside): (Vec<_>, Vec<_>) = ranges.ranges.iter().partition(|range| range.is_outside());
    if inside.iter().any(within) {
        prop_assert!(outside.is_empty());
        return Ok(());
    }
    prop_assert_eq!(outside.len(), 1);
    prop_assert_eq!(outside[0].peak.instant, highest);
    for instant in outside[0].from + 1..outside[0].to {
        prop_assert!(!inside.iter().any(|range| range.from <= instant && instant <= range.to));
    }
    let borders = |instant| {
        instant == window.0 || instant == window.1 || inside.iter().any(|it| it.from == instant || it.to == instant)
    };
    prop_assert!(borders(outside[0].from) && borders(outside[0].to));
    Ok(())
}

/// Each annotation that overlaps the window is listed, from the entry before its start to the last one before its end.
fn same_extents(
    snapshot: &Snapshot,
    history: &History,
    ranges: &RangePeaks,
    window: (Instant, Instant),
) -> TestCaseResult {
    let times = &snapshot.entries.times()[history.rows.clone()];
    let mut wanted: Vec<(String, Instant, Instant)> = Vec::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for range in &memviz::facts::time::annotations::Annotations::of(snapshot).ranges {
        let name = snapshot.strings.get(range.name);
        let number = numbers.entry(name).or_default();
        *number += 1;
        let label = if *number == 1 { name.to_owned() } else { format!("{name}#{number}") };
        let before = |limit: i64| times.iter().filter(|&&time| time < limit).count() as Instant;
        let (from, to) = (before(range.start_us), before(range.end_us));
        let (first, last) = (times[0], times[times.len() - 1]);
        let (cut_from, cut_to) = (from.max(window.0), to.min(window.1));
        let has_entries = cut_from < cut_to || (from == to && cut_from == cut_to);
        if range.end_us > first && range.start_us <= last && has_entries {
            wanted.push((label, cut_from, cut_to));
        }
    }
    let found = ranges.ranges.iter().filter(|range| !range.is_outside());
    let mut found: Vec<_> = found.map(|range| (range.label.clone(), range.from, range.to)).collect();
    wanted.sort();
    found.sort();
    prop_assert_eq!(found, wanted);
    Ok(())
}

// ------------------------------------------------------------------ real recordings

/// The ranges of a device in JSON.
#[track_caller]
fn ranges(args: &[&str]) -> Vec<Value> {
    let answer = memviz(&[&["peak", "--format", "json", "-q"], args].concat()).json();
    answer["devices"][0]["ranges"].as_array().unwrap().clone()
}

#[test]
fn a_step_has_the_peak_that_its_window_has() {
    let path = fixture("gpt_train");
    for metric in ["allocated", "reserved"] {
        let steps = ranges(&[&path, "--each", "step", "--metric", metric]);
        let labels: Vec<&str> = steps.iter().map(|step| step["label"].as_str().unwrap()).collect();
        assert_eq!(labels, ["step_0", "step_1", "step_2", "step_3"]);
        for step in &steps {
            let name = format!("annotation:{}", step["label"].as_str().unwrap());
            let alone = ["peak", &path, "--from", &name, "--to", &name, "--metric", metric, "--format", "json"];
            let alone = &memviz(&alone).json()["devices"][0];
            assert_eq!(step["peak"], alone["peak"]);
            assert_eq!(
                (&step["from_entry"], &step["to_entry"]),
                (&alone["window"]["from_entry"], &alone["window"]["to_entry"])
            );
            assert_eq!(step["total_bytes"], alone["attribution"]["total_bytes"]);
            for (row, wanted) in
                step["top"].as_array().unwrap()[..3].iter().zip(alone["attribution"]["rows"].as_array().unwrap())
            {
                assert_eq!(
                    (&row["label"], &row["bytes"], &row["blocks"]),
                    (&wanted["label"], &wanted["bytes"], &wanted["blocks"])
                );
            }
        }
    }
}

#[test]
fn phases_cover_a_recording_and_one_of_them_holds_the_peak() {
    for name in ["gpt_train", "resnet_train", "optpeak"] {
        let path = fixture(name);
        let answer = memviz(&["peak", &path, "--each", "phase", "--format", "json"]).json();
        let device = &answer["devices"][0];
        let phases = device["ranges"].as_array().unwrap();
        let mut next = Value::Null;
        for phase in phases {
            assert_eq!(phase["from_entry"], next, "{name}: a gap before {}", phase["label"]);
            next = phase["to_entry"].clone();
        }
        let highest = phases.iter().map(|phase| phase["peak"]["allocated_bytes"].as_i64().unwrap()).max();
        assert_eq!(highest, device["peak"]["allocated_bytes"].as_i64(), "{name}");
        let text = memviz(&["peak", &path, "--each", "phase"]).stdout;
        for phase in ["forward", "backward", "optimizer"] {
            // Peak and its unit, bar, entry, time and its unit, name.
            let name_of = |line: &str| Some(line.split_whitespace().nth(6)?.split('#').next()? == phase);
            let is_row = |line: &&str| line.contains('█') && name_of(line) == Some(true);
            assert_eq!(text.lines().filter(is_row).count(), 1, "{name}: {text}");
        }
    }
}

#[test]
fn inferred_ranges_say_so() {
    let steps = memviz(&["peak", &fixture("leak_slow"), "--each", "step", "--format", "json"]).json();
    let device = &steps["devices"][0];
    assert_eq!(device["each"]["step_source"], "annotations");
    assert!(device["ranges"].as_array().unwrap().iter().all(|step| step["inferred"] == false));
    let phases = ranges(&[&fixture("resnet_train"), "--each", "phase"]);
    assert!(phases.iter().any(|phase| phase["inferred"] == true));
    let text = memviz(&["peak", &fixture("resnet_train"), "--each", "phase"]).stdout;
    assert!(text.contains("* next to a phase name: inferred"), "{text}");
}

#[test]
fn nested_annotations_are_ranges_of_their_own_and_names_pick_some() {
    let path = fixture("gpt_train");
    let all = ranges(&[&path, "--each", "annotation"]);
    let some = ranges(&[&path, "--each", "annotation:^(forward|backward)$"]);
    assert!(some.len() >= 8 && some.len() < all.len(), "{} of {}", some.len(), all.len());
    let labels: Vec<&str> = some.iter().map(|range| range["label"].as_str().unwrap()).collect();
    assert!(labels.contains(&"forward") && labels.contains(&"backward#4"), "{labels:?}");
    for range in &some {
        let label = range["label"].as_str().unwrap();
        if label == "(outside)" {
            continue;
        }
        assert!(all.iter().any(|other| other == range), "{label} differs beside others");
        // A label is what `--from annotation:` takes.
        let name = format!("annotation:{label}");
        let alone = memviz(&["peak", &path, "--from", &name, "--to", &name, "--format", "json"]).json();
        assert_eq!(range["peak"], alone["devices"][0]["peak"], "{label}");
    }
}

#[test]
fn missing_facts_are_one_line_with_a_next_step() {
    memviz(&["peak", &fixture("tiny"), "--each", "step"]).expect_error("record_function(f\"step_{n}\")");
    memviz(&["peak", &fixture("no_history"), "--each", "phase"]).expect_error("record_function(\"forward\")");
    memviz(&["peak", &fixture("random_sizes"), "--each", "annotation"]).expect_error("has no annotations");
    memviz(&["peak", &fixture("gpt_train"), "--each", "annotation:frobnicate"]).expect_error("\"frobnicate\"");
    memviz(&["peak", &fixture("gpt_train"), "--each", "annotation:("]).expect_error("regular expression");
    memviz(&["peak", &fixture("gpt_train"), "--each", "layer"]).expect_error("step, phase, annotation");
    memviz(&["peak", &fixture("gpt_train"), "--each", "step", "--at", "end"]).expect_error("--at");
    memviz(&["timeline", &fixture("tiny"), "--each", "step"]).expect_error("no steps found");
}

#[test]
fn a_window_and_filters_go_for_every_range() {
    let path = fixture("gpt_train");
    let steps = ranges(&[&path, "--each", "step", "--from", "annotation:step_1", "--to", "annotation:step_2"]);
    let labels: Vec<&str> = steps.iter().map(|step| step["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["step_1", "step_2"]);
    memviz(&["peak", &path, "--each", "step", "--to", "entry:1"]).expect_error("has no step between --from and --to");
    let steps = ranges(&[&path, "--each", "step", "--exclude", "minigpt", "--top", "1"]);
    assert!(steps.iter().all(|step| step["top"][0]["label"] == "(filtered out)"), "{steps:?}");
}

#[test]
fn the_part_outside_of_ranges_that_holds_the_peak_is_a_row() {
    // Memory is highest in backward, so ranges of the optimizer do not cover it.
    let path = fixture("gpt_train");
    let found = ranges(&[&path, "--each", "annotation:^forward$"]);
    let outside: Vec<&Value> = found.iter().filter(|range| range["label"] == "(outside)").collect();
    assert_eq!(outside.len(), 1);
    let whole = memviz(&["peak", &path, "--format", "json"]).json();
    assert_eq!(outside[0]["peak"], whole["devices"][0]["peak"]);
}

#[test]
fn csv_has_a_line_for_each_range() {
    let path = fixture("gpt_train");
    let csv = memviz(&["peak", &path, "--each", "annotation", "--format", "csv"]).stdout;
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let records: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let json = ranges(&[&path, "--each", "annotation"]);
    assert_eq!(records.len(), json.len());
    for (record, range) in records.iter().zip(&json) {
        assert_eq!(record["label"], range["label"].as_str().unwrap());
        assert_eq!(record["peak_bytes"], range["peak"]["allocated_bytes"].to_string());
        assert_eq!(record["entry"], range["peak"]["entry"].to_string());
        assert_eq!(record["largest"], range["top"][0]["label"].as_str().unwrap());
        assert_eq!(record["largest_bytes"], range["top"][0]["bytes"].to_string());
    }
}

#[test]
fn a_timeline_marks_the_peak_of_each_range() {
    let path = fixture("gpt_train");
    let steps = ranges(&[&path, "--each", "step"]);
    let svg = memviz(&["timeline", &path, "--each", "step", "--x", "entry"]).stdout;
    for step in &steps {
        let mark = format!("data-range-peak-bytes=\"{}\"", step["peak"]["allocated_bytes"]);
        assert!(svg.contains(&mark), "{}", step["label"]);
    }
    assert_eq!(svg.matches("data-range-peak-bytes").count(), steps.len());
    assert!(svg.contains("peak of each step"));
    assert!(!memviz(&["timeline", &path]).stdout.contains("data-range-peak-bytes"));
}

// ------------------------------------------------------------------ many ranges

/// A recording of `steps` steps, one entry each, in which memory rises and falls.
fn many(steps: usize) -> (Snapshot, Vec<History>) {
    use memviz::model::trace_entry::TraceEntry;
    use memviz::model::{Action, DeviceTrace, EntryContext, StackId};
    let mut snapshot = Snapshot::default();
    snapshot.notes.has_times = true;
    let context = snapshot.contexts.intern(EntryContext::default());
    let mut entry = |action, addr, size, time_us| {
        snapshot.entries.push(TraceEntry { action, addr, size, time_us, stack: StackId::EMPTY, context });
    };
    entry(Action::SegmentAlloc, 1 << 40, 1 << 30, 0);
    for step in 0..steps as i64 {
        // Every third step allocates more than those around it.
        let size = if step % 3 == 1 { 8 << 20 } else { 2 << 20 };
        entry(Action::Alloc, 1 << 40, size, 10 * step + 1);
        entry(Action::FreeRequested, 1 << 40, size, 10 * step + 2);
        entry(Action::FreeCompleted, 1 << 40, size, 10 * step + 3);
    }
    let rows = 0..snapshot.entries.len();
    snapshot.traces.push(DeviceTrace { device: 0, rows, truncated: false });
    for step in 0..steps as i64 {
        let name = snapshot.strings.intern(&format!("step_{step}"));
        for (stage, time_us) in [(Stage::Start, 10 * step + 1), (Stage::End, 10 * step + 9)] {
            snapshot.annotations.push(Annotation { stage, name, device: 0, time_us });
        }
    }
    let histories = replay(&snapshot);
    (snapshot, histories)
}

#[test]
fn time_within_nested_ranges_of_one_name_counts_once() {
    let (mut snapshot, histories) = many(1);
    let name = snapshot.strings.intern("nested");
    for (stage, time_us) in [(Stage::Start, 1), (Stage::Start, 2), (Stage::End, 4), (Stage::End, 9)] {
        snapshot.annotations.push(Annotation { stage, name, device: 0, time_us });
    }
    let report = InfoReport::of(&Devices::of(&snapshot, &histories), &[]).unwrap();
    let nested = report.annotations.iter().find(|summary| summary.name == "nested").unwrap();
    assert_eq!((nested.count, nested.total_us), (2, 8));
}

#[test]
fn many_ranges_are_listed_up_to_a_limit_and_the_rest_is_counted() {
    let most = memviz::analysis::peak::each::MAX_RANGES;
    let (snapshot, histories) = many(most + most / 2);
    let options = PeakOptions::default().each(Some(each(Each::Annotation(None), 1)));
    let report = PeakReport::of(&Devices::of(&snapshot, &histories), &options).unwrap();
    let ranges = report.devices[0].ranges.as_ref().unwrap();
    assert_eq!(ranges.ranges.len(), most);
    assert_eq!(ranges.left_out, Some((most / 2, 2 << 20)));
    let high = ranges.ranges.iter().filter(|range| range.at.allocated == 8 << 20).count();
    assert_eq!(high, most / 2, "the highest are all there");
    assert!(ranges.ranges.is_sorted_by_key(|range| range.from));
    let options = PeakOptions::default().each(Some(each(Each::Step, 1)));
    let report = PeakReport::of(&Devices::of(&snapshot, &histories), &options).unwrap();
    let steps = report.devices[0].ranges.as_ref().unwrap();
    assert!(matches!(&steps.steps.as_ref().unwrap().source, StepSource::Annotations(name) if name == "step_N"));
    assert!(steps.ranges.iter().all(|step| step.label.starts_with("step_")));
}

#[test]
fn ranges_that_were_recorded_in_part_are_bounds() {
    let (mut snapshot, _) = many(4);
    snapshot.annotations.remove(0);
    snapshot.annotations.pop();
    let histories = replay(&snapshot);
    let options = PeakOptions::default().each(Some(each(Each::Annotation(None), 1)));
    let report = PeakReport::of(&Devices::of(&snapshot, &histories), &options).unwrap();
    let ranges = &report.devices[0].ranges.as_ref().unwrap().ranges;
    let bounds: Vec<_> = ranges.iter().map(|range| range.bound).collect();
    assert_eq!(bounds, [Some(Bound::Lower), None, None, Some(Bound::Lower)]);
}
