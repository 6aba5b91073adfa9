//! `memviz check`: budgets, their sources, what is known well enough to judge them, and the exit codes.
#![cfg(feature = "cli")]

mod baseline;
mod config;
mod corpus;
mod empty;
mod examples;
mod files;
mod formats;
mod known;
mod losses;
mod program;

use crate::support::{self, Run, fixture, memviz};
use program::{Alloc, snapshot};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

/// What PyTorch counted in `gpt_train`.
const GPT_PEAK: u64 = 4_453_794_816;
const GPT_RESERVED: u64 = 4_590_665_728;
/// What `leak_slow` forgets in every step.
const LEAK: u64 = 3 << 20;

/// A folder to write to.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).into_os_string().into_string().unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs memviz there.
    fn check(&self, args: &[&str]) -> Run {
        let mut command = support::command(&[&["check"], args].concat());
        command.env_remove("GITHUB_WORKSPACE").current_dir(self.0.path());
        command.output().unwrap().into()
    }
}

fn check(args: &[&str]) -> Run {
    memviz(&[&["check"], args].concat())
}

/// The checks of an answer in JSON, with any exit code.
fn checks(run: &Run) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error} in {run:?}"));
    answer["checks"].as_array().unwrap().clone()
}

/// The only check of an answer.
fn only_check(args: &[&str]) -> (Option<i32>, Value) {
    let run = check(&[args, &["--format", "json"]].concat());
    let mut checks = checks(&run);
    assert_eq!(checks.len(), 1, "{run:?}");
    (run.code, checks.remove(0))
}

fn labels(check: &Value) -> Vec<&str> {
    let sites = check["sites"].as_array().map(Vec::as_slice).unwrap_or_default();
    sites.iter().map(|site| site["label"].as_str().unwrap()).collect()
}

// ------------------------------------------------------------------ each budget

#[test]
fn every_budget_is_exact_to_the_byte() {
    let (gpt, leak) = (fixture("gpt_train"), fixture("leak_slow"));
    // A budget is about recorded stacks.
    let holding = memviz(&["peak", "--format", "json", "--no-infer", &gpt]).json();
    let rows = holding["devices"][0]["attribution"]["rows"].as_array().unwrap().clone();
    let in_model =
        |row: &&Value| row["stack"].as_array().unwrap().iter().any(|it| it.as_str().unwrap().contains("minigpt"));
    let site: u64 = rows.iter().filter(in_model).map(|row| row["bytes"].as_u64().unwrap()).sum();
    let no_stack = rows.iter().find(|row| row["label"] == "(no stack)").unwrap()["bytes"].as_u64().unwrap();
    for (path, flag, prefix, truth) in [
        (&gpt, "--max-peak", "", GPT_PEAK),
        (&gpt, "--max-reserved", "", GPT_RESERVED),
        (&leak, "--max-leak", "", LEAK),
        (&gpt, "--max-site", r"minigpt\.py:\d+|^\(no stack\)$=", site + no_stack),
        (&gpt, "--max-site", r"/minigpt.py:28 forward|no stack=", (512 << 20) + no_stack),
        (&gpt, "--max-site", r"^\(no stack\)$=", no_stack),
    ] {
        for (limit, code) in [(Some(truth + 1), 0), (Some(truth), 0), (truth.checked_sub(1), 1)] {
            let Some(limit) = limit else { continue };
            let (found, row) = only_check(&[path, flag, &format!("{prefix}{limit}B")]);
            assert_eq!(found, Some(code), "{flag} {prefix}{limit}: {row}");
            assert_eq!((&row["limit_bytes"], &row["measured_bytes"]), (&limit.into(), &truth.into()), "{row}");
            assert_eq!(row["headroom_bytes"], i128::from(limit) as i64 - truth as i64, "{row}");
            assert_eq!((&row["passed"], &row["device"]), (&(code == 0).into(), &0.into()), "{row}");
            assert_eq!(row["name"], flag[2..], "{row}");
            assert_eq!(labels(&row).is_empty(), code == 0, "an exceeded budget names sites, others do not: {row}");
        }
    }
}

/// What has no stack may be of any site. `(no stack)` in an expression counts it.
#[test]
fn a_site_holds_its_stacks_and_at_most_all_blocks_without_one() {
    let gpt = fixture("gpt_train");
    let no_stack: u64 = 1_057_095_680;
    for (pattern, site) in [("/minigpt.py:28 forward", 512u64 << 20), ("nothing is called that", 0)] {
        let judged = |limit: u64| only_check(&[&gpt, "--max-site", &format!("{pattern}={limit}B")]);
        let (code, row) = judged(site + no_stack);
        assert_eq!(
            (code, &row["bound"], &row["measured_bytes"]),
            (Some(0), &"upper".into(), &(site + no_stack).into())
        );
        let (code, row) = judged(site + no_stack - 1);
        assert_eq!((code, &row["bound"], &row["measured_bytes"]), (Some(2), &"lower".into(), &site.into()));
        assert!(site == 0 || judged(site - 1).0 == Some(1));
    }
}

#[test]
fn an_expression_that_matches_no_site_is_said() {
    let (gpt, said) = (fixture("gpt_train"), "matches no recorded site that holds memory at the peak");
    // Nor do lines that are inferred match.
    for (pattern, sites) in [("nothing is called that", 0), ("^backward of", 0), (r"minigpt\.py:28 ", 1)] {
        let budget = format!("{pattern}=2GiB");
        let (code, row) = only_check(&[&gpt, "--max-site", &budget]);
        assert_eq!((code, &row["verdict"]), (Some(0), &"passed".into()), "{row}");
        assert_eq!(row["matching_sites"], sites, "{row}");
        for format in ["text", "markdown", "github"] {
            let run = check(&[&gpt, "--max-site", &budget, "--format", format]);
            assert_eq!(run.expect(0).stdout.contains(said), sites == 0, "{format}: {run:?}");
        }
    }
    let (_, row) = only_check(&[&gpt, "--max-peak", "1TiB"]);
    assert!(row.get("matching_sites").is_none(), "{row}");
}

#[test]
fn fragmentation_is_a_share_of_reserved_memory() {
    let path = fixture("fragmented_nocrash");
    let device = memviz(&["fragmentation", "--at", "peak", "--format", "json", &path]).json()["devices"][0].clone();
    let share = device["inactive_bytes"].as_u64().unwrap() as f64 / device["reserved_bytes"].as_u64().unwrap() as f64;
    assert!(share > 0.01, "{share}");
    for (limit, code) in [(share + 1e-6, 0), (share - 1e-6, 1), (1.0, 0), (0.0, 1)] {
        let (found, row) = only_check(&[&path, "--max-fragmentation", &format!("{:.6}%", limit * 100.0)]);
        assert_eq!(found, Some(code), "{limit}: {row}");
        assert!((row["measured_share"].as_f64().unwrap() - share).abs() < 1e-12, "{row}");
        assert!((row["limit_share"].as_f64().unwrap() - limit).abs() < 1e-7, "{row}");
    }
    let (_, row) = only_check(&[&path, "--max-fragmentation", "0"]);
    let pinning = device["pinning"].as_array().unwrap();
    assert_eq!(row["sites"][0]["label"], pinning[0]["label"]);
    assert_eq!(row["sites"][0]["bytes"], pinning[0]["pinned_free_bytes"]);
}

#[test]
fn percentages_are_of_the_capacity() {
    let path = fixture("gpt_train");
    let (code, row) = only_check(&[&path, "--max-peak", "50%", "--capacity", "8GiB"]);
    assert_eq!((code, &row["limit_bytes"]), (Some(1), &(4u64 << 30).into()));
    let (code, row) = only_check(&[&path, "--max-reserved", "62.5%", "--capacity", "8GB"]);
    assert_eq!((code, &row["limit_bytes"]), (Some(0), &5_000_000_000u64.into()));
}

#[test]
fn each_device_is_judged_on_its_own() {
    let path = fixture("multi_gpu");
    let run = check(&[&path, "--max-peak", "2GiB", "--format", "json"]);
    run.expect(1);
    let found: Vec<(i64, bool)> =
        checks(&run).iter().map(|row| (row["device"].as_i64().unwrap(), row["passed"].as_bool().unwrap())).collect();
    assert_eq!(found, [(0, true), (1, false)]);
    check(&[&path, "--max-peak", "2GiB", "--device", "0"]).expect(0);
    check(&[&path, "--max-peak", "2GiB", "--device", "1"]).expect(1);
    // A missing file that was requested is an error.
    let run = check(&[&path, "--max-peak", "2GiB", "--device", "0", "--device", "2"]);
    run.expect(2);
    assert!(run.stderr.contains("it has 0, 1"), "{}", run.stderr);
}

#[test]
fn every_budget_is_evaluated_independently_of_others() {
    let (gpt, ring) = (fixture("gpt_train"), fixture("ring"));
    let flags = ["--max-peak", "1GiB", "--max-reserved", "10GiB", "--max-leak", "0", "--max-fragmentation", "100%"];
    for (path, code, expected) in
        [(&gpt, 1, ["failed", "passed", "passed", "passed"]), (&ring, 2, ["failed", "unknown", "unknown", "unknown"])]
    {
        let run = check(&[&[path.as_str(), "--format", "json"], &flags[..]].concat());
        run.expect(code);
        let verdicts: Vec<String> =
            checks(&run).iter().map(|row| format!("{} {}", row["name"], row["verdict"])).collect();
        let names = ["max-peak", "max-reserved", "max-fragmentation", "max-leak"];
        let order = [expected[0], expected[1], expected[3], expected[2]];
        let expected: Vec<String> = names.iter().zip(order).map(|(name, it)| format!("\"{name}\" \"{it}\"")).collect();
        assert_eq!(verdicts, expected);
    }
    // The same across inputs: a file that cannot be read does not hide the others.
    let run = check(&["no/such/file", &gpt, "fixtures/README.md", "--max-peak", "1GiB", "--format", "json"]);
    run.expect(2);
    let lines: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<&str> = lines.iter().map(|line| line["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["unknown", "failed", "unknown"]);
    assert_eq!(lines[1]["input"]["path"], gpt);
    assert!(lines[0]["error"].is_string() && lines[2]["error"].is_string());
    assert_eq!(run.stderr.lines().count(), 2, "{}", run.stderr);
}

// ------------------------------------------------------------------ what cannot be judged

#[test]
fn unmeasurable_budgets_fail_closed_and_say_why() {
    let folder = Folder::new();
    let cut = {
        let whole = support::read_unpacked(&fixture("gpt_train"));
        folder.write("cut.pickle", &whole[..whole.len() / 2])
    };
    let timeline = "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.raw.json.gz".to_owned();
    let sampled = "fixtures/traces/profiler_traces/fake_cuda_modules.timeline.json.gz".to_owned();
    let trace = "fixtures/traces/profiler_traces/cpu.trace.json.gz".to_owned();
    let strange = "fixtures/malformed/overlapping-alloc.pickle".to_owned();
    for (path, args, reason) in [
        (&fixture("no_history"), &["--max-peak", "80GiB"] as &[&str], "no history was recorded"),
        (&fixture("state_only"), &["--max-peak", "80GiB"], "earlier entries are missing"),
        (&fixture("ring"), &["--max-peak", "80GiB"], "earlier entries are missing"),
        (&fixture("ring"), &["--max-fragmentation", "100%"], "earlier entries are missing"),
        (&fixture("ring"), &["--max-site", "minigpt=80GiB"], "earlier entries are missing"),
        (&fixture("paused"), &["--max-reserved", "80GiB"], "earlier entries are missing"),
        (&fixture("gpt_late_t201"), &["--max-peak", "80GiB"], "PyTorch 2.0"),
        (&fixture("skip_actions"), &["--max-peak", "1GiB"], "free_requested was not recorded"),
        (&fixture("empty"), &["--max-peak", "80GiB"], "nothing was allocated on any device"),
        (&fixture("multi_gpu_t201"), &["--max-peak", "80GiB"], "no history was recorded"),
        (&fixture("no_history"), &["--max-leak", "1GiB"], "no history was recorded"),
        (&fixture("tiny"), &["--max-leak", "1GiB"], "no steps were found"),
        (&fixture("gpt_late"), &["--max-leak", "1GiB"], "3 steps found"),
        (&fixture("gpt_late"), &["--max-peak", "80GiB"], "--accept-late-start"),
        (&fixture("gpt_late"), &["--max-reserved", "80GiB"], "--accept-late-start"),
        (&fixture("gpt_late"), &["--max-fragmentation", "100%"], "--accept-late-start"),
        (&fixture("gpt_late"), &["--max-site", "minigpt=80GiB"], "--accept-late-start"),
        (&fixture("gpt_late"), &["--max-site", "minigpt=2.6GiB", "--accept-late-start"], "before the recording"),
        (&fixture("leak_slow"), &["--max-leak", "1GiB", "--steps", "no such"], "no such"),
        (&cut, &["--max-peak", "80GiB", "--allow-truncated"], "cut off"),
        (&timeline, &["--max-reserved", "80GiB"], "does not record reserved"),
        (&sampled, &["--max-peak", "80GiB"], "some instants"),
        (&trace, &["--max-fragmentation", "100%"], "segments"),
        (&strange, &["--max-peak", "80GiB"], "contradicts itself"),
        (&strange, &["--max-leak", "80GiB"], "contradicts itself"),
    ] {
        let run = check(&[&[path.as_str(), "--format", "json"], args].concat());
        run.expect(2);
        assert!(run.stderr.starts_with(&format!("memviz: {path}: {}", &args[0][2..])), "{args:?}: {:?}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{:?}", run.stderr);
        assert!(run.stderr.contains(reason), "{path} {args:?}: expected {reason:?} in {:?}", run.stderr);
        let unknown: Vec<Value> = checks(&run).into_iter().filter(|row| row["verdict"] == "unknown").collect();
        assert!(!unknown.is_empty() && unknown.iter().all(|row| row["passed"] == false), "{unknown:?}");
        assert!(unknown[0]["reason"].as_str().unwrap().contains(reason), "{unknown:?}");
        // Every format for people contains it.
        for format in ["text", "markdown", "junit", "github"] {
            let run = check(&[&[path.as_str(), "--format", format], args].concat());
            run.expect(2);
            assert!(run.stdout.contains("cannot be judged"), "{format}: {}", run.stdout);
        }
    }
}

#[test]
fn budgets_that_cannot_be_judged_are_counted() {
    let run = check(&[&fixture("gpt_late"), "--max-peak", "80GiB", "--max-leak", "1GiB"]);
    run.expect(2);
    assert!(run.stderr.contains("2 budgets cannot be judged; the first is max-peak on device 0: "), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn bounds_that_decide_are_enough() {
    // A limit below the known memory is exceeded, whatever else there was.
    for (name, lower) in [("no_history", 965_820_416u64), ("ring", GPT_PEAK), ("gpt_late_t201", 4_452_746_240)] {
        let (code, row) = only_check(&[&fixture(name), "--max-peak", &(lower - 1).to_string()]);
        assert_eq!((code, &row["verdict"], &row["bound"]), (Some(1), &"failed".into(), &"lower".into()), "{name}");
        assert_eq!(row["measured_bytes"], lower, "{name}");
        let (code, _) = only_check(&[&fixture(name), "--max-peak", &lower.to_string()]);
        assert_eq!(code, Some(2), "{name}");
    }
    // An upper bound below the limit is enough, too.
    let (code, row) = only_check(&[&fixture("skip_actions"), "--max-peak", "2686350336"]);
    assert_eq!((code, &row["verdict"], &row["bound"]), (Some(0), &"passed".into(), &"upper".into()));
    assert!(row["reason"].as_str().unwrap().contains("free_requested"));
    // Blocks of unknown stacks may all belong to a site, and are still not enough.
    let (code, row) = only_check(&[&fixture("gpt_late"), "--max-site", "minigpt=6GiB", "--accept-late-start"]);
    assert_eq!((code, &row["bound"]), (Some(0), &"upper".into()));
}

#[test]
fn a_recording_that_began_late_is_judged_from_there_on_where_that_is_accepted() {
    let path = fixture("gpt_late");
    let peak = GPT_PEAK.to_string();
    let (code, row) = only_check(&[&path, "--max-peak", &peak, "--accept-late-start"]);
    assert_eq!((code, &row["verdict"]), (Some(0), &"passed".into()));
    for format in ["text", "markdown", "json"] {
        let run = check(&[&path, "--max-peak", "5GiB", "--accept-late-start", "--format", format]);
        assert!(run.expect(0).stdout.contains("incomplete history"), "{}", run.stdout);
    }
    // A limit exceeded since then is exceeded, whatever was before.
    let (code, row) = only_check(&[&path, "--max-peak", &(GPT_PEAK - 1).to_string()]);
    assert_eq!((code, &row["bound"]), (Some(1), &"lower".into()));
    let folder = Folder::new();
    let absolute = std::fs::canonicalize(&path).unwrap();
    let budget = format!("[[budget]]\ninput = {absolute:?}\nmax-peak = {peak}\n");
    folder.write("memviz.toml", &budget);
    folder.check(&[]).expect(2);
    folder.write("memviz.toml", budget + "accept-late-start = true\n");
    folder.check(&[]).expect(0);
}

#[test]
fn only_counted_recordings_meet_a_budget_where_that_is_required() {
    let counted = "fixtures/stories/held_object_flawed/snapshot.pickle.gz";
    for (recording, code, verdict) in [(counted, 0, "passed"), (&fixture("tiny"), 2, "unknown")] {
        for budget in [["--max-peak", "80GiB"], ["--max-fragmentation", "100%"]] {
            only_check(&[recording, budget[0], budget[1]]);
            let (found, row) = only_check(&[recording, budget[0], budget[1], "--require-counters"]);
            assert_eq!((found, &row["verdict"]), (Some(code), &verdict.into()), "{recording} {budget:?}: {row}");
        }
    }
    // What is exceeded is exceeded.
    let (code, row) = only_check(&[&fixture("tiny"), "--max-peak", "1MiB", "--require-counters"]);
    assert_eq!((code, &row["verdict"]), (Some(1), &"failed".into()));
    let folder = Folder::new();
    let absolute = std::fs::canonicalize(fixture("tiny")).unwrap();
    let budget = format!("[[budget]]\ninput = {absolute:?}\nmax-peak = \"80GiB\"\n");
    folder.write("memviz.toml", &budget);
    folder.check(&[]).expect(0);
    folder.write("memviz.toml", budget + "require-counters = true\n");
    folder.check(&[]).expect(2);
}

// ------------------------------------------------------------------ usage

#[test]
fn bad_budgets_are_one_line_and_2() {
    let tiny = fixture("tiny");
    let too_much = "99999999999999999999";
    for (args, parts) in [
        (&["--max-peak", "10XB"] as &[&str], &["--max-peak", "10XB", "40GiB"] as &[&str]),
        (&["--max-peak", "-1"], &["-1"]),
        (&["--max-peak", "-5GiB"], &["-5GiB"]),
        (&["--max-peak", too_much], &[too_much]),
        (&["--max-reserved", "16777216TiB"], &["16777216TiB"]),
        (&["--max-peak", "1e9"], &["1e9"]),
        (&["--max-peak", ""], &["--max-peak"]),
        (&["--max-peak"], &["--max-peak"]),
        (&["--max-peak", "90%"], &["90%", "capacity"]),
        (&["--max-peak", "101%", "--capacity", "1GiB"], &["101%"]),
        (&["--max-fragmentation", "101%"], &["101%"]),
        (&["--max-fragmentation", "-1%"], &["-1%"]),
        (&["--max-fragmentation", "half"], &["half"]),
        (&["--max-leak", "-1"], &["-1"]),
        (&["--max-site", "model.py"], &["REGEX=SIZE", "model.py"]),
        (&["--max-site", "(=1GiB"], &["regular expression", "open group without closing"]),
        (&["--max-site", "a=10XB"], &["10XB"]),
        (&["--capacity", "10XB"], &["10XB"]),
        (&["--max-peek", "1GiB"], &["--max-peek", "--max-peak"]),
        (&["--tolerance", "2%", "--max-peak", "1GiB"], &["--tolerance", "--baseline"]),
        (&["--tolerance", "-2%", "--baseline", "x"], &["-2%"]),
        (&["--update-baseline", "--max-peak", "1GiB"], &["--update-baseline", "--baseline"]),
        (&["--baseline", "no/such/file"], &["no/such/file"]),
        (&["--config", "no/such/file"], &["no/such/file"]),
        (&["--format", "xml", "--max-peak", "1GiB"], &["xml", "junit", "github"]),
        (&[], &["--max-peak 40GiB", "memviz.toml"]),
        (&["-", "-", "--max-peak", "1GiB"], &["standard input"]),
    ] {
        let run = check(&[&[tiny.as_str()], args].concat());
        for part in parts {
            run.expect_error(part);
        }
    }
    memviz(&["check", "no/such/file", "--max-peak", "1GiB"]).expect_error("memviz: no/such/file: ");
    memviz(&["check", "--max-peak", "1GiB"]).expect_error("INPUT");
}

#[test]
fn strict_is_about_devices_that_are_not_judged_as_well() {
    let folder = Folder::new();
    let path = folder.write("two.pickle", program::two_devices_of_which_one_contradicts_itself());
    check(&[&path, "--device", "0", "--max-peak", "1GiB"]).expect(0);
    check(&[&path, "--device", "0", "--max-peak", "1GiB", "--strict"]).expect(1);
    check(&[&path, "--max-peak", "1GiB"]).expect(2);
}

#[test]
fn answers_do_not_depend_on_threads_and_keep_the_order_of_inputs() {
    let paths = ["leak_slow", "gpt_train", "multi_gpu", "ring"].map(fixture);
    let inputs: Vec<&str> = paths.iter().map(String::as_str).collect();
    let flags = ["--max-peak", "1GiB", "--max-fragmentation", "1%", "--max-leak", "1KiB", "--format", "json"];
    let runs = ["1", "2", "8"].map(|threads| check(&[&inputs[..], &flags, &["--threads", threads]].concat()));
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0], runs[2]);
    let lines = runs[0].stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<String> = lines.map(|line| line["input"]["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, paths);
}

#[test]
fn standard_input_is_an_input_like_others() {
    let bytes = fs::read(fixture("gpt_train")).unwrap();
    let run = support::memviz_reading(&["check", "-", "--max-peak", "4GiB"], &bytes);
    assert!(run.expect(1).stdout.starts_with("<stdin> (1 budget exceeded)"), "{}", run.stdout);
}

#[test]
fn synthetic_recordings_are_complete() {
    let folder = Folder::new();
    let path = folder.write("a.pickle", snapshot(&[Alloc::new("train.py", 7, "step", 20)]));
    let (code, row) = only_check(&[&path, "--max-peak", "20MiB"]);
    assert_eq!((code, &row["measured_bytes"], row.get("bound")), (Some(0), &(20u64 << 20).into(), None));
}
