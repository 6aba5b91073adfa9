//! The JSON Schema that memviz prints says of the JSON that it writes what is true.
#![cfg(feature = "cli")]

use crate::support::{FIXTURES, MALFORMED, fixture, memviz, names};
use jsonschema::{Validator, draft202012};
use serde_json::Value;
use std::collections::BTreeMap;

/// What makes each command write each part of its answer. A command without a line here fails the first test.
const ANSWERS: &[(&str, &[&[&str]])] = &[
    ("info", &[&[]]),
    ("peak", &[&[], &["--by", "operator"], &["--to", "entry:2"], &["--each", "phase"], &["--each", "annotation"]]),
    ("fragmentation", &[&[], &["--over-time", "--points", "3"]]),
    ("oom", &[&[], &["--by", "stack"]]),
    ("leaks", &[&["--capacity", "80GiB"]]),
    ("checkpoint", &[&[], &["--top", "1"]]),
    ("simulate", &[&[]]),
    ("fit", &[&["--vary", "batch=4,8", "--capacity", "80GiB"], &["--capacity", "3GiB"]]),
    ("diff", &[&[], &["--by", "function"]]),
    ("check", &[CHECK]),
    ("ranks", &[&[]]),
    ("triage", &[&[]]),
];

/// Budgets that are kept, exceeded and unknown.
const CHECK: &[&str] = &[
    "--max-peak",
    "1B",
    "--max-reserved",
    "1TiB",
    "--max-fragmentation",
    "0.1%",
    "--max-leak",
    "1B",
    "--max-site",
    ".=1B",
];

/// Keys that answers leave out at times, and objects whose keys are those of the recording.
const OPTIONAL: [&str; 26] = [
    "/bounds",
    "/window",
    "/comparison",
    "/programs",
    "/time_us",
    "/code",
    "/each",
    "/ranges",
    "/left_out_bytes",
    "/bound",
    "/operators",
    "/over_time",
    "/kinds",
    "/actions",
    "/settings/other",
    "/advice/0",
    "/evidence/0",
    "/categories/rows/0/evidence",
    "/ooms/0/peak",
    "/basis",
    "/sites",
    "/reason",
    "/pattern",
    "/limit_share",
    "/measured_share",
    "/matching_sites",
];

#[test]
fn every_command_has_a_schema_and_no_other() {
    let documented = schemas();
    assert_eq!(documented.keys().map(String::as_str).collect::<Vec<_>>(), {
        let mut tested: Vec<&str> = ANSWERS.iter().map(|(command, _)| *command).collect();
        tested.sort_unstable();
        tested
    });
    // Whatever takes `--format json` is described.
    let help = memviz(&["help"]).stdout;
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    for command in commands.filter(|command| command.chars().all(|next| next.is_ascii_lowercase())) {
        let options = memviz(&[command, "--help"]).stdout;
        let writes_json = options.contains("json");
        assert_eq!(documented.contains_key(command), writes_json && command != "schema", "{command}");
    }
    for (command, schema) in &documented {
        draft202012::meta::validate(schema).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    memviz(&["schema", "frobnicate"]).expect_error("expected one of triage, info, peak");
}

#[test]
fn what_every_command_writes_is_valid() {
    let all = validator(&memviz(&["schema"]).json());
    let validators: BTreeMap<String, Validator> =
        schemas().iter().map(|(command, schema)| (command.clone(), validator(schema))).collect();
    let mut recordings: Vec<String> =
        names(FIXTURES).iter().filter(|name| !name.starts_with("big")).step_by(4).map(|name| fixture(name)).collect();
    recordings.extend(["oom", "fragmented", "leak_slow", "state_only", "empty", "ring"].map(fixture));
    recordings.extend(names(MALFORMED).iter().map(|name| format!("{MALFORMED}/{name}")));
    let traces = "fixtures/traces/profiler_traces";
    recordings
        .extend(names(traces).iter().filter(|name| !name.starts_with("truth")).map(|name| format!("{traces}/{name}")));
    let mut valid: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &recordings {
        for (command, answers) in ANSWERS {
            for args in *answers {
                // What compares takes two.
                let inputs: &[&str] = match *command {
                    "diff" => &[&fixture("multi_gpu"), path],
                    "fit" if args.contains(&"--vary") => &[&fixture("multi_gpu"), path],
                    _ => &[path],
                };
                let run = memviz(&[&[*command, "--format", "json"], *args, inputs].concat());
                // Budgets that are not kept are an answer, too.
                if run.stdout.is_empty() || (run.code != Some(0) && *command != "check") {
                    continue;
                }
                // `ranks` writes an object for each rank, and one for all.
                for answer in serde_json::Deserializer::from_str(&run.stdout).into_iter::<Value>() {
                    let answer = answer.unwrap();
                    for validator in [&validators[*command], &all] {
                        if let Err(error) = validator.validate(&answer) {
                            panic!("{command} {args:?} {path}: {}: {error}", error.instance_path());
                        }
                    }
                }
                *valid.entry(command).or_default() += 1;
            }
        }
    }
    assert!(ANSWERS.iter().all(|(command, _)| valid.get(command).is_some_and(|&valid| valid > 10)), "{valid:?}");
}

/// A schema that accepts everything would pass the test above.
#[test]
fn what_no_command_writes_is_not_valid() {
    let schemas = schemas();
    for (command, _) in ANSWERS {
        let validator = validator(&schemas[*command]);
        let inputs: &[&str] = match *command {
            "diff" => &[&fixture("gpt_train"), &fixture("gpt_train_ckpt")],
            "fit" => {
                &["fixtures/fit/minigpt_batch4/snapshot.pickle.gz", "fixtures/fit/minigpt_batch8/snapshot.pickle.gz"]
            }
            "leaks" => &[&fixture("leak")],
            // The one that has candidates and checkpointed functions.
            "checkpoint" => &[&fixture("gpt_train_ckpt_every2")],
            _ => &[&fixture("oom")],
        };
        let options: &[&str] = match *command {
            "info" | "triage" | "simulate" => &[],
            "check" => CHECK,
            "fit" => &["--vary", "batch=4,8", "--capacity", "4GiB", "--top", "2"],
            _ => &["--top", "2"],
        };
        let run = memviz(&[&[*command, "--format", "json"], options, inputs].concat());
        let answer: Value = serde_json::Deserializer::from_str(&run.stdout).into_iter().next().unwrap().unwrap();
        assert!(validator.is_valid(&answer), "{command}");
        let mut keys = Vec::new();
        pointers(&answer, &mut String::new(), &mut keys);
        assert!(keys.len() > 20, "{command}");
        for pointer in keys {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let mut other = answer.clone();
            *other.pointer_mut(&pointer).unwrap() = serde_json::json!([[null]]);
            assert!(!validator.is_valid(&other), "{command}: {pointer} may be anything");
            if OPTIONAL.iter().any(|optional| parent.ends_with(optional) || pointer.ends_with(optional)) {
                continue;
            }
            let mut without = answer.clone();
            if let Some(object) = without.pointer_mut(parent).and_then(Value::as_object_mut) {
                object.remove(key);
                assert!(!validator.is_valid(&without), "{command}: {pointer} may be missing");
            }
        }
        for (key, value) in [("command", Value::from("other")), ("schema_version", Value::from(99))] {
            let mut other = answer.clone();
            other[key] = value;
            assert!(!validator.is_valid(&other), "{command}: another {key}");
        }
    }
}

// ------------------------------------------------------------------ helpers

/// The schema of each command, by name.
fn schemas() -> BTreeMap<String, Value> {
    let all = memviz(&["schema"]).json();
    let one = |schema: &Value| {
        let command = schema["properties"]["command"]["const"].as_str().unwrap().to_owned();
        let schema = memviz(&["schema", &command]).json();
        (command, schema)
    };
    all["oneOf"].as_array().unwrap().iter().map(one).collect()
}

fn validator(schema: &Value) -> Validator {
    draft202012::new(schema).unwrap_or_else(|error| panic!("{error}"))
}

/// Where every key of every object is, the first item of each list standing for all.
fn pointers(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    let mut visit = |key: &str, value: &Value, is_key: bool| {
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        if is_key {
            found.push(at.clone());
        }
        pointers(value, at, found);
        at.truncate(length);
    };
    match value {
        Value::Object(pairs) => pairs.iter().for_each(|(key, value)| visit(key, value, true)),
        Value::Array(items) => items.iter().take(1).for_each(|value| visit("0", value, false)),
        _ => {}
    }
}
