//! Categories in recordings of strangers, compared with their READMEs and sources.
#![cfg(feature = "cli")]

use crate::support::{open, stranger};
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::triage::TriageOptions;
use memviz::facts::grouping::GroupBy;
use memviz::facts::grouping::attribution::Attribution;

/// What holds a device's memory at its peak, by category.
fn categories(path: &str) -> Attribution {
    let report = open(path).peak(&PeakOptions::default().by(GroupBy::Category)).unwrap();
    let largest = report.devices.into_iter().max_by_key(|device| device.attribution.total_bytes).unwrap();
    largest.attribution
}

fn percent_of(attribution: &Attribution, label: &str) -> u64 {
    let row = attribution.rows.iter().find(|row| row.label == label);
    row.map_or(0, |row| row.bytes * 100 / attribution.total_bytes)
}

/// Files, and the least percent of the peak that categories must hold.
const HELD: [(&str, &[(&str, u64)]); 14] = [
    // Older than the kept history, with stacks.
    (
        "notHanmin-memory_snapshot_forward.pickle.gz",
        &[("optimizer_state", 36), ("gradient", 18), ("parameter", 18), ("activation", 26)],
    ),
    ("Muduard-7bced5_dump_snapshot.pickle.gz", &[("activation", 79)]),
    ("LfieLike-my_snapshot.pickle.gz", &[("kv_cache", 17), ("parameter", 82)]),
    ("Yiyi-philosophy-1.3b_snapshot.pickle.gz", &[("parameter", 99)]),
    ("Yiyi-philosophy-oom_snapshot.pickle.gz", &[("parameter", 99)]),
    ("kkaitlyn111-memory_2.7b_forward.pickle.gz", &[("parameter", 63), ("gradient", 23)]),
    // No history.
    ("kkaitlyn111-memory_snapshot.pickle.gz", &[("optimizer_state", 49), ("gradient", 24), ("parameter", 24)]),
    ("volcengine-verl_mem.pickle.gz", &[("kv_cache", 87), ("parameter", 4), ("gradient", 3)]),
    // Weights without stacks, by the sizes of layers.
    ("Charan6924-memory_snapshot.pickle.gz", &[("parameter", 67)]),
    ("Wedsonlin-medium_512_inference_memory_snapshot.pickle.gz", &[("parameter", 86)]),
    ("Maphsge4-snapshot.pickle.gz", &[("parameter", 55)]),
    ("Maphsge4-bdf4fe_snapshot.pickle.gz", &[("parameter", 91)]),
    // Moved by the loop of `_apply` for parameters, where frees are on other lines.
    ("Maphsge4-ec5be1_snapshot.pickle.gz", &[("parameter", 71)]),
    // Moments that an optimizer allocates in each step.
    ("bcrafton-memory_snapshot.pickle.gz", &[("optimizer_state", 47), ("model_state", 39)]),
];

#[test]
fn memory_has_the_category_of_its_purpose() {
    let mut problems = Vec::new();
    for (name, held) in HELD {
        let Some(path) = stranger(name) else { continue };
        let attribution = categories(&path);
        for &(label, least) in held {
            let found = percent_of(&attribution, label);
            if found < least {
                problems.push(format!("{name}: {label} {found}%, expected {least}%"));
            }
        }
    }
    crate::support::assert_none(&problems);
}

/// Activations without a stack have many sizes, too, and are not a model.
#[test]
fn blocks_without_evidence_stay_unknown() {
    for name in ["Muduard-dump_snapshot.pickle.gz", "ZijianDu-c005a2_memory.pickle.gz"] {
        let Some(path) = stranger(name) else { continue };
        assert!(percent_of(&categories(&path), "unknown") > 95, "{name}");
    }
}

#[test]
fn free_memory_is_shown_without_a_history() {
    let Some(path) = stranger("kkaitlyn111-memory_snapshot.pickle.gz") else { return };
    let report = open(&path).triage(&TriageOptions::default()).unwrap();
    let found = format!("{:?}", report.devices[report.first].findings);
    assert!(found.contains("Free { free: 20818279936"), "{found}");
}
