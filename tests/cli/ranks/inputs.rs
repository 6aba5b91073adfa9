//! Inputs of all kinds, and what is wrong with them.

use super::{FORMATS, RANKS8, TRACE, across, kind, lines, put, rank8, ranks, summary, written};
use crate::support::{MALFORMED, Run, fixture, memviz, memviz_reading, read_unpacked};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

#[test]
fn a_broken_file_is_reported_and_the_others_are_analysed() {
    let broken = format!("{MALFORMED}/truncated-in-segments.pickle");
    let args = ["ranks", &rank8(0), &broken, &rank8(5), "no/such/rank9.pickle"];
    let reported = |run: &Run| {
        let stderr: Vec<&str> = run.stderr.lines().collect();
        assert!(stderr[0].starts_with(&format!("memviz: {broken}: byte ")), "{stderr:?}");
        assert!(stderr[1].starts_with("memviz: no/such/rank9.pickle: "), "{stderr:?}");
        assert_eq!(stderr.len(), 2, "{stderr:?}");
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ranks.txt");
    reported(memviz(&[&args[..], &["--quiet", "-o", file.to_str().unwrap()]].concat()).expect(2));
    for format in FORMATS {
        let run = memviz(&[&args[..], &["--format", format]].concat());
        run.expect(2);
        // Rows of text already show the errors.
        if format == "text" {
            assert_eq!(run.stderr, "");
        } else {
            reported(&run);
        }
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
fn invalid_summaries_are_refused_in_one_line() {
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
        (with("device", json!(-3)), "expected a device number of -2 or higher, found -3"),
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
    // Answers of other commands are recognized.
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

/// verl writes a folder for each rank that runs out of memory.
#[test]
#[cfg(unix)]
fn subfolders_are_searched_within_bounds() {
    let folder = TempDir::new().unwrap();
    for rank in 0..3 {
        let name = format!("run/oom_20260101-00000{rank}-1/torch_memory_oom_rank{rank}_pid7{rank}.pickle.gz");
        put(&folder, &name, fs::read(rank8(rank)).unwrap());
    }
    put(&folder, "run/.cache/rank5.pickle", "hidden");
    put(&folder, &format!("run/{}rank6.pickle", "deep/".repeat(9)), "too deep");
    put(&folder, "beside/rank7.pickle", "behind a link");
    let root = folder.path().to_str().unwrap();
    std::os::unix::fs::symlink(format!("{root}/run"), format!("{root}/run/again")).unwrap();
    std::os::unix::fs::symlink(format!("{root}/beside"), format!("{root}/run/beside")).unwrap();
    let run = memviz(&["ranks", &format!("{root}/run"), "--format", "json"]);
    assert_eq!(ranks(&lines(run.expect(0))), [(0, 0), (1, 1), (2, 2)]);
}

#[test]
fn directories_and_globs_represent_their_files() {
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
    assert_eq!(of(&format!("{root}/run")), (vec![1, 0, 2, 3, 10], 2), "also what is in subfolders");
    assert_eq!(of(&format!("{root}/run/rank*.gz")), (vec![0, 2, 10], 0));
    assert_eq!(of(&format!("{root}/**/rank[0-2].pickle*")), (vec![1, 0, 2], 0));
    assert_eq!(of(&format!("{root}/run/rank3[old].pickle")), (vec![3], 0), "a file that is called like a glob");

    let config = format!("{root}/run/config.json");
    let run = memviz(&["ranks", "--format", "json", &config, &format!("{root}/run/rank0.pickle.gz")]);
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
    for part in
        ["expected recordings or summaries in the folder or its subfolders", ".pickle, .pkl, .json", ".gz, .zst"]
    {
        assert!(run.expect(2).stderr.contains(part), "{}", run.stderr);
    }
    let twice = memviz(&["ranks", &rank8(1), &format!("./{}", rank8(1)), RANKS8, "--format", "json"]);
    assert_eq!(ranks(&lines(twice.expect(0))).len(), 8, "each file counts once");
}

#[test]
fn a_trace_shows_its_rank() {
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
fn ranks_without_memory_are_named() {
    for format in FORMATS {
        let run = memviz(&["ranks", &fixture("empty"), &rank8(1), "--format", format]);
        run.expect(0);
        assert!(run.stdout.contains(&fixture("empty")), "{format}: {}", run.stdout);
    }
}
