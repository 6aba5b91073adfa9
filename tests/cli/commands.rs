//! The real binary, as people and scripts use it: what commands answer, with which options.

use crate::support::{fixture, memviz, stranger};
use memviz::Recording;
use memviz::input::ReadOptions;
use memviz::model::Action;
use memviz::replay::{Metric, Track};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

pub const FORMATS: [&str; 4] = ["text", "json", "csv", "markdown"];
const GROUPS: [&str; 8] = ["site", "stack", "function", "file", "module", "stream", "pool", "annotation"];
const METRICS: [&str; 4] = ["allocated", "active", "requested", "reserved"];
/// What PyTorch counted in `tiny` and `gpt_train`.
const TINY_PEAK: i64 = 13_787_136;
const GPT_PEAK: i64 = 4_453_794_816;

/// Commands that answer in every format.
pub const REPORTS: [&str; 8] = ["triage", "peak", "info", "fragmentation", "oom", "leaks", "checkpoint", "simulate"];

#[test]
fn devices_are_selected() {
    let devices = |path: &str, args: &[&str]| -> Vec<i64> {
        REPORTS
            .map(|command| {
                let json = memviz(&[&[command, "--format", "json", path], args].concat()).json();
                numbers(&json, "device")
            })
            .into_iter()
            .reduce(|peak, info| {
                assert_eq!(peak, info, "{args:?}");
                peak
            })
            .unwrap()
    };
    let multi = fixture("multi_gpu");
    assert_eq!(devices(&multi, &[]), [0, 1]);
    assert_eq!(devices(&multi, &["--device", "all"]), [0, 1]);
    assert_eq!(devices(&multi, &["--device", "0"]), [0]);
    assert_eq!(devices(&multi, &["--device", "1"]), [1]);
    assert_eq!(devices(&multi, &["--device", "1", "--device", "0"]), [1, 0]);
    assert_eq!(devices(&multi, &["--device=1", "--device", "all"]), [0, 1]);
    let pinned = fixture("pinned_t215");
    assert_eq!(devices(&pinned, &["--device", "-1"]), [-1]);
    assert_eq!(devices(&pinned, &["--device=-1"]), [-1]);
    let mut all = devices(&pinned, &["--device", "all"]);
    all.sort_unstable();
    assert_eq!(all, [-1, 0]);
    // A single device has the same answer as among others.
    let json = memviz(&["peak", "--format", "json", &multi]).json();
    let one = memviz(&["peak", "--format", "json", "--device", "1", &multi]).json();
    assert_eq!(one["devices"][0], json["devices"][1]);
}

#[test]
fn every_group_of_pins_and_failures_sums_up_in_every_format() {
    let (path, small) = (fixture("fragmented"), fixture("oom_caught"));
    for by in GROUPS {
        let json = memviz(&["fragmentation", "--at", "oom", "--by", by, "--format", "json", &path]).json();
        let device = &json["devices"][0];
        assert_eq!((&device["by"], &device["inclusive"]), (&Value::from(by), &Value::from(by == "function")));
        let pinned = sum(device["pinning"].as_array().unwrap(), "pinned_free_bytes");
        assert!(by == "function" || device["pinned_free_bytes"] == pinned, "{by}");
        let json = memviz(&["oom", "--by", by, "--format", "json", &path]).json();
        let oom = &json["devices"][0]["ooms"][0];
        let allocated = sum(oom["attribution"]["rows"].as_array().unwrap(), "bytes");
        assert!(by == "function" || oom["allocated_bytes"] == allocated, "{by}");
        for format in FORMATS {
            memviz(&["fragmentation", "--by", by, "--format", format, &small]).expect(0);
            memviz(&["oom", "--by", by, "--format", format, &small]).expect(0);
        }
    }
    // Filtered memory keeps its share.
    let run = ["fragmentation", "--at", "oom", "--exclude", "cases.py:280", "--format", "json", &path];
    let device = &memviz(&run).json()["devices"][0];
    let rows = device["pinning"].as_array().unwrap();
    assert_eq!(
        (&rows[0]["label"], &rows[0]["pinned_free_bytes"]),
        (&"(filtered out)".into(), &1_679_440_384_u64.into())
    );
    assert_eq!(device["pinned_free_bytes"], sum(rows, "pinned_free_bytes"));
}

/// The sizes of some blocks from before the recording are known no better than within 1 MiB.
#[test]
fn figures_that_are_bounds_are_marked() {
    let bounds = |name: &str, args: &[&str]| {
        let path = fixture(name);
        let json = memviz(&[&["fragmentation", "--format", "json", &path], args].concat()).json();
        json["devices"][0]["bounds"].clone()
    };
    assert_eq!(bounds("gpt_train", &[]), Value::Null);
    assert_eq!(bounds("ring", &["--at", "peak"])["inactive_bytes"], "upper");
    assert_eq!(bounds("ring", &["--at", "end"]), Value::Null, "the snapshot itself tells");
    assert_eq!(bounds("gpt_late", &["--at", "peak"]), Value::Null, "those blocks are gone at the peak");
    assert_eq!(bounds("gpt_late", &["--at", "start"])["active_bytes"], "lower");
    assert_eq!(bounds("gpt_late_t201", &["--at", "peak"])["pinned_free_bytes"], "unknown");
    assert_eq!(bounds("gpt_late_t201", &["--at", "end"]), Value::Null);
    assert_eq!(bounds("skip_actions", &["--at", "peak"])["allocated_bytes"], "upper");
}

#[test]
fn the_same_failure_has_the_same_signature() {
    let signature = |name: &str, args: &[&str]| {
        let json = memviz(&[&["oom", "--format", "json"], args, &[&fixture(name)]].concat()).json();
        json["devices"][0]["ooms"][0]["signature"].clone()
    };
    let first = signature("oom", &[]);
    assert_eq!((&first["requester"], &first["holder"]), (&"cases.py oom".into(), &"minigpt.py forward".into()));
    // One program under four releases of PyTorch, and with expandable segments.
    for name in ["oom_t201", "oom_t231", "oom_t215", "oom_expandable"] {
        assert_eq!(signature(name, &[]), first, "{name}");
    }
    assert_eq!(signature("oom", &["--top", "1"]), first);
    // Other requests, by other lines.
    let others = ["oom_forward", "oom_capped", "oom_caught"].map(|name| signature(name, &[])["id"].to_string());
    assert!(!others.contains(&first["id"].to_string()), "{others:?}");
    // Rows that are not sites, or not all sites, do not show which site holds the most.
    for args in [&["--by", "stack"] as &[&str], &["--exclude", "minigpt"]] {
        assert!(signature("oom", args).is_null());
    }
}

#[test]
fn a_recording_without_ooms_says_so() {
    let path = fixture("gpt_train");
    let run = memviz(&["oom", &path]);
    run.expect(0);
    assert!(run.stdout.starts_with("no request failed during the recording"), "{}", run.stdout);
    let json = memviz(&["oom", "--format", "json", &path]).json();
    assert_eq!(json["devices"][0]["ooms"], Value::Array(Vec::new()));
    assert_eq!(json["devices"][0]["peak"]["peak"]["allocated_bytes"], GPT_PEAK);
    memviz(&["fragmentation", "--at", "oom", &path]).expect_error("no oom entry");
}

#[test]
fn every_group_and_metric_can_be_asked_for_in_every_format() {
    let path = fixture("pinned_t215");
    for by in GROUPS {
        // Groups that the recording does not show are refused, instead of making one row of all memory.
        if by == "annotation" {
            memviz(&["peak", "--by", by, &path])
                .expect_error("expected record_function ranges, which --by annotation needs");
            continue;
        }
        for metric in METRICS {
            let json = memviz(&["peak", "--by", by, "--metric", metric, "--format", "json", &path]).json();
            for device in json["devices"].as_array().unwrap() {
                assert_eq!(device["metric"], metric);
                assert_eq!(device["attribution"]["by"], by);
                assert_eq!(device["attribution"]["inclusive"], by == "function");
                let key = format!("{metric}_bytes");
                assert_eq!(device["peak"][&key], device["maxima"][&key], "the peak is the maximum");
                assert_eq!(device["attribution"]["total_bytes"], device["peak"][&key]);
            }
        }
        for format in FORMATS {
            memviz(&["peak", "--by", by, "--format", format, &path]).expect(0);
        }
    }
    // The flags' defaults.
    let plain = memviz(&["peak", "--format", "json", &path]);
    assert_eq!(plain, memviz(&["peak", "--by", "site", "--metric", "allocated", "--format", "json", &path]));
}

/// PyTorch 2.0 does not say which segments belong to the graph's private pool.
#[test]
fn pools_that_were_not_recorded_are_not_guessed() {
    let labels = |name: &str| {
        let device = at_instant(&fixture(name), &["--by", "pool"]);
        let rows = device["attribution"]["rows"].as_array().unwrap().clone();
        rows.iter().map(|row| row["label"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(labels("cuda_graph_t231"), ["private pool (1, 0): CUDA graph", "default pool"]);
    memviz(&["peak", "--by", "pool", &fixture("cuda_graph_t201")]).expect_error("PyTorch 2.1 or later");
}

#[test]
fn the_rest_is_one_row_so_that_rows_sum_to_the_total() {
    let path = fixture("gpt_train");
    let attribution = |args: &[&str]| {
        memviz(&[&["peak", "--format", "json", &path], args].concat()).json()["devices"][0]["attribution"].clone()
    };
    let all = attribution(&[]);
    let rows = all["rows"].as_array().unwrap();
    assert!(rows.len() > 10);
    for top in [0, 1, 5, rows.len() - 1, rows.len(), rows.len() + 1] {
        let cut = attribution(&["--top", &top.to_string()]);
        let kept = cut["rows"].as_array().unwrap();
        assert_eq!(cut["total_bytes"], all["total_bytes"]);
        assert_eq!(sum(kept, "bytes"), all["total_bytes"].as_i64().unwrap());
        assert_eq!(sum(kept, "blocks"), sum(rows, "blocks"));
        let named = top.min(rows.len());
        assert_eq!(kept[..named], rows[..named]);
        if top < rows.len() {
            assert_eq!(kept.len(), top + 1);
            assert_eq!(kept[top]["label"], "(other)");
        } else {
            assert_eq!(kept.len(), rows.len());
        }
    }
    // Overlapping rows cannot be summed up.
    let functions = attribution(&["--by", "function", "--top", "3"]);
    assert_eq!(functions["rows"].as_array().unwrap().len(), 3);

    // People get 20 rows, scripts get all.
    let count = |format: &str| {
        let run = memviz(&["peak", "--by", "stack", "--format", format, &path]);
        run.expect(0);
        (run.stdout.contains("(other)"), run.stdout)
    };
    let stacks = attribution(&["--by", "stack"])["rows"].as_array().unwrap().len();
    assert!(stacks > 20, "{stacks} stacks");
    assert!(count("text").0 && count("markdown").0);
    assert!(!count("json").0 && !count("csv").0);
    assert_eq!(count("csv").1.lines().count(), stacks + 1);
}

#[test]
fn entries_are_instants() {
    let path = fixture("tiny");
    let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
    let mut counters = vec![recording.histories[0].start];
    Track::new(&recording.snapshot, &recording.histories[0]).walk(|_, now| counters.push(*now));
    assert_eq!(counters.len(), 12);
    for (instant, counters) in counters.iter().enumerate() {
        let at = instant.checked_sub(1).map_or("start".to_owned(), |entry| format!("entry:{entry}"));
        for metric in METRICS {
            let device = at_instant(&path, &["--at", &at, "--metric", metric]);
            assert_eq!(device["peak"]["entry"], instant.checked_sub(1).map_or(Value::Null, Value::from), "{at}");
            for each in Metric::ALL {
                assert_eq!(device["peak"][format!("{}_bytes", each.name())], counters.get(each), "{at}");
            }
            assert_eq!(device["attribution"]["total_bytes"], device["peak"][format!("{metric}_bytes")], "{at}");
        }
    }
    assert_eq!(at_instant(&path, &["--at", "start"])["attribution"]["rows"], Value::Array(Vec::new()));
    assert_eq!(at_instant(&path, &["--at", "start"])["peak"]["time_us"], Value::Null);
    assert_eq!(at_instant(&path, &["--at", "end"]), at_instant(&path, &["--at", "entry:10"]));
    assert_eq!(at_instant(&path, &["--at", "peak"]), at_instant(&path, &[]));
    assert_eq!(at_instant(&path, &[])["peak"]["allocated_bytes"], TINY_PEAK);
}

#[test]
fn times_count_from_the_first_entry() {
    let path = fixture("gpt_train");
    let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
    let times = recording.snapshot.entries.times();
    let last = times.last().unwrap() - times[0];
    for micros in [0, 1, 13_000, 690_500, last - 1, last] {
        let expected = times.iter().rposition(|time| time - times[0] <= micros).unwrap();
        for at in [format!("time:{micros}us"), format!("time:{}s", micros as f64 / 1e6)] {
            let device = at_instant(&path, &["--at", &at]);
            assert_eq!(device["peak"]["entry"], expected, "{at}");
            assert_eq!(device["peak"]["time_us"], times[expected], "{at}");
        }
    }
}

#[test]
fn the_first_oom_is_found() {
    for name in ["oom", "oom_caught", "oom_forward", "oom_t201"] {
        let path = fixture(name);
        let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
        let first = recording.snapshot.entries.actions().iter().position(|&action| action == Action::Oom).unwrap();
        assert_eq!(at_instant(&path, &["--at", "oom"])["peak"]["entry"], first, "{name}");
    }
}

#[test]
fn annotations_are_instants_by_name_and_number() {
    let path = fixture("annotated");
    let peak = |number: usize| at_instant(&path, &["--at", &format!("annotation:forward#{number}")])["peak"].clone();
    let peaks: Vec<Value> = (1..=3).map(peak).collect();
    for pair in peaks.windows(2) {
        assert!(pair[0]["entry"].as_u64() < pair[1]["entry"].as_u64(), "{pair:?}");
    }
    for peak in &peaks {
        assert!(texts(&peak["annotations"]).contains(&"forward"), "{peak}");
    }
    // Without a number it is the first.
    assert_eq!(at_instant(&path, &["--at", "annotation:forward"])["peak"], peaks[0]);
    memviz(&["peak", &path, "--at", "annotation:forward#4"]).expect_error("forward#4");
    memviz(&["peak", &path, "--at", "annotation:forward#0"]).expect_error("forward#0");
    // A name may end like a number: it is the name that counts.
    let step = at_instant(&path, &["--at", "annotation:ProfilerStep#1"]);
    assert!(texts(&step["peak"]["annotations"]).contains(&"ProfilerStep#1"), "{step}");
    // The highest point of the range is the peak of a window that is the range.
    for name in ["forward#2", "backward#3", "ProfilerStep#1"] {
        let range = format!("annotation:{name}");
        let window = at_instant(&path, &["--from", &range, "--to", &range]);
        let point = at_instant(&path, &["--at", &range]);
        assert_eq!(point["peak"], window["peak"], "{name}");
        assert_eq!(point["peak"]["allocated_bytes"], window["maxima"]["allocated_bytes"], "{name}");
    }
}

#[test]
fn windows_narrow_the_search() {
    let path = fixture("gpt_train");
    let recording = Recording::open(path.as_ref(), &ReadOptions::default()).unwrap();
    let history = &recording.histories[0];
    for (from, to) in [(0, 9106), (0, 123), (3000, 5000), (6001, 6001), (9000, 9106)] {
        let mut instants = Vec::new();
        Track::new(&recording.snapshot, history).walk(|instant, now| {
            if (from + 1..=to + 1).contains(&instant) {
                instants.push((instant - 1, *now));
            }
        });
        let device = at_instant(&path, &["--from", &format!("entry:{from}"), "--to", &format!("entry:{to}")]);
        for metric in Metric::ALL {
            let highest = instants.iter().map(|(_, now)| now.get(metric)).max().unwrap();
            let key = format!("{}_bytes", metric.name());
            assert_eq!(device["maxima"][&key], highest, "{from} to {to}: maximum {key}");
            assert_eq!(device["end"][&key], instants.last().unwrap().1.get(metric), "{from} to {to}: end {key}");
        }
        let highest = device["maxima"]["allocated_bytes"].as_i64().unwrap();
        let first = instants.iter().find(|(_, now)| now.allocated == highest).unwrap().0;
        assert_eq!(device["peak"]["entry"], first, "{from} to {to}");
    }
    assert_eq!(at_instant(&path, &["--from", "start", "--to", "end"]), at_instant(&path, &[]));
    assert_eq!(at_instant(&path, &[])["peak"]["allocated_bytes"], GPT_PEAK);
}

#[test]
fn stacks_are_included_and_excluded() {
    let path = fixture("gpt_train");
    let rows = |args: &[&str]| {
        let device = at_instant(&path, args);
        assert_eq!(device["attribution"]["total_bytes"], GPT_PEAK, "a filter changes rows, not the total");
        let rows = device["attribution"]["rows"].as_array().unwrap().clone();
        assert_eq!(sum(&rows, "bytes"), GPT_PEAK);
        rows
    };
    let is_model = |row: &&Value| texts(&row["stack"]).iter().any(|frame| frame.starts_with("minigpt.py"));
    let is_rest = |row: &&Value| row["label"] == "(filtered out)";
    let all = rows(&[]);
    let (model, others): (Vec<&Value>, Vec<&Value>) = all.iter().partition(is_model);
    assert!(model.len() > 5 && others.len() > 2);

    let included = rows(&["--include", r"minigpt\.py"]);
    assert_eq!(included.iter().filter(|row| !is_rest(row)).collect::<Vec<_>>(), model);
    let excluded = rows(&["--exclude", r"minigpt\.py"]);
    assert_eq!(excluded.iter().filter(|row| !is_rest(row)).collect::<Vec<_>>(), others);
    assert_eq!(excluded.iter().filter(is_rest).count(), 1);

    // Either of two suffices, exclusion wins, and frames are matched as `path/file.py:line function`.
    let two = rows(&["--include", "minigpt.py:28 forward", "--include", "/home/user/train/cases.py:129 train_steps"]);
    let labels: Vec<&str> = two.iter().filter(|row| !is_rest(row)).map(|row| row["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["minigpt.py:28 forward", "cases.py:129 train_steps"]);
    let none = rows(&["--include", "minigpt", "--exclude", "minigpt"]);
    assert_eq!((none.len(), &none[0]["label"]), (1, &Value::from("(filtered out)")));
}

#[test]
fn the_number_of_threads_does_not_show() {
    for name in ["multi_gpu", "gpt_train"] {
        let path = fixture(name);
        for format in FORMATS {
            for args in [
                &["peak"] as &[&str],
                &["peak", "--by", "stack", "--metric", "active"],
                &["info"],
                &["leaks"],
                &["checkpoint"],
            ] {
                let runs = ["1", "2", "8"]
                    .map(|threads| memviz(&[args, &["--format", format, "--threads", threads, &path]].concat()));
                runs[0].expect(0);
                assert_eq!(runs[0], runs[1], "{name} {format} {args:?}");
                assert_eq!(runs[0], runs[2], "{name} {format} {args:?}");
            }
        }
    }
}

#[test]
fn formats_agree() {
    for name in ["multi_gpu", "pinned_t215", "side_stream", "gpt_late", "empty"] {
        let path = fixture(name);
        for by in ["site", "stack", "function"] {
            let json = memviz(&["peak", "--by", by, "--format", "json", &path]).json();
            let text = memviz(&["peak", "--by", by, "--format", "csv", &path]).stdout;
            let mut csv = csv::Reader::from_reader(text.as_bytes());
            let headers: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
            let found: Vec<Vec<String>> =
                csv.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect();
            let column = |key: &str| headers.iter().position(|header| header == key).unwrap();
            let mut expected = 0;
            for device in json["devices"].as_array().unwrap() {
                for row in device["attribution"]["rows"].as_array().unwrap() {
                    let line = &found[expected];
                    assert_eq!(line[column("device")], device["device"].to_string());
                    assert_eq!(line[column("entry")], device["peak"]["entry"].to_string());
                    assert_eq!(line[column("label")], row["label"].as_str().unwrap());
                    assert_eq!(line[column("bytes")], row["bytes"].to_string());
                    assert_eq!(line[column("blocks")], row["blocks"].to_string());
                    assert_eq!(line[column("stack")], texts(&row["stack"]).join(";"));
                    expected += 1;
                }
            }
            assert_eq!(found.len(), expected, "{name} by {by}");
        }
    }
}

/// The command's own tests say whether predictions are right.
#[test]
fn checkpoint_says_the_same_in_every_format() {
    let path = fixture("gpt_train");
    let json = memviz(&["checkpoint", "--format", "json", &path]).json();
    let device = &json["devices"][0];
    assert_eq!(device["peak_allocated_bytes"], GPT_PEAK);
    let candidates = device["candidates"].as_array().unwrap();
    assert!(candidates.len() > 2 && device["left_out"] == 0 && device["reason"] == Value::Null, "{device}");
    let text = memviz(&["checkpoint", "--format", "csv", &path]).stdout;
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let found: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    let mut lines = found.iter();
    for candidate in candidates {
        assert_eq!(candidate["saved_bytes"], GPT_PEAK - candidate["predicted_peak_allocated_bytes"].as_i64().unwrap());
        for plan in candidate["plan"].as_array().unwrap() {
            let line = lines.next().unwrap();
            let peak = &plan["predicted_peak_allocated_bytes"];
            let expected = [candidate["label"].as_str().unwrap(), &plan["every"].to_string(), &peak.to_string()];
            assert_eq!([&line[3], &line[7], &line[8]], expected);
        }
    }
    assert_eq!(lines.next(), None);
    // People get the best in full, and as many as they request.
    for format in ["text", "markdown"] {
        let run = |top: &str| memviz(&["checkpoint", "--format", format, "--top", top, &path]).stdout;
        let (one, all) = (run("1"), run("100"));
        for part in
            ["minigpt.py:53 forward", "predicted peak 2.71 GiB, 1.44 GiB", "use_reentrant=False", "minigpt.py:75"]
        {
            assert!(one.contains(part) && all.contains(part), "{format} lacks {part}: {one}");
        }
        assert!(one.contains(&format!("{} more candidates", candidates.len() - 1)), "{one}");
        let others = &candidates[1..];
        assert!(others.iter().all(|other| all.contains(other["label"].as_str().unwrap())), "{all}");
    }
}

#[test]
fn checkpoint_says_what_counts_as_one_pass() {
    let lines = memviz(&["checkpoint", &fixture("oom_caught")]).stdout;
    assert!(lines.contains("1 forward pass; forward work before the same backward pass counts as one pass"), "{lines}");
    assert!(!memviz(&["checkpoint", &fixture("gpt_train")]).stdout.contains("counts as one pass"));
}

/// Both peaks are in the picture, exact, and the picture is chosen by the file's name.
#[test]
fn checkpoint_draws_before_and_after() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("checkpoint.svg");
    let shown = path.to_str().unwrap();
    let run = memviz(&["checkpoint", "-o", shown, &fixture("gpt_train")]);
    run.expect(0);
    assert_eq!(run.stdout, "");
    let drawn = fs::read_to_string(&path).unwrap();
    assert_eq!(drawn, memviz(&["checkpoint", "--format", "svg", &fixture("gpt_train")]).stdout);
    let json = memviz(&["checkpoint", "--format", "json", &fixture("gpt_train")]).json();
    let predicted = &json["devices"][0]["candidates"][0]["predicted_peak_allocated_bytes"];
    for peak in [&Value::from(GPT_PEAK), predicted] {
        assert!(drawn.contains(&format!("data-peak-bytes=\"{peak}\"")), "{peak}");
    }
    let by_time = memviz(&["checkpoint", "--format", "svg", "--x", "time", &fixture("gpt_train")]).stdout;
    assert!(by_time.contains(">seconds<") || by_time.contains("seconds"), "{by_time}");
    memviz(&["checkpoint", "-o", shown, &fixture("gpt_train")]).expect_error("--force");
}

/// A recording without candidates for checkpointing is not a failure.
#[test]
fn checkpoint_without_a_training_step_says_why() {
    for (name, part) in [
        ("tiny", "no forward pass of a module"),
        ("state_only", "no forward pass of a module"),
        ("no_history", "without a history"),
        ("empty", "no gpu memory was allocated"),
        ("oom", "is incomplete"),
        ("gpt_train_ckpt", "is already checkpointed"),
    ] {
        for format in ["text", "markdown"] {
            let run = memviz(&["checkpoint", "--format", format, &fixture(name)]);
            run.expect(0);
            assert!(run.stdout.to_lowercase().contains(part), "{name}: {}", run.stdout);
        }
        let drawn = memviz(&["checkpoint", "--format", "svg", &fixture(name)]);
        drawn.expect(0);
        assert!(drawn.stdout.ends_with("</svg>\n"), "{name}");
    }
}

/// A limit that a complete recording never exceeds needs no simulation. After a failed request, what would have followed is
/// unknown.
#[test]
fn checkpoint_says_whether_the_peak_is_already_within_the_limit() {
    for (path, limit, is_within) in [
        (fixture("gpt_train"), "5GiB", Value::from(true)),
        (fixture("gpt_train"), "4GiB", Value::from(false)),
        // PyTorch counts CPU memory only while a profiler is on: the peak is a lower bound, and nothing is simulated.
        ("fixtures/traces/profiler_traces/cpu.trace.json.gz".to_owned(), "7MiB", Value::Null),
        (fixture("oom"), "7GiB", Value::Null),
    ] {
        let answer = |format: &str| memviz(&["checkpoint", "--fit", limit, "--format", format, &path]);
        let says = answer("text").stdout.contains("the peak is already within");
        assert_eq!(says, is_within == true, "{path} below {limit}");
        assert_eq!(answer("json").json()["devices"][0]["fit"]["fits"], is_within, "{path} below {limit}");
    }
}

// ------------------------------------------------------------------ devices that are too small

#[test]
fn simulate_says_whether_the_changed_program_fits() {
    let simulate = |capacity: &str| {
        let args = ["simulate", "--capacity", capacity, "--context", "0", "--checkpoint", "minigpt.py:53"];
        memviz(&[&args[..], &[&fixture("gpt_train")]].concat()).stdout
    };
    let fits = simulate("3GiB");
    assert!(fits.contains("Device 0: fits: needs 2.92 GiB of 3.00 GiB with checkpoint:minigpt.py:53"), "{fits}");
    assert!(fits.contains("the program without the changes runs out of memory"), "{fits}");
    let fails = simulate("2560MiB");
    assert!(
        fails.contains("Device 0: does not fit: needs 2.92 GiB with checkpoint:minigpt.py:53, but only"),
        "{fails}"
    );
    assert!(fails.contains("the program runs out of memory with the changes too, at entry"), "{fails}");
    assert!(!fails.contains("without the changes runs out"), "{fails}");
}

#[test]
fn nothing_is_reserved_beyond_a_simulated_device() {
    let simulate = |capacity: &str| {
        let late = fixture("gpt_late");
        let args = ["simulate", "--capacity", capacity, "--context", "0", "--format", "json", &late];
        memviz(&args).json()["devices"][0]["runs"][0].clone()
    };
    // It starts with more than this in blocks, or with more only in free segments.
    let above = simulate("600MiB");
    assert_eq!((above["max_reserved_bytes"].as_u64(), above["trust"].as_str()), (None, Some("refused")), "{above}");
    let lean = simulate("2GiB");
    assert!(lean["max_reserved_bytes"].as_u64().is_some_and(|bytes| bytes <= 2 << 30), "{lean}");
    assert!(lean["fails_at_entry"].is_u64() && lean["trust"] == "uncertain", "{lean}");
}

#[test]
fn a_recording_that_ran_out_of_memory_may_need_more_than_it_measured() {
    let check = |name: &str| memviz(&["check", "--max-peak", "8GiB", &fixture(name)]).expect(0).stdout.clone();
    let said = "1 request failed: the program may need more than was measured";
    assert!(check("oom").contains(said), "{}", check("oom"));
    assert!(!check("gpt_train").contains("failed"), "{}", check("gpt_train"));
    let title = |name: &str| memviz(&["oom", "--format", "markdown", &fixture(name)]).stdout;
    assert!(title("oom").starts_with("## Out of memory in"), "{}", title("oom"));
    assert!(title("gpt_train").starts_with("## Failed requests in"), "{}", title("gpt_train"));
}

// ------------------------------------------------------------------ what is assumed, and what belongs together

#[test]
fn devices_of_one_process_get_one_export() {
    let swept = memviz(&["simulate", "--sweep", &fixture("multi_gpu")]).stdout;
    let exports: Vec<&str> = swept.lines().filter(|line| line.trim_start().starts_with("export ")).collect();
    // Device 0 alone would reserve least with expandable segments, with which device 1 reserves more.
    assert_eq!(exports, ["  export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"], "{swept}");
    assert!(
        swept.contains("share PYTORCH_CUDA_ALLOC_CONF; in total, they reserve 4.15 GiB instead of 4.24 GiB with:"),
        "{swept}"
    );
}

#[test]
fn settings_that_a_recording_lacks_are_not_called_recorded() {
    let simulated = |name: &str| memviz(&["simulate", &fixture(name)]).stdout;
    let without = simulated("gpt_train_t201");
    assert!(without.contains("default settings (assumed)") && !without.contains("recorded settings"), "{without}");
    assert!(simulated("gpt_train").contains("recorded settings (defaults)"), "{}", simulated("gpt_train"));
}

#[test]
fn needing_more_than_is_reserved_is_explained() {
    let explains = |name: &str| {
        memviz(&["simulate", &fixture(name)]).stdout.contains("the needs column exceeds the reserved column")
    };
    assert!(explains("oom"), "its failed request is not in reserved memory");
    assert!(!explains("gpt_train"), "it needs less than it reserves");
}

#[test]
fn a_request_refused_despite_free_memory_has_a_reason() {
    let said = memviz(&[&fixture("oom_capped")]).stdout;
    assert!(said.contains("a limit on the process probably caused the failure"), "{said}");
}

#[test]
fn a_sweep_shows_the_same_figures_for_the_recorded_settings() {
    for path in ["fixtures/generation/snapshot.pickle.gz", &fixture("fragmented"), &fixture("random_sizes")] {
        let recorded = |args: &[&str]| {
            let answer = memviz(&[&["simulate", "--format", "json", path], args].concat()).json();
            answer["devices"][0]["runs"][0].clone()
        };
        assert_eq!(recorded(&[]), recorded(&["--sweep"]), "{path}");
    }
}

/// The simulation of the recorded run is judged on its own: a run in the table may be on another device.
#[test]
fn a_run_on_another_device_has_other_segments() {
    let said = |args: &[&str]| memviz(&[&["simulate"], args].concat()).expect(0).stdout.clone();
    let path = fixture("amp_scaled");
    let end = "; in the table, the run with the recorded settings makes 0 device allocations and 0 frees on the simulated device before a request fails\n";
    assert!(said(&[&path, "--capacity", "300MiB"]).contains(end));
    assert!(!said(&[&path]).contains("in the table, the run with"));
    let Some(path) = stranger("HugePandaCoder-my_snapshot.pickle.gz") else { return };
    let end = "; in the table, the run with the recorded settings makes 15 device allocations and 1 free on a device without a limit\n";
    assert!(said(&[&path]).contains(end));
}

/// What a trace lacks for a simulation, no other trace has.
#[test]
fn a_trace_that_cannot_be_simulated_leads_to_a_snapshot() {
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
    for args in [&["simulate", trace] as &[&str], &["fit", trace, "--capacity", "8GiB"]] {
        let run = memviz(args);
        let text = &run.expect(0).stdout;
        assert!(text.contains("_dump_snapshot") && !text.contains("with_stack"), "{text}");
    }
}

#[test]
fn help_offers_only_formats_of_this_build() {
    for command in ["timeline", "simulate", "report"] {
        let help = memviz(&[command, "--help"]).stdout;
        assert!(help.contains("svg"), "{command}: {help}");
        assert_eq!(
            help.contains("A bitmap") || help.contains("as a bitmap"),
            cfg!(feature = "png"),
            "{command}: {help}"
        );
    }
}

// ------------------------------------------------------------------ helpers

/// The first device of `peak --format json`.
#[track_caller]
fn at_instant(path: &str, args: &[&str]) -> Value {
    memviz(&[&["peak", "--format", "json", path], args].concat()).json()["devices"][0].clone()
}

fn numbers(json: &Value, key: &str) -> Vec<i64> {
    json["devices"].as_array().unwrap().iter().map(|device| device[key].as_i64().unwrap()).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

fn sum(rows: &[Value], key: &str) -> i64 {
    rows.iter().map(|row| row[key].as_i64().unwrap()).sum()
}

#[test]
fn common_options_may_precede_the_command_or_file() {
    let tiny = fixture("tiny");
    let told = memviz(&[&tiny, "--color", "never", "-q"]).stdout;
    assert_eq!(memviz(&["--color", "never", "-q", &tiny]).stdout, told);
    assert_eq!(memviz(&["-q", "--color=never", "triage", &tiny]).stdout, told);
    memviz(&["--output", "x.svg", &tiny]).expect_error("expected a command or FILE before --output");
    memviz(&[&tiny, "peak"]).expect_error("expected the command before the file: memviz peak FILE");
}
