//! Memory weighted by time, and memory that waits for other streams, compared with the counters.

use crate::support::{FIXTURES, assert_none, cases, fixture, memviz, open};
use memviz::analysis::blocks::BlocksOptions;
use memviz::analysis::flame::FlameOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::facts::grouping::GroupBy;
use memviz::replay::{Metric, Track};

/// The time integral of a counter over the whole recording, and its duration.
fn integral(track: Track<'_>, metric: Metric) -> (u128, u128) {
    let times = track.times();
    let time = |instant: u32| times[(instant as usize).saturating_sub(1)];
    let (mut sum, mut last) = (0, (0, track.history.start));
    track.walk(|instant, counters| {
        sum += last.1.get(metric) as u128 * (time(instant) - time(last.0)) as u128;
        last = (instant, *counters);
    });
    (sum, (times[times.len() - 1] - times[0]) as u128)
}

#[test]
fn the_mean_of_all_blocks_is_that_of_the_counter() {
    let mut problems = Vec::new();
    let mut compared = 0;
    for case in cases(FIXTURES).into_iter().filter(|case| case.name != "big_1m") {
        let recording = open(&case.path);
        for metric in Metric::ALL {
            let options = PeakOptions::default().metric(metric).by(GroupBy::Site).mean(true);
            let Ok(report) = recording.peak(&options) else { continue };
            let flames = recording.flame(&FlameOptions::default().peak(options)).unwrap().devices;
            for (device, flame) in report.devices.iter().zip(&flames) {
                let history = recording.history(device.device).unwrap();
                if device.anomalies.total() > 0 || history.completeness.no_free_requested {
                    continue;
                }
                compared += 1;
                let track = Track::new(&recording.snapshot, history);
                let (sum, micros) = integral(track, metric);
                let total = device.attribution.total_bytes;
                assert_eq!(u128::from(device.attribution.mean_over_us.unwrap()), micros, "{}", case.path);
                // A weight is rounded down, each by less than a millionth of a byte.
                if u128::from(total).abs_diff(sum / micros) > 1 {
                    problems.push(format!("{} {}: {total}, not {}", case.path, metric.name(), sum / micros));
                }
                let rows: u64 = device.attribution.rows.iter().map(|row| row.bytes).sum();
                let own: u64 = flame.nodes.iter().map(|node| node.own_bytes).sum();
                assert_eq!((rows, flame.nodes[0].bytes, own), (total, total, total), "{}", case.path);
            }
        }
    }
    assert_none(&problems);
    assert!(compared > 200, "{compared}");
}

#[test]
fn a_mean_needs_times_and_a_duration() {
    memviz(&["peak", "--mean", &fixture("tiny_t201")]).expect_error("no times (PyTorch 2.0)");
    memviz(&["peak", "--mean", "--from", "end", &fixture("tiny")]).expect_error("expected a range with a duration");
    memviz(&["flamegraph", "--mean", &fixture("no_history"), "--format", "folded"]).expect_error("a duration");
}

#[test]
fn pending_blocks_are_what_is_active_but_not_allocated() {
    let mut pending = 0;
    for case in cases(FIXTURES).into_iter().filter(|case| case.name != "big_1m") {
        let recording = open(&case.path);
        let found = recording.blocks(&BlocksOptions::default().pending(true).top(usize::MAX)).unwrap();
        for device in &found.devices {
            let history = recording.history(device.device).unwrap();
            if device.anomalies.total() > 0 || history.completeness.no_free_requested {
                continue;
            }
            let track = Track::new(&recording.snapshot, history);
            let mut most = history.start.active - history.start.allocated;
            track.walk(|_, counters| most = most.max(counters.active - counters.allocated));
            assert_eq!(device.total_bytes as i64, most, "{}", case.path);
            pending += usize::from(case.name == "side_stream" && device.found > 0);
            for block in &device.blocks {
                assert!(block.freed.is_none() || block.freed != block.completed, "{}: {block:?}", case.path);
            }
        }
    }
    assert!(pending > 0);
}
