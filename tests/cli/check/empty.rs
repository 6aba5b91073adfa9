//! Budgets over ranges without entries, which every recording would meet, and over memory that may be more than is known.

use super::Folder;
use super::program::{leaking, pickle, whole};
use serde_json::{Value, json};

#[test]
fn a_range_without_entries_keeps_no_budget() {
    let folder = Folder::new();
    let path = folder.write("steps.pickle", pickle(&leaking()));
    for (between, code) in [
        ("start..end", 1),
        ("peak..peak", 2),
        ("start..start", 2),
        ("end..end", 2),
        ("entry:3..entry:3", 2),
        ("time:0s..time:0s", 2),
        ("step:1:end..step:2:start", 2),
        ("annotation:ProfilerStep#2:start..annotation:ProfilerStep#2:start", 2),
        ("step:2:start..step:3:end", 1),
    ] {
        let run = folder.check(&[&path, "--max-residue", &format!("{between}=0")]);
        assert_eq!(run.code, Some(code), "{between}: {run:?}");
        if code == 2 {
            assert_eq!(run.stderr.lines().count(), 1, "{between}: {}", run.stderr);
            assert!(run.stderr.contains("expected a range with entries in it"), "{between}: {}", run.stderr);
        }
    }
}

/// A device that is idle while another one works leaves nothing behind, and that is known.
#[test]
fn a_device_that_is_idle_meanwhile_is_judged() {
    let mut idle = whole();
    for entry in idle["device_traces"][1].as_array_mut().unwrap() {
        entry["time_us"] = json!(entry["time_us"].as_u64().unwrap() + 1000);
    }
    idle["external_annotations"] = json!([
        {"stage": "START", "name": "late", "device": 1, "time_us": 900},
        {"stage": "END", "name": "late", "device": 1, "time_us": 2000},
    ]);
    let folder = Folder::new();
    let path = folder.write("idle.pickle", pickle(&idle));
    let range = "annotation:late:start..annotation:late:end=0";
    for (device, code) in [("0", 0), ("1", 1)] {
        folder.check(&[&path, "--device", device, "--max-residue", range]).expect(code);
    }
}

#[test]
fn steps_without_entries_keep_no_budget() {
    let folder = Folder::new();
    let judged = |move_to: &dyn Fn(u64) -> u64, flags: &[&str]| {
        let mut moved = leaking();
        for annotation in moved["external_annotations"].as_array_mut().unwrap() {
            annotation["time_us"] = json!(move_to(annotation["time_us"].as_u64().unwrap()));
        }
        let path = folder.write("steps.pickle", pickle(&moved));
        let run = folder.check(&[&[path.as_str(), "--max-leak", "0"], flags].concat());
        assert!(run.code != Some(2) || run.stderr.lines().count() == 1, "{}", run.stderr);
        run.code
    };
    for flags in [&[][..], &["--steps", "Step"]] {
        assert_eq!(judged(&|time| time, flags), Some(1), "{flags:?}");
        assert_eq!(judged(&|_| 15, flags), Some(2), "all at one entry, {flags:?}");
        assert_eq!(judged(&|time| 1_000_000 + time, flags), Some(2), "another clock, {flags:?}");
        assert_eq!(judged(&|time| 305 + time / 100, flags), Some(2), "behind the last entry, {flags:?}");
    }
}

/// A program that keeps what it allocates once, and then allocates nothing more.
#[test]
fn steps_after_the_last_entry_are_judged_if_another_one_holds_entries() {
    let folder = Folder::new();
    let judged = |first_start: u64| {
        let mut once = whole();
        let annotations = (0..6).flat_map(|step| {
            let (start, end) = (first_start + 100 * step, first_start + 100 * step + 90);
            let name = format!("step_{step}");
            [
                json!({"stage": "START", "name": name, "device": 0, "time_us": start}),
                json!({"stage": "END", "name": name, "device": 0, "time_us": end}),
            ]
        });
        once["external_annotations"] = annotations.collect();
        let path = folder.write("once.pickle", pickle(&once));
        folder.check(&[&path, "--max-leak", "0"]).code
    };
    assert_eq!(judged(0), Some(0));
    assert_eq!(judged(1000), Some(2), "another clock");
}

/// Stacks of some entries are lost: entries without a stack may belong to any site.
#[test]
fn bytes_without_a_stack_may_be_of_any_site() {
    let folder = Folder::new();
    let judged = |lost: &[usize], blank: &Value, limit: &str| {
        let mut changed = leaking();
        let trace = changed["device_traces"][0].as_array_mut().unwrap();
        // The allocation that stays, in the order of steps: a segment for all, and five entries for each.
        for &step in lost {
            trace[3 + 5 * step]["frames"] = blank.clone();
        }
        let path = folder.write("site.pickle", pickle(&changed));
        let run = folder.check(&[&path, "--max-site", &format!("train.py:7={limit}")]);
        if run.code == Some(2) {
            assert!(run.stderr.contains("has no Python stack"), "{}", run.stderr);
        }
        run.code
    };
    // At the peak, in the last step, six of these blocks are live, and the block of line 5.
    assert_eq!(judged(&[], &json!([]), "120MiB"), Some(0));
    assert_eq!(judged(&[], &json!([]), "119MiB"), Some(1));
    for blank in [json!([]), json!([{"filename": "", "line": 0, "name": ""}])] {
        assert_eq!(judged(&[1, 2], &blank, "119MiB"), Some(2), "80 to 120 MiB");
        assert_eq!(judged(&[1, 2], &blank, "120MiB"), Some(0), "whosesoever they are");
        assert_eq!(judged(&[1, 2], &blank, "79MiB"), Some(1), "without them");
    }
}

/// A leak is recognized by its code: a lost stack may hide one.
#[test]
fn blocks_kept_without_a_stack_may_be_a_leak() {
    let folder = Folder::new();
    let judged = |lost: &[usize], limit: &str| {
        let mut changed = leaking();
        for &step in lost {
            changed["device_traces"][0][3 + 5 * step]["frames"] = json!([]);
        }
        let path = folder.write("steps.pickle", pickle(&changed));
        folder.check(&[&path, "--max-leak", limit, "--steps", "Step"])
    };
    judged(&[], "20MiB").expect(0);
    judged(&[], "19MiB").expect(1);
    for lost in [&[2usize][..], &[1, 3], &[1, 2, 3, 4]] {
        for limit in ["19MiB", "20MiB"] {
            assert_ne!(judged(lost, limit).code, Some(0), "{lost:?}");
        }
    }
    let run = judged(&[2], "20MiB");
    assert!(run.expect(2).stderr.contains("20.00 MiB that steps leave behind has no stack"), "{}", run.stderr);
}

/// An entry of `memviz.toml` without a name is called like its input.
#[test]
fn a_path_occurs_once_in_a_line() {
    let folder = Folder::new();
    folder.write("steps.pickle", pickle(&leaking()));
    folder.write("memviz.toml", "[[budget]]\ninput = \"steps.pickle\"\nmax-residue = [\"oom..end=1MiB\"]\n");
    for format in ["text", "github"] {
        let run = folder.check(&["--format", format]);
        run.expect(2);
        for line in run.stderr.lines().chain(run.stdout.lines()) {
            assert!(line.matches("steps.pickle").count() < 2, "{format}: {line}");
        }
    }
}
