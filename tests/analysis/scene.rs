//! Data for drawing any part of a history, compared with a simple scan of every instant.

use crate::support::{fixture, open};
use memviz::Recording;
use memviz::analysis::flame::{self, RangePart};
use memviz::analysis::peak::{PeakOptions, PeakReport};
use memviz::analysis::scene::{Columns, Difference, EventFilter, Flow, Folds, MOST_COLUMNS, Overlay, Part};
use memviz::analysis::scene::{Scene, SceneAxis, Shapes};
use memviz::analysis::timeline::TimelineOptions;
use memviz::facts::device::Device;
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::attribution::OTHER;
use memviz::facts::grouping::filter::Filter;
use memviz::facts::time::when::When;
use memviz::model::Action;
use memviz::replay::{Instant, Metric, NEVER};
use memviz::report::view::Group;
use memviz::report::{Source, timeline};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Complete ones and others, with times and without, of one device and several; one trace of a profiler.
static RECORDINGS: LazyLock<Vec<Recording>> = LazyLock::new(|| {
    let fixtures = [
        "tiny",
        "oom_t201",
        "gpt_late",
        "multi_gpu",
        "expandable_live",
        "cuda_graph_t231",
        "ring",
        "state_only",
        "empty",
    ];
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz".to_owned();
    fixtures.into_iter().map(fixture).chain([trace]).map(|path| open(&path)).collect()
});

/// A part of an axis by its start and its length, from 0 to 1 of the whole and a little beyond.
fn parts() -> impl Strategy<Value = (usize, SceneAxis, f64, f64, usize)> {
    let length = prop_oneof![Just(1.0), 0.0..1.0f64, 0.0..0.01f64];
    let axes = prop::sample::select(vec![SceneAxis::Entry, SceneAxis::Time, SceneAxis::Folded, SceneAxis::Step]);
    (0..1000usize, axes, -0.2..1.1f64, length, 1..300usize)
}

/// A device of the recordings, and a part of it with at least some extent. Edges often fall on an instant.
fn chosen((pick, axis, start, length, columns): (usize, SceneAxis, f64, f64, usize)) -> (Device<'static>, Part) {
    let all: Vec<Device<'static>> =
        RECORDINGS.iter().flat_map(|recording| recording.devices().all().to_vec()).collect();
    let device = all[pick % all.len()].clone();
    let is_there = match axis {
        SceneAxis::Time | SceneAxis::Folded => device.track.has_times(),
        SceneAxis::Step => device.steps().is_ok(),
        SceneAxis::Entry => true,
    };
    let axis = if is_there { axis } else { SceneAxis::Entry };
    let positions = Scene::new(&device).positions(axis);
    let (first, last) = (positions[0], positions[positions.len() - 1]);
    let extent = (last - first).max(1.0);
    let from = (first + start * extent).floor();
    let to = (from + length * extent).ceil().max(from + 1.0);
    (device, Part { axis, from, to, columns })
}

/// For each column, the first instant with the highest value: among those in it, and the one at its start.
fn plain_columns(device: &Device<'_>, metric: Metric, part: &Part) -> Vec<(Instant, i64)> {
    let history = device.history();
    let mut values = vec![history.start.get(metric)];
    device.track.walk(|_, counters| values.push(counters.get(metric)));
    let positions = Scene::new(device).positions(part.axis);
    let edge = |column: usize| part.from + (part.to - part.from) * (column as f64 / part.columns as f64);
    let column = |column: usize| {
        let (left, right) = (edge(column), edge(column + 1));
        let is_last = column + 1 == part.columns;
        let within = |x: f64| left <= x && (x < right || (is_last && x <= right));
        let mut best: Option<(Instant, i64)> = None;
        let mut before = 0;
        for (instant, (&x, &value)) in positions.iter().zip(&values).enumerate() {
            if x < left {
                before = instant;
            }
            if within(x) && best.is_none_or(|(_, highest)| value > highest) {
                best = Some((instant as Instant, value));
            }
        }
        // Nothing starts exactly at the edge: earlier memory is still live there.
        if !positions.contains(&left) {
            let carried = (before as Instant, values[before]);
            best = best.filter(|&(_, highest)| highest > carried.1).or(Some(carried));
        }
        best.unwrap()
    };
    (0..part.columns).map(column).collect()
}

fn recording_of(device: &Device<'_>) -> &'static Recording {
    RECORDINGS.iter().find(|recording| std::ptr::eq(&raw const recording.snapshot, device.snapshot())).unwrap()
}

/// The answer of `memviz peak` about an instant.
fn rows_at(device: &Device<'_>, metric: Metric, by: GroupBy, instant: Instant) -> (u64, Vec<(String, u64)>) {
    let at = Some(instant.checked_sub(1).map_or(When::Start, When::Entry));
    let options = PeakOptions::default().metric(metric).by(by).at(at).devices(vec![device.id()]);
    let mut report = PeakReport::of(&recording_of(device).devices(), &options).unwrap();
    let attribution = report.devices.remove(0).attribution;
    (attribution.total_bytes, attribution.rows.into_iter().map(|row| (row.label, row.bytes)).collect())
}

/// The row of memory from before the recording, which pictures split by category, if a group is a part of it; and the category.
fn part_of_older(label: &str) -> Option<(&'static str, Option<String>)> {
    ["(before the recording", "(not recorded"].into_iter().zip(["(before the recording)", "(not recorded)"]).find_map(
        |(begin, row)| {
            let category = label.strip_prefix(begin)?.trim_end_matches(')').strip_prefix(": ");
            Some((row, category.map(|category| category.replace(' ', "_"))))
        },
    )
}

/// Whether a part of the memory from before the recording is no more than all of it, and than all of its category.
fn is_part(device: &Device<'_>, metric: Metric, instant: Instant, label: &str, bytes: u64) -> bool {
    let Some((row, category)) = part_of_older(label) else { return false };
    let of = |by: GroupBy, label: &str| {
        let (_, rows) = rows_at(device, metric, by, instant);
        rows.into_iter().find(|found| found.0 == label).map_or(0, |found| found.1)
    };
    bytes <= of(GroupBy::Site, row) && category.is_none_or(|category| bytes <= of(GroupBy::Category, &category))
}

proptest! {
    #[test]
    fn columns_have_the_highest_value(choice in parts(), metric in prop::sample::select(&Metric::ALL[..])) {
        let (device, part) = chosen(choice);
        let columns = Scene::new(&device).columns(metric, &part).unwrap();
        let found: Vec<(Instant, i64)> = columns.instants.into_iter().zip(columns.values).collect();
        prop_assert_eq!(found, plain_columns(&device, metric, &part), "device {} {:?}", device.id(), part);
    }

    #[test]
    fn bands_are_the_rows_of_their_instants(
        choice in parts(),
        metric in prop::sample::select(&Metric::ALL[..]),
        pick in 0..GroupBy::ALL.len(),
        top in 0..6usize,
    ) {
        let (device, part) = chosen(choice);
        let devices = recording_of(&device).devices();
        let told = GroupBy::told(&devices).filter(|by| !by.is_inclusive());
        let told: Vec<GroupBy> = told.filter(|&by| metric != Metric::Reserved || by != GroupBy::Category).collect();
        let by = told[pick % told.len()];
        let bands = Scene::new(&device).bands(metric, by, &part, top).unwrap();
        let columns = plain_columns(&device, metric, &part);
        prop_assert_eq!(&bands.instants, &columns.iter().map(|&(instant, _)| instant).collect::<Vec<_>>());
        // Given any of its columns,
        let column = choice.0 % part.columns;
        let (total, rows) = rows_at(&device, metric, by, bands.instants[column]);
        // bands sum to the total, each is the row of that name, and the others are the rest.
        prop_assert_eq!(bands.totals[column], total);
        prop_assert_eq!(bands.bands.iter().map(|band| band.bytes[column]).sum::<u64>(), total);
        for band in bands.bands.iter().filter(|band| band.group.label != OTHER) {
            let named: Vec<u64> = rows.iter().filter(|row| row.0 == band.group.label).map(|row| row.1).collect();
            // A group without bytes has no row, but another stack with the same label may have one.
            let has_no_row = band.bytes[column] == 0 && (named.is_empty() || by == GroupBy::Stack);
            let is_part = || by == GroupBy::Site && is_part(&device, metric, bands.instants[column], &band.group.label, band.bytes[column]);
            prop_assert!(has_no_row || named.contains(&band.bytes[column]) || is_part(), "{} by {by:?}", band.group.label);
        }
    }

    #[test]
    fn shapes_are_the_blocks_stacked(choice in parts(), most in prop_oneof![0..8usize, Just(usize::MAX)]) {
        let (device, part) = chosen(choice);
        let shapes = Scene::new(&device).shapes(Metric::Active, GroupBy::Site, &part, most).unwrap();
        prop_assert!(shapes.shapes.len() <= most);
        let allocations = &device.history().allocations;
        let area = |allocation: usize| {
            let there = |&&instant: &&Instant| allocations[allocation].active_at(instant);
            shapes.instants.iter().filter(there).count() as u128 * u128::from(allocations[allocation].size)
        };
        let shown: HashSet<usize> = shapes.shapes.iter().map(|shape| shape.allocation as usize).collect();
        let least = shown.iter().map(|&allocation| area(allocation)).min();
        for (column, &instant) in shapes.instants.iter().enumerate() {
            // In each column, every live block is either a shape, right above those allocated before, or in the rest.
            let (mut height, mut rest) = (0, 0);
            for (index, allocation) in allocations.iter().enumerate().filter(|(_, block)| block.active_at(instant)) {
                if shown.contains(&index) {
                    prop_assert_eq!(offset(&shapes, index, column), Some(height), "block {} in column {}", index, column);
                    height += allocation.size;
                } else {
                    rest += allocation.size;
                    prop_assert!(least.is_none_or(|least| area(index) <= least), "{} takes more room", index);
                }
            }
            prop_assert_eq!((shapes.rest[column], shapes.totals[column]), (rest, height + rest));
        }
    }

    #[test]
    fn segments_are_stacked_as_blocks_are(choice in parts(), most in prop_oneof![0..8usize, Just(usize::MAX)]) {
        let (device, part) = chosen(choice);
        let mut scene = Scene::new(&device);
        let shapes = scene.shapes(Metric::Reserved, GroupBy::Site, &part, most).unwrap();
        prop_assert!(shapes.shapes.len() <= most);
        let segments = &device.history().segments;
        for (column, &instant) in shapes.instants.iter().enumerate() {
            let there = |index: usize| segments[index].born <= instant && instant < segments[index].gone;
            prop_assert_eq!(shapes.totals[column], (0..segments.len()).filter(|&at| there(at)).map(|at| segments[at].size).sum::<u64>());
            let shown = shapes.shapes.iter().map(|shape| shape.allocation as usize).filter(|&index| there(index));
            let mut bands: Vec<_> = shown.map(|index| (offset(&shapes, index, column).unwrap(), segments[index].size)).collect();
            // They are stacked without gaps, and the rest adds up to the counter.
            bands.sort_unstable();
            let height = bands.into_iter().try_fold(0, |height, (low, size)| (low == height).then_some(low + size));
            prop_assert_eq!(height.unwrap() + shapes.rest[column], shapes.totals[column]);
        }
    }

    #[test]
    fn held_memory_matches_the_live_blocks(choice in parts(), every in 1..4usize) {
        let (device, part) = chosen(choice);
        let mut scene = Scene::new(&device);
        let allocations = &device.history().allocations;
        let wanted: Vec<u32> = (0..allocations.len() as u32).step_by(every).collect();
        let held = scene.held(Metric::Active, &part, &wanted).unwrap();
        let Columns { instants, values } = scene.columns(Metric::Active, &part).unwrap();
        prop_assert_eq!(scene.values(Metric::Active, &instants).unwrap(), values);
        let there = |instant| {
            let live = allocations.iter().step_by(every).filter(|block| block.active_at(instant));
            live.map(|block| block.size).sum::<u64>()
        };
        prop_assert_eq!(held, instants.into_iter().map(there).collect::<Vec<_>>());
    }

    #[test]
    fn differences_sum_up(choice in parts(), from in 0.0..1.0f64, to in 0.0..1.0f64, top in 0..5usize) {
        let (device, _) = chosen(choice);
        let instant = |share: f64| (share * f64::from(device.track.entries())).round() as Instant;
        let (from, to) = (instant(from.min(to)), instant(from.max(to)));
        let by = GroupBy::Site;
        let difference = Scene::new(&device).difference(Metric::Allocated, by, (from, to), Some(top)).unwrap();
        let ends = [from, to].map(|instant| rows_at(&device, Metric::Allocated, by, instant));
        let Flow { start, end, .. } = difference.total;
        prop_assert_eq!((start.bytes, end.bytes), (ends[0].0, ends[1].0));
        let change: i128 = difference.rows.iter().map(|row| row.flow.change()).sum();
        prop_assert_eq!(change, i128::from(ends[1].0) - i128::from(ends[0].0));
        for row in difference.rows.iter().filter(|row| row.label != OTHER) {
            for (bytes, (instant, (_, rows))) in [row.flow.start.bytes, row.flow.end.bytes].into_iter().zip([from, to].into_iter().zip(&ends)) {
                let named = rows.iter().find(|found| found.0 == row.label).map_or(0, |found| found.1);
                prop_assert!(bytes == named || is_part(&device, Metric::Allocated, instant, &row.label, bytes), "{}: {} for {}", row.label, bytes, named);
            }
        }
    }

    #[test]
    fn ranges_sum_up(
        choice in parts(),
        metric in prop::sample::select(&Metric::ALL[..]),
        from in 0.0..1.0f64,
        to in 0.0..1.0f64,
        top in prop_oneof![0..5usize, Just(usize::MAX)],
    ) {
        let (device, _) = chosen(choice);
        let instant = |share: f64| (share * f64::from(device.track.entries())).round() as Instant;
        let (from, to) = (instant(from.min(to)), instant(from.max(to)));
        let scene = Scene::new(&device);
        let Difference { total, rows } = scene.difference(metric, GroupBy::Site, (from, to), Some(top)).unwrap();
        prop_assert_eq!(scene.flow(metric, (from, to)).unwrap(), total);
        // What was live plus what was allocated equals what was freed plus what is live, in total and in each row.
        for Flow { start, allocated, freed, survived, end } in rows.iter().map(|row| row.flow).chain([total]) {
            prop_assert_eq!(start.bytes + allocated.bytes, freed.bytes + end.bytes);
            prop_assert_eq!(start.blocks + allocated.blocks, freed.blocks + end.blocks);
            prop_assert!(survived.bytes <= allocated.bytes && survived.bytes <= end.bytes);
        }
        // Rows sum to the total, and the ends equal the counter.
        let of = |flow: &Flow| [flow.start, flow.allocated, flow.freed, flow.survived, flow.end].map(|part| part.bytes);
        let mut sums = [0; 5];
        for row in &rows {
            sums.iter_mut().zip(of(&row.flow)).for_each(|(sum, bytes)| *sum += bytes);
        }
        prop_assert_eq!(sums, of(&total));
        let ends = [from, to].map(|instant| rows_at(&device, metric, GroupBy::Site, instant).0);
        prop_assert_eq!([total.start.bytes, total.end.bytes], ends);
        if metric == Metric::Allocated {
            prop_assert_eq!(of(&total), plain_flow(&device, from, to));
        }
        // So does what flame graphs of it hold.
        let parts = [(RangePart::Allocated, total.allocated), (RangePart::Freed, total.freed), (RangePart::Survived, total.survived)];
        for (part, amount) in parts {
            let nodes = flame::of_range(&device, metric, (from, to), part);
            prop_assert_eq!((nodes[0].bytes, nodes[0].blocks), (amount.bytes, amount.blocks), "{:?}", part);
            prop_assert_eq!(nodes.iter().map(|node| node.own_bytes).sum::<u64>(), amount.bytes);
        }
    }
}

/// What a range did, block by block: at its start, allocated, freed, survived, at its end.
fn plain_flow(device: &Device<'_>, from: Instant, to: Instant) -> [u64; 5] {
    let mut sums = [0; 5];
    for block in &device.history().allocations {
        let within = |instant: Instant| from < instant && instant <= to;
        let (is_new, is_freed) = (within(block.born), within(block.freed));
        let there = |instant: Instant| block.born <= instant && instant < block.freed;
        for (sum, counts) in sums.iter_mut().zip([there(from), is_new, is_freed, is_new && there(to), there(to)]) {
            *sum += if counts { block.size } else { 0 };
        }
    }
    sums
}

/// The height of a shape in a column.
fn offset(shapes: &Shapes, allocation: usize, column: usize) -> Option<u64> {
    let shape = shapes.shapes.iter().find(|shape| shape.allocation as usize == allocation)?;
    let points = &shapes.points[shape.points.clone()];
    let begun = points.iter().rev().find(|&&(from, _)| from as usize <= column);
    begun.filter(|_| column < shape.end as usize).map(|&(_, offset)| offset)
}

#[test]
fn impossible_parts_are_refused() {
    let recording = open(&fixture("oom_t201"));
    let devices = recording.devices();
    let mut scene = Scene::new(&devices.all()[0]);
    let part = Part { axis: SceneAxis::Entry, from: 0.0, to: 100.0, columns: 10 };
    let refused = |scene: &Scene<'_>, part| scene.columns(Metric::Allocated, &part).unwrap_err().to_string();
    let backwards = Part { from: 100.0, to: 0.0, ..part };
    assert_eq!(refused(&scene, backwards), "expected a part that starts before it ends, found 100 to 0");
    assert!(refused(&scene, Part { to: f64::NAN, ..part }).ends_with("found 0 to NaN"));
    assert!(refused(&scene, Part { columns: MOST_COLUMNS + 1, ..part }).starts_with("expected 1 to 16384 columns"));
    assert!(refused(&scene, Part { axis: SceneAxis::Time, ..part }).contains("has no times"));
    let overlap = scene.bands(Metric::Allocated, GroupBy::Function, &part, 3).unwrap_err();
    assert_eq!(overlap.to_string(), "groups by function overlap, so they cannot be stacked");
    assert!(scene.shapes(Metric::Reserved, GroupBy::Category, &part, 3).is_err());
    assert!(scene.held(Metric::Reserved, &part, &[]).is_err());
    let last = scene.device().track.entries();
    let missing = scene.difference(Metric::Allocated, GroupBy::Site, (0, last + 1), None).unwrap_err();
    assert!(missing.to_string().ends_with(&format!("there is no instant {}", last + 1)), "{missing}");
    let backwards = scene.difference(Metric::Allocated, GroupBy::Site, (last, 0), None).unwrap_err();
    let expected = format!("expected a range that starts before it ends, found instants {last} to 0");
    assert_eq!(backwards.to_string(), expected);
}

/// Backward has no frames of the program, and frees happen elsewhere than allocations.
#[test]
fn entries_are_found_by_the_stacks_of_what_they_allocate_and_free() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let scene = Scene::new(&devices.all()[0]);
    let softmax = Filter::new(&["softmax".to_owned()], &[]).unwrap();
    let found = scene.search(&softmax);
    let events = |action| {
        let filter = EventFilter::default().actions(vec![action]).frames(Some(softmax.clone()));
        scene.events(&filter)
    };
    let history = scene.device().history();
    let of = |index: &u32| &history.allocations[*index as usize];
    // Each instant is that after the entry.
    let allocated: Vec<u32> = found.iter().map(|index| of(index).born - 1).collect();
    assert_eq!((found.len(), events(Action::Alloc)), (96, allocated));
    let freed: HashSet<u32> =
        found.iter().filter(|index| of(index).freed != NEVER).map(|index| of(index).freed - 1).collect();
    assert!(!freed.is_empty());
    assert!(freed.is_subset(&events(Action::FreeRequested).into_iter().collect()));
}

#[test]
fn steps_are_as_long_as_any_other_on_their_axis() {
    for name in ["gpt_train", "gpt_train_ckpt"] {
        let recording = open(&fixture(name));
        let device = recording.devices().get(0).unwrap().clone();
        let positions = Scene::new(&device).positions(SceneAxis::Step);
        assert!(positions.is_sorted() && positions[0] == 0.0);
        let steps = device.steps().unwrap();
        assert!(steps.len() > 1);
        let starts = [0].into_iter().chain(steps.ends.iter().copied());
        for (step, (from, &to)) in starts.zip(&steps.ends).enumerate() {
            // Its first entry leads to the instant after it, and is the start of the step.
            assert!((positions[from as usize + 1] - 1e6 * step as f64).abs() < 1e-6, "{name}: {step}");
            assert!(positions[to as usize] < 1e6 * (step + 1) as f64);
        }
    }
    let none = open(&fixture("tiny"));
    let scene = Scene::new(none.devices().get(0).unwrap());
    let part = Part { axis: SceneAxis::Step, from: 0.0, to: 1e6, columns: 10 };
    assert!(scene.columns(Metric::Allocated, &part).unwrap_err().to_string().contains("no steps"));
}

/// Each step is compared in one column, so that a scan of its entries shows how far it is from the middle of all.
#[test]
fn steps_are_compared_with_the_median_step() {
    let mut differ = 0;
    for name in ["gpt_train", "leak", "unet"] {
        let recording = open(&fixture(name));
        let device = recording.devices().get(0).unwrap().clone();
        let steps = device.steps().unwrap();
        let mut counters = vec![0];
        device.track.walk(|_, after| counters.push(after.get(Metric::Allocated)));
        counters[0] = device.history().start.get(Metric::Allocated);
        let starts = [0].into_iter().chain(steps.ends.iter().copied());
        // A step starts with the instant after its first entry, and with the state before the recording.
        let highest = |(from, &to): (u32, &u32)| {
            let first = if from == 0 { 0 } else { from as usize + 1 };
            let after = (to as usize + 1).min(counters.len() - 1);
            let is_last_included = Some(&to) != steps.ends.last() || to < device.track.entries();
            counters[first..=after].iter().take(after - first + usize::from(is_last_included)).copied().max().unwrap()
        };
        let tops: Vec<i64> = starts.zip(&steps.ends).map(highest).collect();
        let mut sorted = tops.clone();
        sorted.sort_unstable();
        let median = sorted[(sorted.len() - 1) / 2];
        let expected = Overlay {
            lowest: vec![sorted[0]],
            median: vec![median],
            highest: vec![sorted[sorted.len() - 1]],
            above: tops.iter().map(|top| (top - median).max(0)).collect(),
            below: tops.iter().map(|top| (median - top).max(0)).collect(),
        };
        let scene = Scene::new(&device);
        assert_eq!(scene.overlay(Metric::Allocated, 1).unwrap(), expected, "{name}");
        let fine = scene.overlay(Metric::Allocated, 300).unwrap();
        assert_eq!(fine.highest.iter().max(), expected.highest.iter().max(), "{name}");
        let ordered = |((low, middle), high): ((&i64, &i64), &i64)| low <= middle && middle <= high;
        assert!(fine.lowest.iter().zip(&fine.median).zip(&fine.highest).all(ordered), "{name}");
        differ += fine.above.iter().zip(&fine.below).filter(|(above, below)| **above > 0 || **below > 0).count();
    }
    assert!(differ > 0);
}

#[test]
fn folds_shorten_periods_without_entries_on_any_device() {
    let mut found = 0;
    for recording in RECORDINGS.iter().chain([&open(&fixture("leak"))]) {
        let devices = recording.devices();
        let folds = Folds::of(&devices);
        found += folds.periods.len();
        for scene in Scene::all(&devices) {
            let (times, folded) = (scene.positions(SceneAxis::Time), scene.positions(SceneAxis::Folded));
            assert!(folded.is_sorted());
            for (&time, &position) in times.iter().zip(&folded) {
                assert!(
                    !folds.periods.iter().any(|&(from, to)| from < time && time < to),
                    "an entry at {time} in a fold"
                );
                let before = folds.periods.iter().filter(|&&(_, to)| to <= time);
                let expected = before.fold(time, |position, (from, to)| position - (to - from) + folds.length);
                assert!((position - expected).abs() < 1e-3 * expected.max(1.0), "{position} instead of {expected}");
            }
        }
    }
    assert!(found > 0);
}

#[test]
fn a_phase_has_the_same_color_in_the_page_as_in_the_picture() {
    let recording = open(&fixture("gpt_train"));
    let devices = recording.devices();
    let mut scene = Scene::new(devices.get(0).unwrap());
    let end = f64::from(scene.device().track.entries());
    let part = Part { axis: SceneAxis::Entry, from: 0.0, to: end, columns: 100 };
    let bands = scene.bands(Metric::Allocated, GroupBy::Phase, &part, 16).unwrap().bands;
    let colors: HashSet<String> = bands.iter().map(|band| Group::from(&band.group).light).collect();
    assert_eq!(colors.len(), bands.len());
    let report =
        recording.timeline(&TimelineOptions::default().peak(PeakOptions::default().by(GroupBy::Phase))).unwrap();
    let mut svg = Vec::new();
    timeline::draw(Source { path: "x", recording: &recording }, &report).write(&mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    for color in colors {
        assert!(svg.contains(&color), "{color}");
    }
}
