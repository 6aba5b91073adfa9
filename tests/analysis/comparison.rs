//! How the devices of one recording compare, in `peak`, `oom` and `report`.
#![cfg(feature = "cli")]

use crate::support::{fixture, memviz};
use memviz::Recording;
use memviz::analysis::peak::comparison::Comparison;
use memviz::analysis::peak::comparison::MATERIAL;
use memviz::analysis::peak::{PeakOptions, PeakReport};
use memviz::facts::grouping::GroupBy;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, DeviceTrace, EntryContext, Frame, Snapshot};
use memviz::replay::replay;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

/// Bytes of a row in the fixture, by device.
fn peaks(path: &str) -> Vec<i64> {
    let answer = memviz(&["peak", path, "--format", "json"]).json();
    answer["devices"].as_array().unwrap().iter().map(|it| it["peak"]["allocated_bytes"].as_i64().unwrap()).collect()
}

#[test]
fn the_fullest_device_and_the_difference_are_named() {
    let path = fixture("multi_gpu");
    let peaks = peaks(&path);
    for command in ["peak", "oom"] {
        let answer = memviz(&[command, &path, "--format", "json"]).json();
        let comparison = &answer["comparison"];
        assert_eq!((&comparison["fullest"], &comparison["emptiest"]), (&Value::from(1), &Value::from(0)));
        assert_eq!(comparison["mean_bytes"], peaks.iter().sum::<i64>() / 2);
        let found: Vec<i64> =
            comparison["peaks"].as_array().unwrap().iter().map(|it| it["bytes"].as_i64().unwrap()).collect();
        assert_eq!(found, peaks);
        for row in comparison["rows"].as_array().unwrap() {
            for (device, bytes) in row["bytes"].as_array().unwrap().iter().enumerate() {
                let whole = memviz(&["peak", &path, "--format", "json"]).json();
                let rows = whole["devices"][device]["attribution"]["rows"].as_array().unwrap();
                let listed = rows.iter().find(|other| other["label"] == row["label"]);
                assert_eq!(listed.map_or(0, |row| row["bytes"].as_u64().unwrap()), bytes.as_u64().unwrap());
            }
        }
        for format in ["text", "markdown"] {
            let text = memviz(&[command, &path, "--top", "1", "--format", format]).stdout;
            assert!(
                text.contains("device 1 holds the most (2.84 GiB at its peak), device 0 the least (1.00 GiB)"),
                "{text}"
            );
            assert!(text.contains("cases.py:459 multi_gpu"), "{text}");
        }
    }
    for format in ["svg", "markdown", "html"] {
        let page = memviz(&["report", &path, "--format", format]).stdout;
        assert!(page.contains("device 1 holds the most (2.84 GiB at its peak)"), "{format}");
    }
}

#[test]
fn one_device_or_an_instant_of_ones_own_is_not_compared() {
    for args in [&["peak", "--device", "0"] as &[&str], &["peak", "--at", "end"], &["oom", "--device", "1"]] {
        let answer = memviz(&[args, &[&fixture("multi_gpu"), "--format", "json"]].concat()).json();
        assert_eq!(answer.get("comparison"), None, "{args:?}");
    }
    // Pinned host memory is not compared with devices.
    let answer = memviz(&["peak", &fixture("pinned_t215"), "--format", "json"]).json();
    assert_eq!(answer.get("comparison"), None);
}

#[test]
fn overlapping_groups_make_no_rows() {
    let answer = memviz(&["peak", &fixture("multi_gpu"), "--by", "function", "--format", "json"]).json();
    assert_eq!(answer["comparison"]["rows"], Value::Array(Vec::new()));
    memviz(&["peak", &fixture("multi_gpu"), "--by", "function"]).expect(0);
}

/// A recording of devices that each hold blocks of these sizes, in MiB, by site.
fn recording(devices: &[Vec<u64>]) -> Recording {
    let mut snapshot = Snapshot::default();
    snapshot.notes.has_times = true;
    let context = snapshot.contexts.intern(EntryContext::default());
    for (device, sizes) in (0..).zip(devices) {
        let start = snapshot.entries.len();
        for (site, &mib) in (1..).zip(sizes).filter(|(_, mib)| **mib > 0) {
            let (filename, name) = (snapshot.strings.intern("/home/user/train.py"), snapshot.strings.intern("forward"));
            let frame = snapshot.stacks.intern_frame(Frame { filename, name, line: site, fx: None });
            let stack = snapshot.stacks.intern_stack(&[frame]);
            let (addr, size) = ((device as u64 + 1) << 40 | site << 34, mib << 20);
            for action in [Action::SegmentAlloc, Action::Alloc] {
                snapshot.entries.push(TraceEntry { action, addr, size, time_us: site as i64, stack, context });
            }
        }
        snapshot.traces.push(DeviceTrace { device, rows: start..snapshot.entries.len(), truncated: false });
    }
    let histories = replay(&snapshot);
    Recording { snapshot, histories, compression: memviz::input::Compression::None, bytes: 0, device_file: None }
}

fn compare(devices: &[Vec<u64>]) -> Option<Comparison> {
    let recording = recording(devices);
    let options = PeakOptions::default().by(GroupBy::Site).top(Some(0));
    PeakReport::of(&recording.devices(), &options).unwrap().comparison
}

proptest! {
    #[test]
    fn devices_differ_when_an_even_split_would_take_a_tenth_off_the_fullest(
        devices in vec(vec(prop_oneof![Just(0), Just(40), Just(42), 1..200u64], 1..5), 1..6),
    ) {
        let sums: Vec<u64> = devices.iter().map(|sizes| sizes.iter().sum()).filter(|&sum| sum > 0).collect();
        let found = compare(&devices);
        let most = sums.iter().copied().max().unwrap_or(0);
        let mean = (sums.iter().sum::<u64>() << 20) / sums.len().max(1) as u64;
        let material = most > 0 && ((most << 20) - mean) as f64 >= (most << 20) as f64 * MATERIAL;
        prop_assert_eq!(found.is_some(), material);
        let Some(found) = found else { return Ok(()) };
        prop_assert_eq!(found.most().bytes as u64, most << 20);
        prop_assert_eq!(found.least().bytes as u64, sums.iter().min().unwrap() << 20);
        let site = |label: &str| label.strip_prefix("train.py:").unwrap().split(' ').next().unwrap().parse::<usize>().unwrap();
        let difference = |row: usize| {
            let of = |device: i32| devices[device as usize].get(row).copied().unwrap_or(0) << 20;
            of(found.most().device).abs_diff(of(found.least().device))
        };
        let mut wanted: Vec<u64> = (0..5).map(difference).filter(|&it| it > 0).collect();
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        wanted.truncate(3);
        let rows: Vec<u64> = found.rows.iter().map(|row| difference(site(&row.label) - 1)).collect();
        prop_assert_eq!(rows, wanted);
    }
}
