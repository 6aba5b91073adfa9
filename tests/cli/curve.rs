//! `memviz timeline` as data: rows add up to the counters, reach the peak, and are the same in each format.

use crate::export::{duckdb, has_duckdb};
use crate::support::{fixture, memviz};
use serde_json::Value;
use std::collections::BTreeMap;
use tempfile::TempDir;

const RECORDINGS: [&str; 9] =
    ["tiny", "gpt_train", "gpt_late", "multi_gpu", "oom", "pinned", "expandable", "side_stream", "private_pool"];

/// The devices of an answer as JSON.
fn devices(args: &[&str]) -> Vec<Value> {
    memviz(&[args, &["--format", "json"]].concat()).json()["devices"].as_array().unwrap().clone()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

/// Checks that groups add up at each point, that the highest point is the peak, and that the groups there are its rows.
#[track_caller]
fn agree(curve: &Value, peak: &Value, what: &str) {
    let counter = format!("{}_bytes", curve["metric"].as_str().unwrap());
    let points = curve["points"].as_array().unwrap();
    let groups = curve["groups"].as_array().unwrap();
    for (at, point) in points.iter().enumerate() {
        let sum: i64 = groups.iter().map(|group| number(&group["bytes"][at])).sum();
        assert_eq!(sum, number(&point[&counter]), "{what}: {point}");
    }
    let entries: Vec<Option<i64>> = points.iter().map(|point| point["entry"].as_i64()).collect();
    assert!(entries.is_sorted(), "{what}");
    let highest = points.iter().map(|point| number(&point[&counter])).max().unwrap();
    assert_eq!(
        (highest, &curve["peak_bytes"]),
        (number(&peak["maxima"][&counter]), &peak["maxima"][&counter]),
        "{what}"
    );
    let at = points.iter().position(|point| point["entry"] == peak["peak"]["entry"]).expect(what);
    assert_eq!(points[at]["time_us"], peak["peak"]["time_us"], "{what}");
    if groups.iter().any(|group| group["label"] == "(other)") {
        return;
    }
    let held = |groups: &Value, bytes: &dyn Fn(&Value) -> i64| -> BTreeMap<String, i64> {
        let groups = groups.as_array().unwrap().iter();
        groups
            .map(|group| (group["label"].as_str().unwrap().to_owned(), bytes(group)))
            .filter(|(_, bytes)| *bytes > 0)
            .collect()
    };
    let rows = held(&peak["attribution"]["rows"], &|row| number(&row["bytes"]));
    assert_eq!(held(&curve["groups"], &|group| number(&group["bytes"][at])), rows, "{what}");
}

#[test]
fn groups_add_up_and_reach_the_peak() {
    for name in RECORDINGS {
        let path = fixture(name);
        for (by, metric, points) in [
            ("category", "allocated", "50"),
            ("site", "allocated", "100000"),
            ("site", "reserved", "7"),
            ("stream", "active", "1"),
            ("pool", "requested", "1000"),
        ] {
            let what = format!("{name} by {by}: {metric}");
            let asked = [&path as &str, "--by", by, "--metric", metric];
            let curves = devices(&[&["timeline", "--points", points], &asked[..]].concat());
            let peaks = devices(&[&["peak"], &asked[..]].concat());
            assert_eq!(curves.len(), peaks.len(), "{what}");
            for (curve, peak) in curves.iter().zip(&peaks) {
                assert!(curve["points"].as_array().unwrap().len() <= points.parse().unwrap(), "{what}");
                agree(curve, peak, &what);
            }
        }
    }
}

#[test]
fn every_change_is_a_point_where_they_fit() {
    let [curve] = devices(&["timeline", "--points", "100000", &fixture("gpt_train")]).try_into().unwrap();
    assert_eq!(curve["entries_per_point"], 1);
    let entries: Vec<Option<i64>> =
        curve["points"].as_array().unwrap().iter().map(|point| point["entry"].as_i64()).collect();
    let last = entries.len() as i64 - 1;
    assert_eq!(entries, std::iter::once(None).chain((0..last).map(Some)).collect::<Vec<_>>());
}

#[test]
fn a_part_and_a_device_have_their_own_peak() {
    let path = fixture("gpt_train");
    for range in [["--from", "step:1", "--to", "step:2"], ["--from", "entry:100", "--to", "entry:900"]] {
        let asked = [&[&path as &str, "--by", "phase"], &range[..]].concat();
        let [curve] = devices(&[&["timeline", "--points", "20"], &asked[..]].concat()).try_into().unwrap();
        let [peak] = devices(&[&["peak"], &asked[..]].concat()).try_into().unwrap();
        assert_eq!(curve["window"], peak["window"]);
        agree(&curve, &peak, range[1]);
    }
    let [one] = devices(&["timeline", &fixture("multi_gpu"), "--device", "1"]).try_into().unwrap();
    assert_eq!(one["device"], 1);
}

#[test]
fn groups_beyond_the_largest_are_one() {
    let [curve] = devices(&["timeline", "--top", "2", &fixture("gpt_train")]).try_into().unwrap();
    let [peak] = devices(&["peak", &fixture("gpt_train")]).try_into().unwrap();
    let groups = curve["groups"].as_array().unwrap();
    let other = groups.last().unwrap();
    assert!(other["label"] == "(other)" && number(&other["groups"]) > 1, "{other}");
    assert_eq!(groups.iter().filter(|group| group["label"] == "(other)").count(), 1);
    agree(&curve, &peak, "--top 2");
}

#[test]
fn csv_and_parquet_have_the_same_rows() {
    let folder = TempDir::new().unwrap();
    for name in ["annotated", "multi_gpu", "gpt_late"] {
        let asked = ["timeline", "-q", &fixture(name), "--by", "category", "--points", "60", "--force"];
        for end in ["csv", "parquet"] {
            let path = folder.path().join(format!("curve.{end}")).display().to_string();
            memviz(&[&asked[..], &["-o", &path]].concat()).expect(0);
        }
        let csv = std::fs::read_to_string(folder.path().join("curve.csv")).unwrap();
        let curves = devices(&asked);
        let rows: usize = curves
            .iter()
            .map(|curve| curve["points"].as_array().unwrap().len() * curve["groups"].as_array().unwrap().len())
            .sum();
        assert_eq!(csv.lines().count(), rows + 1, "{name}");
        assert_eq!(memviz(&[&asked[..], &["--format", "csv", "-o", "-"]].concat()).stdout, csv, "{name}");
        if !has_duckdb() {
            continue;
        }
        let differ = "SELECT count(*) FROM (FROM 'curve.parquet' EXCEPT ALL \
                      SELECT * EXCLUDE (complete_history, anomalies) FROM 'curve.csv')";
        let sums = "SELECT count(*) FROM (SELECT device, entry FROM 'curve.parquet' GROUP BY device, entry \
                    HAVING sum(bytes) != any_value(allocated_bytes))";
        let answers = duckdb(&folder, &[differ, sums, "SELECT count(*) FROM 'curve.parquet'"]);
        assert_eq!(answers.iter().map(|rows| number(&rows[0][0])).collect::<Vec<_>>(), [0, 0, rows as i64], "{name}");
    }
}

#[test]
fn unknown_counters_are_empty() {
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.raw.json.gz";
    let [curve] = devices(&["timeline", trace, "--device", "0"]).try_into().unwrap();
    let points = curve["points"].as_array().unwrap();
    assert!(points.iter().all(|point| point["reserved_bytes"].is_null() && point["allocated_bytes"].is_i64()));
    let csv = memviz(&["timeline", trace, "--device", "0", "--format", "csv"]).stdout;
    let cells: Vec<&str> = csv.lines().nth(1).unwrap().rsplit(',').collect();
    assert_eq!(cells[3], "", "{csv}");
}

/// A free that completes at once is not pending.
#[test]
fn pending_frees_have_a_line_in_the_picture() {
    for (name, metric, is_drawn) in [
        ("side_stream", "allocated", true),
        ("side_stream", "active", false),
        ("tiny", "allocated", false),
        ("gpt_train", "allocated", false),
    ] {
        let picture = memviz(&["timeline", &fixture(name), "--x", "entry", "--metric", metric, "-o", "-"]).stdout;
        assert_eq!(picture.contains("active, with pending frees"), is_drawn, "{name}: {metric}");
    }
}

#[test]
fn what_means_nothing_is_refused() {
    let tiny = fixture("tiny");
    for (args, expected) in [
        (&["--points", "5"] as &[&str], "expected data, such as csv, for --points; found svg"),
        (&["--format", "csv", "--x", "entry"], "a picture for --x: rows have the time and the entry; found csv"),
        (&["-o", "a.parquet", "--inactive"], "a picture for --inactive: rows have all counters; found parquet"),
        (&["-o", "a.json", "--each", "step"], "a picture for --each: peak --each writes rows; found json"),
        (&["--format", "csv", "--by", "function"], "groups by function overlap"),
        (&["--format", "json", "--points", "0"], "a whole number from 1 to 100000"),
    ] {
        memviz(&[&["timeline", &tiny], args].concat()).expect_error(expected);
    }
    assert!(!std::fs::exists("a.parquet").unwrap() && !std::fs::exists("a.json").unwrap());
}
