//! The figures of ranks: maxima against PyTorch's counters, outliers, failures, gauges.

use super::{RANKS8, TRACE, across, kind, lines, put, ranks, summary, written};
use crate::support::{self, fixture, memviz, memviz_reading, read_text};
use serde_json::{Value, json};
use tempfile::TempDir;

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
    // Requests of all groups sum to those of all rows.
    let ooms: u64 = kind(&answer, "rank").iter().map(|rank| rank["ooms"].as_u64().unwrap()).sum();
    assert_eq!(found.iter().map(|(_, requests, ..)| requests).sum::<u64>(), ooms);
    // Summaries of earlier runs, as JSON or as a table, give the same result.
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
    assert!(text.stdout.contains("; new (compared with 1 earlier rank)"), "{}", text.stdout);
    // An earlier run that cannot be read leaves the question open.
    let missing = memviz(&["ranks", inputs[0], "--earlier", "nothing.pickle"]);
    missing.expect(2);
    assert!(missing.stderr.contains("nothing.pickle"), "{}", missing.stderr);
}

#[test]
fn the_cause_of_a_failure_is_that_of_oom() {
    let path = "fixtures/stories/retained_graph_llama_flawed/snapshot.pickle.gz";
    let oom = memviz(&["oom", "--format", "json", path]).json();
    assert_eq!(oom["devices"][0]["ooms"][0]["cause"], json!("leak"));
    let ranks = lines(memviz(&["ranks", "--format", "json", path]).expect(0));
    assert_eq!(across(&ranks)["failures"][0]["signature"]["cause"], json!("leak"));
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
        let fragmentation = memviz(&["fragmentation", path, "--at", "peak", "--format", "json"]).json();
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
