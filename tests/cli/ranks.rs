//! `memviz ranks`: ranks of a run against PyTorch's own counters, summaries that are joined, and inputs of all kinds.
#![cfg(feature = "cli")]

use crate::support::{
    self, FIXTURES, MALFORMED, Run, command, fixture, memviz, memviz_reading, names, read_text, read_unpacked,
};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::ranks::RanksReport;
use memviz::input::ReadOptions;
use memviz::ranks::{RankInputs, RanksOptions};
use memviz::replay::Metric;
use memviz::report::{Answer, TextStyle};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

const RANKS8: &str = "fixtures/snapshots/ranks8";
/// A profiler trace with memory of a CUDA device and of the CPU.
const TRACE: &str = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
const FORMATS: [&str; 4] = ["text", "json", "csv", "markdown"];

/// The lines of an answer in JSON, however the run ended.
#[track_caller]
fn lines(run: &Run) -> Vec<Value> {
    run.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
        .collect()
}

/// Those of one kind.
fn kind<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["line"] == kind).collect()
}

/// The last line.
#[track_caller]
fn across(lines: &[Value]) -> &Value {
    let last = lines.last().expect("there is a line");
    assert_eq!(last["line"], "across");
    last
}

/// Ranks on their devices, in the order of the lines.
fn ranks(lines: &[Value]) -> Vec<(u64, i64)> {
    kind(lines, "rank").iter().map(|line| (line["rank"].as_u64().unwrap(), line["device"].as_i64().unwrap())).collect()
}

fn rank8(rank: usize) -> String {
    format!("{RANKS8}/rank{rank}.pickle.gz")
}

/// A summary of a rank with this peak, as a line of JSON.
fn summary(rank: u64, peak: u64) -> Value {
    let counters =
        json!({"allocated_bytes": peak, "active_bytes": peak, "requested_bytes": peak, "reserved_bytes": peak});
    json!({
        "schema_version": 1, "command": "ranks", "line": "rank", "path": format!("/node{}/rank{rank}.pickle", rank / 8),
        "rank": rank, "rank_source": "path", "device": rank % 8, "format": "cuda_snapshot", "entries": 1000,
        "complete_history": true, "anomalies": 0, "baseline_bytes": 0, "maxima": counters, "metric": "allocated",
        "peak": counters, "inactive_bytes": 0, "end": counters, "ooms": 0, "total_bytes": peak,
        "top": [{"label": "model.py:7 forward", "bytes": peak, "blocks": 1}],
    })
}

/// A line of JSON for each value. Keys of objects come in alphabetic order, but the version comes first.
fn written(summaries: &[Value]) -> String {
    let line = |summary: &Value| {
        let mut object = summary.as_object().unwrap().clone();
        let version = object.remove("schema_version").map_or(String::new(), |version| version.to_string());
        let rest = Value::Object(object).to_string();
        format!("{{\"schema_version\":{version},{}\n", &rest[1..])
    };
    summaries.iter().map(line).collect()
}

fn put(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The failures of an answer: signature, requests, paths of its rows and of earlier ones.
fn failures(across: &Value) -> Vec<(String, u64, Vec<String>, Vec<String>)> {
    let paths = |rows: &Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect()
    };
    let of = |failure: &Value| {
        let id = failure["signature"]["id"].as_str().unwrap().to_owned();
        (id, failure["requests"].as_u64().unwrap(), paths(&failure["rows"]), paths(&failure["earlier"]))
    };
    across["failures"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn the_same_failure_is_one_group_and_was_seen_before() {
    let signature = |name: &str, number: usize| {
        let oom = memviz(&["oom", "--format", "json", &fixture(name)]).json();
        oom["devices"][0]["ooms"][number]["signature"]["id"].as_str().unwrap().to_owned()
    };
    let same = ["oom", "oom_t215", "oom_expandable"].map(fixture);
    let (caught, earlier) = (fixture("oom_caught"), fixture("oom_t201"));
    let inputs = [same[0].as_str(), &same[1], &same[2], &caught];
    let json = |args: &[&str]| lines(memviz(&[&["ranks", "--format", "json"], args].concat()).expect(0));
    let answer = json(&[&inputs[..], &["--earlier", &earlier]].concat());
    let known = [
        (signature("oom", 0), 3, same.to_vec(), vec![earlier.clone()]),
        (signature("oom_caught", 0), 1, vec![caught.clone()], vec![]),
        (signature("oom_caught", 1), 1, vec![caught.clone()], vec![]),
    ];
    let found = failures(across(&answer));
    assert_eq!(found.len(), known.len(), "{found:?}");
    assert!(known.iter().all(|one| found.contains(one)), "{found:?}");
    assert_eq!(found[0], known[0], "what most have comes first");
    assert_eq!((&across(&answer)["earlier_rows"], &across(&answer)["unsigned_requests"]), (&json!(1), &json!(0)));
    // Requests of all groups are those of all rows.
    let ooms: u64 = kind(&answer, "rank").iter().map(|rank| rank["ooms"].as_u64().unwrap()).sum();
    assert_eq!(found.iter().map(|(_, requests, ..)| requests).sum::<u64>(), ooms);
    // Summaries of earlier runs, as JSON or as a table, tell the same.
    let folder = TempDir::new().unwrap();
    for name in ["before.jsonl", "before.parquet"] {
        let path = folder.path().join(name).display().to_string();
        let format: &[&str] = if name == "before.jsonl" { &["--format", "json"] } else { &[] };
        memviz(&[&["ranks", "-q", &earlier, "-o", &path], format].concat()).expect(0);
        let again = json(&[&inputs[..], &["--earlier", &path]].concat());
        assert_eq!(failures(across(&again)), found, "{name}");
        // And as inputs, they are rows like others.
        let joined = json(&[inputs[0], &path]);
        let both = (signature("oom", 0), 2, vec![same[0].clone(), earlier.clone()], vec![]);
        assert_eq!(failures(across(&joined)), [both]);
        assert_eq!(across(&joined)["earlier_rows"], Value::Null);
    }
    let text = memviz(&[&["ranks"], &inputs[..], &["--earlier", &earlier]].concat());
    assert!(text.stdout.contains(&format!("; seen before: {earlier}")), "{}", text.stdout);
    assert!(text.stdout.contains("; new: in none of 1 earlier row"), "{}", text.stdout);
    // An earlier run that cannot be read leaves the question open.
    let missing = memviz(&["ranks", inputs[0], "--earlier", "nothing.pickle"]);
    missing.expect(2);
    assert!(missing.stderr.contains("nothing.pickle"), "{}", missing.stderr);
}

#[test]
fn a_summary_with_more_signatures_than_failures_is_refused() {
    let folder = TempDir::new().unwrap();
    let signature = json!({"id": "0123456789abcdef", "cause": "capacity", "requester": "a.py f", "holder": "a.py g",
        "size_class_bytes": 1024, "pool": "large"});
    let mut rank = summary(0, 7);
    rank["ooms"] = json!(2);
    rank["failures"] = json!([{"signature": signature, "requests": 2}]);
    let run = memviz(&["ranks", "--format", "json", &put(&folder, "good.jsonl", written(&[rank.clone()]))]);
    assert_eq!(across(&lines(run.expect(0)))["failures"][0]["requests"], 2);
    rank["failures"][0]["requests"] = json!(3);
    let run = memviz(&["ranks", &put(&folder, "bad.jsonl", written(&[rank]))]);
    assert!(run.stderr.contains("signatures of at most 2 failed requests, found 3"), "{}", run.stderr);
    run.expect(2);
}

#[test]
fn prometheus_gets_the_figures_of_ranks() {
    let text = memviz(&["ranks", "--format", "prometheus", RANKS8]).expect(0).stdout.clone();
    let answer = lines(&memviz(&["ranks", "--format", "json", RANKS8]));
    let value = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        line.rsplit_once(' ').unwrap().1.to_owned()
    };
    for rank in kind(&answer, "rank") {
        let labels = format!(
            "rank=\"{}\",device=\"{}\",path=\"{}\"",
            rank["rank"],
            rank["device"],
            rank["path"].as_str().unwrap()
        );
        for counter in ["allocated", "active", "requested", "reserved"] {
            for (at, key) in [("max", "maxima"), ("end", "end")] {
                let found = value(&format!("memviz_rank_{at}_bytes{{{labels},counter=\"{counter}\"}}"));
                assert_eq!(found, rank[key][format!("{counter}_bytes")].to_string());
            }
        }
        assert_eq!(value(&format!("memviz_rank_failed_requests{{{labels}}}")), "0");
    }
    let outliers = text.lines().filter(|line| line.starts_with("memviz_rank_outlier_score{")).count();
    assert_eq!(outliers, across(&answer)["outliers"].as_array().unwrap().len());
    assert_eq!(value("memviz_unanalyzed_inputs"), "0");
    // Each metric is announced once.
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(heads.iter().collect::<std::collections::BTreeSet<_>>().len(), heads.len());
    let name = |line: &str| line.split(['{', ' ']).next().unwrap().to_owned();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(heads.contains(&format!("# TYPE {} gauge", name(line)).as_str()), "{line}");
    }
}

// ------------------------------------------------------------------ the numbers

#[test]
fn maxima_of_every_rank_equal_pytorch_and_rank_5_stands_out() {
    let corpus = support::corpus().map(|root| format!("{root}/ranks8"));
    for folder in [RANKS8.to_owned()].into_iter().chain(corpus) {
        let run = memviz(&["ranks", &folder, "--format", "json"]);
        run.expect(0);
        assert_eq!(run.stderr, "");
        let lines = lines(&run);
        assert_eq!(ranks(&lines), (0..8).map(|rank| (rank, rank as i64)).collect::<Vec<_>>());
        for line in kind(&lines, "rank") {
            let rank = line["rank"].as_u64().unwrap();
            let truth: Value = serde_json::from_str(&read_text(&format!("{folder}/truth_rank{rank}.json"))).unwrap();
            let stats = &truth["devices"][rank as usize]["memory_stats"];
            for metric in ["allocated", "active", "requested", "reserved"] {
                let of_pytorch = &stats[format!("{metric}_bytes.all.peak")];
                assert!(of_pytorch.as_u64().unwrap() > 0);
                assert_eq!(line["maxima"][format!("{metric}_bytes")], *of_pytorch, "{folder}: rank {rank}, {metric}");
            }
            let rows = line["top"].as_array().unwrap();
            let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
            assert_eq!((sum, line["total_bytes"].as_u64()), (sum, Some(sum)));
            assert_eq!(line["total_bytes"], line["maxima"]["allocated_bytes"]);
            assert!(line.to_string().len() < 4096, "a summary has a few kilobytes");
        }
        let outliers = across(&lines)["outliers"].as_array().unwrap();
        let found: Vec<_> =
            outliers.iter().map(|it| (it["rank"].as_u64().unwrap(), it["metric"].as_str().unwrap())).collect();
        assert_eq!(found, [(5, "allocated"), (5, "active"), (5, "requested"), (5, "reserved")]);
        let peak = |rank: usize| kind(&lines, "rank")[rank]["maxima"]["allocated_bytes"].as_i64().unwrap();
        assert_eq!(outliers[0]["delta_bytes"], peak(5) - peak(0), "the median rank is one like rank 0");
        let rows = outliers[0]["rows"].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| row["delta_bytes"].as_i64().unwrap()).sum::<i64>(), peak(5) - peak(0));
        assert!(rows.iter().all(|row| row.get("bound").is_none()), "every site is listed");
        let labels: Vec<&str> = rows.iter().map(|row| row["label"].as_str().unwrap()).collect();
        assert_eq!(
            labels[..5],
            [
                "backward of minigpt.py:82 forward",
                "minigpt.py:79 forward",
                "minigpt.py:82 forward",
                "minigpt.py:28 forward",
                "minigpt.py:41 forward"
            ]
        );
        assert_eq!((&rows[0]["inferred"], rows[1].get("inferred")), (&true.into(), None));
        assert_eq!(across(&lines)["skipped"], 8, "the truths beside the recordings");
        for format in ["text", "markdown"] {
            let answer = memviz(&["ranks", &folder, "--format", format]).stdout;
            assert!(answer.contains("backward of minigpt.py:82 forward *"), "{answer}");
            assert!(answer.contains("* inferred: backward has no Python frames"), "{answer}");
        }
        let text = memviz(&["ranks", &folder]).stdout;
        assert_eq!(text.matches("Outlier rank").count(), 1, "{text}");
        assert!(text.contains("Outlier rank 5: allocated 6.03 GiB, 2.32 GiB (62.8%) above the median of 3.70 GiB"));
    }
}

#[test]
fn another_metric_can_be_attributed() {
    let run = memviz(&["ranks", RANKS8, "--metric", "reserved", "--format", "json"]);
    let lines = lines(run.expect(0));
    for line in kind(&lines, "rank") {
        assert_eq!(line["total_bytes"], line["maxima"]["reserved_bytes"]);
    }
    let outliers = across(&lines)["outliers"].as_array().unwrap();
    let with_rows: Vec<_> = outliers.iter().filter(|it| !it["rows"].as_array().unwrap().is_empty()).collect();
    assert_eq!(with_rows.len(), 1);
    assert_eq!((&with_rows[0]["rank"], &with_rows[0]["metric"]), (&json!(5), &json!("reserved")));
}

#[test]
fn sites_that_are_not_listed_make_bounds() {
    let run = memviz(&["ranks", RANKS8, "--top", "2", "--format", "json"]);
    let lines = lines(run.expect(0));
    for line in kind(&lines, "rank") {
        let rows = line["top"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2]["label"], "(other)");
        assert_eq!(
            rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>(),
            line["total_bytes"].as_u64().unwrap()
        );
    }
    // A site that only the outlier lists, one that only the reference lists, and one that both do.
    let mut summaries: Vec<Value> = (0..5).map(|rank| summary(rank, 1000)).collect();
    for summary in &mut summaries {
        summary["top"] = json!([{"label": "both", "bytes": 500, "blocks": 1}, {"label": "usual", "bytes": 400, "blocks": 1},
                                {"label": "(other)", "bytes": 100, "blocks": 3}]);
    }
    summaries.push(summary(5, 3000));
    summaries[5]["top"] = json!([{"label": "new", "bytes": 2000, "blocks": 1}, {"label": "both", "bytes": 700, "blocks": 1},
                                 {"label": "(other)", "bytes": 300, "blocks": 3}]);
    let run = memviz_reading(&["ranks", "-", "--format", "json"], written(&summaries).as_bytes());
    let lines = self::lines(run.expect(0));
    let rows = &across(&lines)["outliers"][0]["rows"];
    assert_eq!(
        *rows,
        json!([
            {"label": "new", "bytes": 2000, "reference_bytes": null, "delta_bytes": 2000, "bound": "upper"},
            {"label": "usual", "bytes": null, "reference_bytes": 400, "delta_bytes": -400, "bound": "lower"},
            {"label": "both", "bytes": 700, "reference_bytes": 500, "delta_bytes": 200},
            {"label": "(other)", "bytes": 300, "reference_bytes": 100, "delta_bytes": 200, "bound": "unknown"},
        ])
    );
    let text = memviz_reading(&["ranks", "-"], written(&summaries).as_bytes()).stdout;
    assert!(text.contains("≤+1.95 KiB") && text.contains("≥-400 bytes"), "{text}");
}

#[test]
fn every_device_has_a_row_and_is_compared_with_its_like() {
    let run = memviz(&["ranks", &fixture("multi_gpu"), &fixture("pinned_t215"), TRACE, "--format", "json"]);
    let lines = lines(run.expect(0));
    assert_eq!(ranks(&lines), [(0, 0), (0, 1), (1, 0), (1, -1), (2, 0), (2, -2)]);
    let groups: Vec<_> =
        across(&lines)["across"].as_array().unwrap().iter().map(|it| (&it["memory"], &it["rows"])).collect();
    assert_eq!(groups, [(&json!("device"), &json!(4)), (&json!("pinned_host"), &json!(1)), (&json!("cpu"), &json!(1))]);
    for line in kind(&lines, "rank") {
        let path = line["path"].as_str().unwrap();
        let device = line["device"].to_string();
        let peak = memviz(&["peak", path, "--device", &device, "--format", "json"]).json();
        for part in ["maxima", "end"] {
            assert_eq!(line[part], peak["devices"][0][part], "{path}, device {device}");
        }
        assert_eq!(line["baseline_bytes"], peak["devices"][0]["baseline_bytes"]);
        assert_eq!(line.get("bounds"), peak["devices"][0].get("bounds"));
    }
    let cpu = kind(&lines, "rank")[5];
    assert_eq!(cpu["inactive_bytes"], Value::Null, "nothing is reserved on a CPU");
    let one = memviz(&["ranks", &fixture("multi_gpu"), "--device", "1", "--format", "json"]);
    assert_eq!(ranks(&self::lines(one.expect(0))), [(0, 1)]);
}

#[test]
fn failed_requests_and_fragmentation_are_those_of_the_other_commands() {
    let run = memviz(&["ranks", &fixture("oom_caught"), &fixture("fragmented"), "--format", "json"]);
    for line in kind(&lines(run.expect(0)), "rank") {
        let path = line["path"].as_str().unwrap();
        let ooms = memviz(&["oom", path, "--format", "json"]).json();
        assert_eq!(line["ooms"], ooms["devices"][0]["ooms"].as_array().unwrap().len());
        let fragmentation = memviz(&["fragmentation", path, "--format", "json"]).json();
        assert_eq!(line["inactive_bytes"], fragmentation["devices"][0]["inactive_bytes"]);
    }
}

#[test]
fn bounds_are_marked() {
    let run =
        memviz(&["ranks", &fixture("ring"), &fixture("skip_actions"), &fixture("no_history"), "--format", "json"]);
    let bounds: Vec<_> =
        kind(&lines(run.expect(0)), "rank").iter().map(|it| it["bounds"]["allocated_bytes"].clone()).collect();
    assert_eq!(bounds[1..], [json!("upper"), json!("lower")]);
    let text = memviz(&["ranks", &fixture("skip_actions"), &fixture("no_history")]).stdout;
    assert!(text.contains("≤2.50 GiB") && text.contains("≥921.08 MiB"), "{text}");
    assert!(text.contains("2 allocated maxima are bounds"), "{text}");
}

// ------------------------------------------------------------------ what is no rank

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
fn recordings_of_different_programs_are_no_ranks() {
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
        for part in ["these run different code: 3 programs", "recording 1"] {
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
fn dumps_of_one_process_are_no_ranks() {
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
    // What older summaries do not tell is no evidence.
    assert_eq!(relation(&joined(&[summary(0, 10), summary(1, 20)])), "ranks");
    // Too few lines tell nothing.
    let few = [recorded(0, "rank0", (0, 1), &CODE[..3]), recorded(1, "rank1", (0, 1), &OTHER_CODE[..3])];
    assert_eq!(relation(&joined(&few)), "ranks");
    // A rank that died early has run a part of the code.
    let part = [recorded(0, "rank0", (0, 9), &CODE), recorded(1, "rank1", (0, 1), &CODE[..4])];
    assert_eq!(relation(&joined(&part)), "ranks");
}

#[test]
fn runs_one_after_the_other_are_no_ranks() {
    let apart = [
        recorded(0, "a_0", (10, 20), &CODE),
        recorded(1, "a_1", (500, 510), &CODE),
        recorded(2, "a_2", (100, 110), &CODE),
    ];
    let found = joined(&apart);
    assert_eq!(relation(&found), "apart");
    let because = across(&found)["across"][0]["because"].as_str().unwrap();
    assert!(because.contains("1 min 20 s to 6 min 30 s apart"), "{because}");
    // Each on a device of its own, they may well be ranks.
    let mut devices = apart.clone();
    devices[1]["device"] = json!(1);
    assert_eq!(relation(&joined(&devices)), "ranks");
    let dumps = [recorded(5, "a_5", (10, 20), &CODE), recorded(10, "a_10", (10, 30), &CODE)];
    assert_eq!(relation(&joined(&dumps)), "dumps");
    assert_eq!(across(&joined(&dumps))["missing"], json!([]));
    // Stages of a pipeline that say that they are ranks are called so.
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

// ------------------------------------------------------------------ joining

#[test]
fn joined_summaries_say_what_the_recordings_say() {
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

// ------------------------------------------------------------------ what goes wrong

#[test]
fn a_broken_file_is_reported_and_the_others_are_analysed() {
    let broken = format!("{MALFORMED}/truncated-in-segments.pickle");
    let args = ["ranks", &rank8(0), &broken, &rank8(5), "no/such/rank9.pickle"];
    for format in FORMATS {
        let run = memviz(&[&args[..], &["--format", format]].concat());
        run.expect(2);
        let stderr: Vec<&str> = run.stderr.lines().collect();
        assert_eq!(stderr.len(), 2, "{stderr:?}");
        assert!(stderr[0].starts_with(&format!("memviz: {broken}: byte ")), "{stderr:?}");
        assert!(stderr[1].starts_with("memviz: no/such/rank9.pickle: "), "{stderr:?}");
        for part in [rank8(0), broken.clone(), rank8(5), "no/such/rank9.pickle".to_owned()] {
            assert!(run.stdout.contains(&part), "{format} does not mention {part}: {}", run.stdout);
        }
    }
    let lines = lines(&memviz(&[&args[..], &["--format", "json"]].concat()));
    assert_eq!(ranks(&lines), [(0, 0), (5, 5)]);
    assert_eq!(kind(&lines, "failed").len(), 2);
    assert_eq!(across(&lines)["failed"], 2);
    // Whoever joins summaries learns of it.
    let summaries = memviz(&[&args[..], &["--format", "json"]].concat()).stdout;
    let joined = memviz_reading(&["ranks", "-"], summaries.as_bytes());
    joined.expect(2);
    assert_eq!(joined.stderr.lines().count(), 2);
    let whole = memviz(&["ranks", &rank8(0), &broken, "--allow-truncated", "--format", "json"]);
    assert_eq!(kind(&self::lines(whole.expect(0)), "failed").len(), 0);
}

#[test]
fn summaries_that_are_none_are_refused_in_one_line() {
    let good = summary(1, 1000);
    let with = |key: &str, value: Value| {
        let mut summary = good.clone();
        summary[key] = value;
        written(&[good.clone(), summary])
    };
    let text = written(std::slice::from_ref(&good));
    for (content, part) in [
        (with("schema_version", json!(2)), "line 2: expected schema_version 1, found 2"),
        (with("command", json!("peak")), "line 2: expected a summary of memviz ranks, found an answer of memviz peak"),
        (with("line", json!("row")), "found \"row\""),
        (with("metric", json!("active")), "--metric active"),
        (with("metric", json!("heat")), "heat"),
        (with("device", json!(-3)), "expected a device from -2 on, found -3"),
        (with("device", json!(1_i64 << 40)), "line 2: column "),
        (with("rank", json!(-1)), "line 2: column "),
        (with("rank", json!(1.5)), "line 2: column "),
        (with("total_bytes", json!(1001)), "expected rows that sum to 1001 bytes, found 1000"),
        (with("maxima", json!({})), "allocated_bytes"),
        (with("top", json!([{"label": "a", "bytes": "1000", "blocks": 1}])), "line 2: column "),
        (text.clone() + "{\"schema_version\":1,\"comm", "line 2: column "),
        (text.clone() + "NaN\n", "line 2: column "),
        (text.clone() + "[]\n", "line 2: column "),
        (text.clone() + &text.replace("1000", "NaN"), "line 2: column "),
        (text.clone() + &text.replace(":1000", ":1e400"), "line 2: column "),
        (text.clone() + &text.replace(":1000", ":99999999999999999999"), "line 2: column "),
    ] {
        let run = memviz_reading(&["ranks", "-", "--format", "json"], content.as_bytes());
        run.expect(2);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.starts_with("memviz: <stdin>: line 2: "), "{}", run.stderr);
        assert!(run.stderr.contains(part), "expected {part:?} in {:?}", run.stderr);
        assert_eq!(ranks(&lines(&run)), [(1, 1)], "what comes before it counts");
    }
    let only = text.replace("\"schema_version\":1", "\"schema_version\":7");
    let run = memviz_reading(&["ranks", "-"], only.as_bytes());
    run.expect(2);
    assert_eq!(run.stderr, "memviz: <stdin>: line 1: expected schema_version 1, found 7\n");
    // Answers of other commands are named as what they are.
    let peak = memviz(&["peak", "--format", "json", &fixture("tiny")]).stdout;
    let run = memviz_reading(&["ranks", "-"], peak.as_bytes());
    run.expect(2);
    assert_eq!(run.stderr.lines().count(), 1);
    assert!(run.stderr.contains("on several lines"), "{}", run.stderr);
}

#[test]
fn extreme_summaries_do_no_harm() {
    let huge = u64::MAX;
    let mut summaries: Vec<Value> = (0..6).map(|rank| summary(rank, 1 << 62)).collect();
    summaries[0]["maxima"]["allocated_bytes"] = json!(i64::MIN);
    summaries[1]["maxima"]["reserved_bytes"] = json!(i64::MAX);
    summaries[2]["rank"] = json!(huge);
    summaries[2]["world_size"] = json!(huge);
    summaries[3]["total_bytes"] = json!(huge);
    summaries[3]["top"] = json!([{"label": "a", "bytes": huge, "blocks": huge}]);
    summaries[4]["inactive_bytes"] = json!(i64::MIN);
    summaries[4]["peak"]["reserved_bytes"] = json!(1);
    summaries[5]["top"][0]["label"] = json!("</text><script>alert(1)</script>|`\u{202e}\n\u{1b}[31m");
    summaries[5]["path"] = json!("<b>|\n\u{1b}]0;x\u{7}");
    summaries[5]["bounds"] = json!({"allocated_bytes": "unknown", "no_such_bytes": "lower"});
    summaries.extend((10..16).map(|rank| summary(rank, 512)));
    let input = written(&summaries);
    for format in [&FORMATS[..], &["svg"]].concat() {
        let run = memviz_reading(&["ranks", "-", "--format", format], input.as_bytes());
        run.expect(0);
        assert!(!run.stdout.contains('\u{1b}') && !run.stdout.contains('\u{202e}') || format == "json", "{format}");
        if format == "svg" {
            roxmltree::Document::parse(&run.stdout).unwrap();
            assert!(!run.stdout.contains("<script"));
        }
    }
    let none = memviz_reading(&["ranks", "-"], b"\n\n");
    none.expect(2);
    assert_eq!(none.stderr.lines().count(), 1);
}

#[test]
fn contradictions_are_fatal_only_when_asked() {
    let path = format!("{MALFORMED}/free-of-unknown-address.pickle");
    let run = memviz(&["ranks", &path, &fixture("tiny")]);
    run.expect(0);
    assert!(run.stdout.contains("1 row comes from a recording that contradicts itself"), "{}", run.stdout);
    memviz(&["ranks", &path, &fixture("tiny"), "--strict"]).expect(1);
    memviz(&["ranks", &fixture("tiny"), "--strict"]).expect(0);
}

// ------------------------------------------------------------------ inputs

#[test]
fn directories_and_globs_stand_for_what_is_in_them() {
    let folder = TempDir::new().unwrap();
    for rank in [0, 2, 10] {
        put(&folder, &format!("run/rank{rank}.pickle.gz"), fs::read(rank8(usize::min(rank, 7))).unwrap());
    }
    put(&folder, "run/config.json", "{\"layers\": 8}");
    put(&folder, "run/rank0.peak.json", memviz(&["peak", "--format", "json", &fixture("tiny")]).stdout);
    put(&folder, "run/notes.txt", "no recording");
    put(&folder, "run/deeper/rank1.pickle", read_unpacked(&rank8(1)));
    put(&folder, "run/rank3[old].pickle", read_unpacked(&rank8(3)));
    let root = folder.path().to_str().unwrap();
    let of = |input: &str| {
        let run = memviz(&["ranks", input, "--format", "json"]);
        run.expect(0);
        let lines = lines(&run);
        let ranks: Vec<u64> = ranks(&lines).into_iter().map(|(rank, _)| rank).collect();
        (ranks, across(&lines)["skipped"].as_u64().unwrap())
    };
    assert_eq!(of(&format!("{root}/run")), (vec![0, 2, 3, 10], 2));
    assert_eq!(of(&format!("{root}/run/rank*.gz")), (vec![0, 2, 10], 0));
    assert_eq!(of(&format!("{root}/**/rank[0-2].pickle*")), (vec![1, 0, 2], 0));
    assert_eq!(of(&format!("{root}/run/rank3[old].pickle")), (vec![3], 0), "a file that is called like a glob");

    let config = format!("{root}/run/config.json");
    let run = memviz(&["ranks", &config, &format!("{root}/run/rank0.pickle.gz")]);
    run.expect(2);
    assert!(run.stderr.starts_with(&format!("memviz: {config}: ")), "what is named is expected to be a recording");
    for input in [format!("{root}/none*"), format!("{root}/run/[")] {
        let run = memviz(&["ranks", &input]);
        run.expect(2);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.contains(&input), "{}", run.stderr);
    }
    let empty = TempDir::new().unwrap();
    let run = memviz(&["ranks", empty.path().to_str().unwrap()]);
    assert!(run.expect(2).stderr.contains("expected recordings or summaries in the directory"), "{}", run.stderr);
    let twice = memviz(&["ranks", &rank8(1), &format!("./{}", rank8(1)), RANKS8, "--format", "json"]);
    assert_eq!(ranks(&lines(twice.expect(0))).len(), 8, "each file counts once");
}

#[test]
fn a_trace_tells_its_rank() {
    let folder = TempDir::new().unwrap();
    let trace = String::from_utf8(read_unpacked(TRACE)).unwrap();
    let told = trace.replacen('{', "{\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, \"world_size\": 4},", 1);
    let path = put(&folder, "rank7.pt.trace.json", told);
    let run = memviz(&["ranks", &path, "--device", "0", "--format", "json"]);
    let lines = lines(run.expect(0));
    assert_eq!(
        (&lines[0]["rank"], &lines[0]["rank_source"], &lines[0]["world_size"]),
        (&json!(3), &json!("recorded"), &json!(4))
    );
    assert_eq!(across(&lines)["missing"], json!([{"from": 0, "to": 2}]));
}

#[test]
fn a_rank_without_memory_is_said() {
    for format in FORMATS {
        let run = memviz(&["ranks", &fixture("empty"), &rank8(1), "--format", format]);
        run.expect(0);
        assert!(run.stdout.contains(&fixture("empty")), "{format}: {}", run.stdout);
    }
}

// ------------------------------------------------------------------ threads and output

#[test]
fn the_number_of_threads_does_not_show() {
    let broken = format!("{MALFORMED}/truncated-in-segments.pickle");
    for format in [&FORMATS[..], &["svg"]].concat() {
        let args = ["ranks", RANKS8, &broken, &fixture("multi_gpu"), "--format", format];
        let one = memviz(&[&args[..], &["--threads", "1"]].concat());
        one.expect(2);
        for threads in ["2", "8", "64"] {
            assert_eq!(memviz(&[&args[..], &["--threads", threads]].concat()), one, "{format}, {threads} threads");
        }
    }
}

/// Reading on one thread is another way to the same recording.
#[test]
fn one_thread_reads_what_several_do() {
    let mut one = ReadOptions::default();
    one.on_one_thread = true;
    let told = |path: &str, options: &ReadOptions| match Recording::open(path.as_ref(), options) {
        Ok(recording) => format!("{:?}", recording.peak(&PeakOptions::default()).map(|peak| peak.devices)),
        Err(error) => format!("{error:?}"),
    };
    let malformed = names(MALFORMED).into_iter().map(|name| format!("{MALFORMED}/{name}"));
    let fixtures = names(FIXTURES).into_iter().map(|name| format!("{FIXTURES}/{name}/snapshot.pickle.gz"));
    let traces = names("fixtures/traces").into_iter().flat_map(|folder| {
        let folder = format!("fixtures/traces/{folder}");
        names(&folder).into_iter().map(move |name| format!("{folder}/{name}"))
    });
    let paths: Vec<String> = malformed.chain(fixtures).chain(traces).filter(|path| Path::new(path).exists()).collect();
    assert!(paths.len() > 100);
    for path in paths {
        assert_eq!(told(&path, &one), told(&path, &ReadOptions::default()), "{path}");
    }
}

#[test]
fn pictures_are_drawn_for_any_number_of_ranks() {
    for number in [0, 1, 3, 64, 129, 541, 1080] {
        let summaries: Vec<Value> =
            (0..number).map(|rank| summary(rank, if rank == 40 { 9 << 30 } else { 4 << 30 })).collect();
        let run = memviz_reading(&["ranks", "-", "--format", "svg"], written(&summaries).as_bytes());
        run.expect(if number == 0 { 2 } else { 0 });
        assert!(run.stdout.len() < 500_000);
        let document = roxmltree::Document::parse(&run.stdout).unwrap();
        let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
        assert_eq!(texts.contains(&"rank 40"), number > 40, "{number} ranks");
    }
}

#[test]
fn rows_come_before_the_last_file_is_read() {
    let mut child = command(&["ranks", &rank8(0), "-", "--threads", "1", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // Standard input is still open.
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["rank"], 0);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(2), "nothing came from standard input");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for format in [&FORMATS[..], &["svg"]].concat() {
        let args = ["ranks", RANKS8, "--threads", "2", "--format", format];
        let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let run = Run::from(child.wait_with_output().unwrap());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn csv_and_markdown_hold_every_rank() {
    let csv = memviz(&["ranks", RANKS8, "--format", "csv"]).stdout;
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 9);
    let column = |name: &str| rows[0].iter().position(|&head| head == name).unwrap();
    let state_without: Vec<&str> =
        rows.iter().filter(|row| !row[column("outlier")].is_empty()).map(|row| row[column("rank")]).collect();
    assert_eq!(state_without, ["rank", "5"]);
    assert_eq!(rows[6][column("max_allocated_bytes")], "6469628928");
    let markdown = memviz(&["ranks", RANKS8, "--format", "markdown"]).stdout;
    assert!(markdown.contains("### Outlier rank 5: allocated 6.03 GiB"), "{markdown}");
    assert_eq!(markdown.lines().filter(|line| line.contains("/rank") && line.starts_with('|')).count(), 8);
}

#[test]
fn output_goes_to_a_file_that_is_no_input() {
    let folder = TempDir::new().unwrap();
    let svg = folder.path().join("ranks.svg");
    let svg = svg.to_str().unwrap();
    memviz(&["ranks", RANKS8, "-o", svg]).expect(0);
    assert!(read_text(svg).contains("<svg"));
    memviz(&["ranks", RANKS8, "-o", svg]).expect_error("--force overwrites it");
    let input = put(&folder, "rank0.pickle.gz", fs::read(rank8(0)).unwrap());
    memviz(&["ranks", &rank8(1), &input, "--format", "text", "-o", &input, "--force"]).expect_error("is the input");
    for args in [&["ranks"] as &[&str], &["ranks", RANKS8, "--top", "0"], &["ranks", RANKS8, "--threads", "0"]] {
        let run = memviz(args);
        run.expect(2);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn every_line_fits_into_the_terminal() {
    let empty = fixture("empty");
    let broken = format!("{MALFORMED}/truncated-in-segments.pickle");
    let options = RanksOptions::default();
    let paths = [RANKS8, &empty, &broken, &fixture("skip_actions"), TRACE].map(PathBuf::from);
    let mut lines = Vec::new();
    let keep = |line| {
        lines.push(line);
        Ok(())
    };
    RankInputs::of(&paths, &options).summarize(&options, keep).unwrap();
    let report = RanksReport::of(lines, Metric::Allocated);
    for width in (50..=220).step_by(10) {
        let mut out = Vec::new();
        report.text((), TextStyle { width: Some(width), color: false, advice: true }, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        // Commands are to be copied as they are.
        let wide = out.lines().filter(|line| line.width() > width && !line.starts_with("memviz "));
        let wide: Vec<&str> = wide.collect();
        assert!(wide.is_empty(), "{width} columns: {wide:#?}");
        assert!(out.contains("Outlier rank 5"), "{out}");
    }
}

// ------------------------------------------------------------------ examples

/// A command of `examples/` with the binary on its path.
fn example(program: &str, args: &[&str]) -> std::process::Command {
    let binaries = Path::new(env!("CARGO_BIN_EXE_memviz")).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([binaries].into_iter().chain(std::env::split_paths(&others))).unwrap();
    let mut command = std::process::Command::new(program);
    command.args(args).env("PATH", path).stdin(Stdio::null());
    command
}

#[test]
#[cfg(unix)]
fn the_slurm_example_summarizes_and_joins() {
    let folder = TempDir::new().unwrap();
    let [summaries, picture] = ["summaries", "ranks.svg"].map(|name| folder.path().join(name));
    let (summaries, picture) = (summaries.to_str().unwrap(), picture.to_str().unwrap());
    // Slurm sets these for each task of an array; the last one finds nothing left to do.
    for task in 0..10 {
        let mut command = example("bash", &["examples/ranks_slurm.sh", "summarize", RANKS8, summaries]);
        command.env("SLURM_ARRAY_TASK_ID", task.to_string()).env("SLURM_ARRAY_TASK_COUNT", "10");
        Run::from(command.output().unwrap()).expect(0);
    }
    assert_eq!(names(summaries).len(), 8);
    let joined = Run::from(example("bash", &["examples/ranks_slurm.sh", "join", summaries, picture]).output().unwrap());
    joined.expect(0);
    assert_eq!(joined.stdout.lines().skip(9).collect::<Vec<_>>(), {
        let whole = memviz(&["ranks", &format!("{RANKS8}/*.gz")]).stdout;
        whole.lines().skip(9).map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(read_text(picture).contains("Outlier rank 5"));
    Run::from(example("bash", &["examples/ranks_slurm.sh"]).output().unwrap()).expect(2);
}

/// As much of Spark as the example uses.
const SPARK: &str = r#"
import glob

class Collection:
    def __init__(self, items): self.items = items
    def flatMap(self, of): return Collection([each for item in self.items for each in of(item)])
    def collect(self): return self.items

class SparkSession:
    def appName(self, name): return self
    def getOrCreate(self): return self
    def stop(self): pass
    @property
    def sparkContext(self): return self
    def binaryFiles(self, paths):
        return Collection([("file:" + path, open(path, "rb").read()) for path in sorted(glob.glob(paths))])

SparkSession.builder = SparkSession()
"#;

#[test]
fn the_spark_example_summarizes_and_joins() {
    if example("python3", &["--version"]).output().is_err() {
        return support::skipped("there is no python3");
    }
    let folder = TempDir::new().unwrap();
    put(&folder, "pyspark/__init__.py", "");
    put(&folder, "pyspark/sql.py", SPARK);
    let picture = folder.path().join("ranks.svg");
    let recordings = format!("{RANKS8}/*.pickle.gz");
    let args = ["examples/ranks_pyspark.py", &recordings, "--output", picture.to_str().unwrap()];
    let run = Run::from(example("python3", &args).env("PYTHONPATH", folder.path()).output().unwrap());
    run.expect(0);
    assert!(run.stdout.contains("Outlier rank 5"), "{}", run.stdout);
    assert!(run.stdout.contains(&format!("file:{RANKS8}/rank5.pickle.gz")), "{}", run.stdout);
    assert!(read_text(picture.to_str().unwrap()).contains("Outlier rank 5"));
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}
