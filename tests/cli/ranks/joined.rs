//! Recordings that are not ranks of one run, and summaries that are joined.

use super::{RANKS8, across, gzipped, kind, lines, put, rank8, ranks, summary, written};
use crate::support::{self, fixture, memviz, memviz_reading};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// What the rows of device memory are to each other.
#[track_caller]
fn relation(lines: &[Value]) -> &Value {
    &across(lines)["across"][0]["relation"]
}

/// A summary of a recording that lasted from one time to another, in seconds, with these lines of code.
fn recorded(rank: u64, path: &str, seconds: (i64, i64), code: &[u32]) -> Value {
    let mut summary = summary(rank, 1000 + rank);
    summary["path"] = json!(path);
    summary["device"] = json!(0);
    summary["time_us"] = json!([seconds.0 * 1_000_000, seconds.1 * 1_000_000]);
    let sample: Vec<String> = code.iter().map(|line| format!("{line:06x}")).collect();
    summary["code"] = json!({"lines": code.len(), "sample": sample.concat()});
    summary
}

fn joined(summaries: &[Value]) -> Vec<Value> {
    lines(memviz_reading(&["ranks", "-", "--format", "json"], written(summaries).as_bytes()).expect(0))
}

const CODE: [u32; 6] = [1, 2, 3, 5, 8, 13];
const OTHER_CODE: [u32; 6] = [4, 6, 7, 9, 10, 13];

#[test]
fn recordings_of_different_programs_are_not_ranks() {
    let (gpt, resnet) = (fixture("gpt_train"), fixture("resnet_train"));
    let (again, unet) = (fixture("gpt_train_t215"), fixture("unet"));
    let paths = [gpt.as_str(), &resnet, &again, &unet];
    let run = memviz(&[&["ranks", "--format", "json"], &paths[..]].concat());
    let found = lines(run.expect(0));
    assert_eq!(relation(&found), "programs");
    let group = &across(&found)["across"][0];
    let programs: Vec<Vec<u64>> = group["programs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rows| rows.as_array().unwrap().iter().map(|row| row["rank"].as_u64().unwrap()).collect())
        .collect();
    assert_eq!(programs, [vec![0, 2], vec![1], vec![3]]);
    assert_eq!(across(&found)["outliers"], json!([]));
    for format in ["text", "markdown", "svg"] {
        let answer = memviz(&[&["ranks", "--format", format], &paths[..]].concat()).stdout;
        for part in ["the inputs are recordings of at least 3 different programs", "recording 1"] {
            assert!(answer.contains(part), "{format}: {answer}");
        }
        assert!(!answer.contains("rank 1") && !answer.contains("missing"), "{format}: {answer}");
    }
    let csv = memviz(&[&["ranks", "--format", "csv"], &paths[..]].concat()).stdout;
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let records: Vec<std::collections::HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let programs: Vec<&str> = records.iter().map(|record| record["program"].as_str()).collect();
    assert_eq!(programs, ["0", "1", "0", "2"]);
    assert!(records.iter().all(|record| record["relation"] == "programs"));
    // Joined from lines, it is the same.
    let joined = memviz_reading(&["ranks", "-", "--format", "json"], run.stdout.as_bytes());
    assert_eq!(across(&lines(joined.expect(0))), across(&found));
}

#[test]
fn a_recording_with_too_few_lines_is_of_no_known_program() {
    let mixed = [
        recorded(0, "a_0", (10, 20), &CODE),
        recorded(1, "a_1", (10, 20), &OTHER_CODE),
        recorded(2, "a_2", (10, 20), &OTHER_CODE[..3]),
    ];
    let found = joined(&mixed);
    let because = across(&found)["across"][0]["because"].as_str().unwrap();
    assert!(because.contains("at least 2 different programs"), "{because}");
    assert!(because.ends_with("; recording 2 has too few lines to identify its program"), "{because}");
}

#[test]
fn dumps_of_one_process_are_not_ranks() {
    let Some(corpus) = support::corpus() else { return };
    let run = memviz(&["ranks", &format!("{corpus}/leak_series"), "--format", "json"]);
    let found = lines(run.expect(0));
    assert_eq!(relation(&found), "dumps");
    assert_eq!((&across(&found)["missing"], &across(&found)["outliers"]), (&json!([]), &json!([])));
    let text = memviz(&["ranks", &format!("{corpus}/leak_series")]).stdout;
    assert!(text.contains("dumps of one process") && text.contains("Across 4 recordings"), "{text}");
}

#[test]
fn ranks_of_one_run_stay_ranks() {
    let found = lines(memviz(&["ranks", RANKS8, "--format", "json"]).expect(0));
    assert_eq!((relation(&found), &across(&found)["across"][0]["because"]), (&json!("ranks"), &Value::Null));
    // Ranks that run at once, on clocks that differ a little.
    let beside = [recorded(0, "a_0", (10, 20), &CODE), recorded(1, "a_1", (21, 31), &CODE)];
    assert_eq!(relation(&joined(&beside)), "ranks");
    // Ranks by their names, recorded one after the other.
    let named = [recorded(0, "rank0", (10, 20), &CODE), recorded(1, "rank1", (1000, 1010), &CODE)];
    assert_eq!(relation(&joined(&named)), "ranks");
    // Data that older summaries lack is not evidence.
    assert_eq!(relation(&joined(&[summary(0, 10), summary(1, 20)])), "ranks");
    // Too few lines are not evidence.
    let few = [recorded(0, "rank0", (0, 1), &CODE[..3]), recorded(1, "rank1", (0, 1), &OTHER_CODE[..3])];
    assert_eq!(relation(&joined(&few)), "ranks");
    // A rank that died early has run a part of the code.
    let part = [recorded(0, "rank0", (0, 9), &CODE), recorded(1, "rank1", (0, 1), &CODE[..4])];
    assert_eq!(relation(&joined(&part)), "ranks");
}

#[test]
fn consecutive_runs_are_not_ranks() {
    let apart = [
        recorded(0, "a_0", (10, 20), &CODE),
        recorded(1, "a_1", (500, 510), &CODE),
        recorded(2, "a_2", (100, 110), &CODE),
    ];
    let found = joined(&apart);
    assert_eq!(relation(&found), "apart");
    let because = across(&found)["across"][0]["because"].as_str().unwrap();
    assert!(because.contains("1 min 20 s to 6 min 30 s apart"), "{because}");
    // Each on a different device, they may be ranks.
    let mut devices = apart.clone();
    devices[1]["device"] = json!(1);
    assert_eq!(relation(&joined(&devices)), "ranks");
    let dumps = [recorded(5, "a_5", (10, 20), &CODE), recorded(10, "a_10", (10, 30), &CODE)];
    assert_eq!(relation(&joined(&dumps)), "dumps");
    assert_eq!(across(&joined(&dumps))["missing"], json!([]));
    // Stages of a pipeline that state that they are ranks are called ranks.
    let stages = [recorded(0, "rank0", (0, 9), &CODE), recorded(2, "rank2", (0, 9), &OTHER_CODE)];
    let found = joined(&stages);
    assert_eq!((relation(&found), &across(&found)["missing"]), (&json!("programs"), &json!([{"from": 1, "to": 1}])));
}

#[test]
fn summaries_with_an_impossible_sample_of_code_are_refused() {
    for sample in ["12345", "12345g", "00000a00000b"] {
        let mut bad = recorded(0, "rank0", (0, 9), &CODE);
        bad["code"] = json!({"lines": 1, "sample": sample});
        let run = memviz_reading(&["ranks", "-"], written(&[bad]).as_bytes());
        run.expect(2);
        assert!(run.stderr.contains("line 1: expected a sample of at most 64 hashes"), "{}", run.stderr);
    }
}

#[test]
fn joined_summaries_equal_the_recordings() {
    let folder = TempDir::new().unwrap();
    let whole = memviz(&["ranks", RANKS8, "--format", "json"]);
    let part = |from: usize, to: usize| {
        let paths: Vec<String> = (from..to).map(rank8).collect();
        let args: Vec<&str> =
            ["ranks", "--format", "json"].into_iter().chain(paths.iter().map(String::as_str)).collect();
        memviz(&args).stdout
    };
    let first = put(&folder, "node0.jsonl", part(0, 3));
    let second = part(3, 6);
    let (sixth, seventh) = (rank8(6), rank8(7));
    let joined = memviz_reading(&["ranks", &first, "-", &sixth, &seventh, "--format", "json"], second.as_bytes());
    joined.expect(0);
    let (joined, whole) = (lines(&joined), lines(&whole));
    assert_eq!(kind(&joined, "rank"), kind(&whole, "rank"));
    let without_skipped = |line: &Value| {
        let mut line = line.clone();
        line["skipped"] = json!(0);
        line
    };
    assert_eq!(without_skipped(across(&joined)), without_skipped(across(&whole)));
    // Compressed, and two files one after the other.
    let all = put(&folder, "all.jsonl.gz", gzipped((part(0, 4) + &part(4, 8)).as_bytes()));
    let again = memviz(&["ranks", &all, "--format", "json"]);
    assert_eq!(kind(&lines(again.expect(0)), "rank"), kind(&whole, "rank"));
}

#[test]
fn a_recording_on_standard_input_has_a_name() {
    let bytes = fs::read(rank8(5)).unwrap();
    let run = memviz_reading(&["ranks", "-", "--stdin-name", "run/rank5.pickle.gz", "--format", "json"], &bytes);
    let named = lines(run.expect(0));
    assert_eq!((&named[0]["path"], &named[0]["rank"]), (&json!("run/rank5.pickle.gz"), &json!(5)));
    let lines = lines(memviz_reading(&["ranks", "-", "--format", "json"], &bytes).expect(0));
    assert_eq!(
        (&lines[0]["path"], &lines[0]["rank"], &lines[0]["rank_source"]),
        (&json!("<stdin>"), &json!(0), &json!("order"))
    );
    assert_eq!(lines[0]["maxima"], named[0]["maxima"]);
}

#[test]
fn ten_thousand_summaries_are_joined() {
    let folder = TempDir::new().unwrap();
    let mut summaries: Vec<Value> = (0..10_000).map(|rank| summary(rank, 40_000_000_000 + rank % 7 * 512)).collect();
    summaries[6000] = summary(6000, 55_000_000_000);
    // A file for each node.
    for (node, ranks) in summaries.chunks(8).enumerate() {
        put(&folder, &format!("node{node}.jsonl"), written(ranks));
    }
    let path = folder.path().to_str().unwrap();
    let run = memviz(&["ranks", path, "--format", "json"]);
    let lines = lines(run.expect(0));
    assert_eq!(ranks(&lines).iter().map(|&(rank, _)| rank).collect::<Vec<_>>(), (0..10_000).collect::<Vec<_>>());
    let outliers = across(&lines)["outliers"].as_array().unwrap();
    assert!(outliers.len() == 4 && outliers.iter().all(|it| it["rank"] == 6000), "{outliers:?}");
    assert_eq!(outliers[0]["median_bytes"], 40_000_000_000_i64 + 3 * 512);
    let svg = memviz(&["ranks", path, "--format", "svg"]).stdout;
    assert!(svg.len() < 500_000, "{}", svg.len());
    assert!(svg.contains("rank 6000"));
    roxmltree::Document::parse(&svg).unwrap();
}

#[test]
fn duplicates_and_gaps_are_said() {
    let summaries = [summary(0, 10), summary(1, 10), summary(1, 11), summary(4, 10), summary(7, 10)];
    let run = memviz_reading(&["ranks", "-"], written(&summaries).as_bytes());
    run.expect(0);
    assert!(run.stdout.contains("present more than once: rank 1 on device 1 (2 times)"), "{}", run.stdout);
    assert!(run.stdout.contains("4 ranks are missing: 2 to 3, 5 to 6"), "{}", run.stdout);
    let json = memviz_reading(&["ranks", "-", "--format", "json"], written(&summaries).as_bytes());
    let lines = lines(&json);
    assert_eq!(across(&lines)["duplicates"], json!([{"rank": 1, "device": 1, "rows": 2}]));
    assert_eq!(across(&lines)["missing"], json!([{"from": 2, "to": 3}, {"from": 5, "to": 6}]));
}
