//! Any entries, looked at as the page of `memviz view` does, and cut to a part that is written and read back.

use super::entries;
use arbitrary::Arbitrary;
use memviz::analysis::advice::{Attempt, Simulate, WhatIf};
use memviz::analysis::diff::Requests;
use memviz::analysis::excerpt::{Window, excerpt};
use memviz::analysis::flame::{self, FlameOptions, RangePart};
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::scene::{Amount, Flow, Part, Scene, SceneAxis};
use memviz::facts::grouping::GroupBy;
use memviz::facts::time::when::When;
use memviz::input::ReadOptions;
use memviz::replay::Metric;
use memviz::report::{Source, flamegraph, view};
use memviz::{Error, Recording};
use std::collections::BTreeMap;
use std::io::Cursor;

/// What is looked at, and how.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    recording: entries::Plan,
    metric: u8,
    group: u8,
    along_entries: bool,
    /// Where the view begins and ends, as parts of 255.
    ends: (u8, u8),
    columns: u8,
    top: u8,
}

/// Asks what the page asks, and cuts out what it shows.
pub fn run(plan: &Plan) {
    let recording = plan.recording.recording();
    let devices = recording.devices();
    let source = Source { path: "snapshot.pickle", recording: &recording };
    let cures: BTreeMap<_, _> =
        devices.all().iter().map(|device| (device.id(), WhatIf::of(device, Simulate::All))).collect();
    let _ = (view::figures(source, &devices), view::findings(&devices, &cures));
    let metric = Metric::ALL[usize::from(plan.metric) % Metric::ALL.len()];
    let by = GroupBy::ALL[usize::from(plan.group) % GroupBy::ALL.len()];
    for device in devices.all() {
        let last = device.track.entries();
        let at = |part: u8| u32::try_from(u64::from(last) * u64::from(part) / 255).unwrap_or(last);
        let (from, to) = (at(plan.ends.0.min(plan.ends.1)), at(plan.ends.0.max(plan.ends.1)));
        let mut scene = Scene::new(device);
        let axis = if plan.along_entries { SceneAxis::Entry } else { SceneAxis::Time };
        let positions = scene.positions(axis);
        let position = |instant: u32| positions.get(instant as usize).copied().unwrap_or(0.0);
        let part = Part { axis, from: position(from), to: position(to), columns: plan.columns.into() };
        let steps = Part { axis: SceneAxis::Step, from: 0.0, to: 1e6 + f64::from(plan.ends.1), ..part };
        let _ = (scene.positions(SceneAxis::Step), scene.columns(metric, &steps));
        let top = plan.top.into();
        let _ = (scene.bands(metric, by, &part, top), scene.shapes(metric, by, &part, top));
        let _ = (scene.difference(metric, by, (from, to), Some(top)), scene.held(metric, &part, &[0, 1, 5]));
        if let Ok(Flow { start, allocated, freed, end, .. }) = scene.flow(metric, (from, to)) {
            let sum = |one: Amount, other: Amount| one.bytes.wrapping_add(other.bytes);
            assert_eq!(sum(start, allocated), sum(freed, end), "{metric:?} from {from} to {to}");
        }
        let _ = RangePart::ALL.map(|part| flame::of_range(device, metric, (from, to), part));
        let unchanged = cures[&device.id()].over_time(metric, &Attempt::default());
        if let (Ok(columns), Ok(Some(curve))) = (scene.instants(&part), unchanged) {
            assert!(curve.columns(&columns).into_iter().flatten().all(|bytes| bytes <= curve.peak()));
        }
        assert_eq!(Requests::of(device).apart(&Requests::of(device)), None);
        let _ = (view::annotations(device), view::steps(device), view::frames(device, &["model.py:10".to_owned()]));
        let _ = (view::segments(device, to), view::allocation(device, top));

        let when = from.checked_sub(1).map_or(When::Start, When::Entry);
        let peak = PeakOptions::default().metric(metric).at(Some(when)).devices(vec![device.id()]);
        if let Ok(report) = recording.flame(&FlameOptions::default().peak(peak)) {
            let _ = report.devices.iter().map(|device| view::flame(&device.nodes)).collect::<Vec<_>>();
            flamegraph::draw(source, &report).write(&mut Vec::new()).expect("there is room");
        }
        cut(&scene, &recording, Window { device: device.id(), from, to });
    }
}

/// A part that is cut out, written and read, counts at its ends what the whole does there.
fn cut(scene: &Scene<'_>, whole: &Recording, window: Window) {
    // A file that is cut off is not cut again, and says so as a whole.
    if whole.snapshot.traces.iter().any(|trace| trace.truncated) {
        return;
    }
    let Ok(part) = excerpt(&whole.devices(), &[window]) else { return };
    let mut file = Vec::new();
    memviz::wire::snapshot::write(&part, &mut file).expect("there is room");
    let read = match Recording::read(Cursor::new(file), &ReadOptions::default()) {
        // Entries that were made up may have sizes that no file has.
        Err(Error::Limit { .. }) => return,
        read => read.expect("what is written is read"),
    };
    super::check(&read.snapshot, &read.histories);
    let devices = read.devices();
    let Some(device) = devices.get(window.device) else { return };
    assert_eq!(device.track.entries(), window.to - window.from);
    let cut = Scene::new(device);
    for metric in Metric::ALL {
        let there = cut.values(metric, &[0, window.to - window.from]).ok();
        assert_eq!(there, scene.values(metric, &[window.from, window.to]).ok(), "{metric:?} of {window:?}");
    }
}
