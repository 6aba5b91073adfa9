//! PyTorch's own counters in a recording, beside the replayed ones.

use crate::support::{Case, FIXTURES, assert_none, cases, open};
use memviz::Recording;
use memviz::model::TraceEntries;
use memviz::model::memory_stats::MemoryStats;
use memviz::replay::{ComparedCounter, replay};
use serde_json::{Value, json};

/// What `torch_memviz` would have written: the counters of the truth at the end, and at the start those of an empty allocator,
/// if it was empty: zeros, or no counter before the first use of the device.
fn counters(case: &Case, recording: &Recording) -> MemoryStats {
    let devices = case.truth["devices"].as_array().unwrap();
    let of = |(number, device): (usize, &Value)| {
        let is_complete = |device: i32| {
            let history = recording.histories.iter().find(|history| history.device == device);
            history.is_none_or(|history| history.completeness.is_complete())
        };
        let end = &device["memory_stats"];
        let zeros =
            |stats: &Value| -> Value { stats.as_object().unwrap().keys().map(|key| (key.clone(), json!(0))).collect() };
        json!({"start": is_complete(number as i32).then(|| zeros(end)), "end": end})
    };
    let devices: Vec<Value> = devices.iter().enumerate().map(of).collect();
    MemoryStats::of_json(&json!({"version": 1, "devices": devices}).to_string()).unwrap()
}

#[test]
fn counters_of_pytorch_equal_the_replayed_ones() {
    let (mut problems, mut equal) = (Vec::new(), 0);
    let is_told = |case: &Case| case.own_truth && case.truth["devices"][0]["memory_stats"].is_object();
    for case in cases(FIXTURES).into_iter().filter(is_told) {
        let mut recording = open(&case.path);
        recording.snapshot.notes.memory_stats = Some(counters(&case, &recording));
        for history in replay(&recording.snapshot) {
            let differing = history.counted.iter().filter(|compared| compared.differs());
            problems.extend(
                differing.map(|it: &ComparedCounter| format!("{}, device {}: {it:?}", case.path, history.device)),
            );
            equal += history.counted.len();
        }
    }
    assert_none(&problems);
    assert!(equal > 1000, "only {equal} counters were compared");
}

/// Before a program uses a device, `torch.cuda.memory_stats()` is empty. What is lost shows nevertheless: the counters at the end say
/// how many requests there were, and how high the peak was.
#[test]
fn what_is_lost_shows_where_no_counter_existed_at_the_start() {
    for (name, lost) in [("held_object_cured", 0..158), ("healthy_tasks", 0..40)] {
        let mut recording = open(&format!("fixtures/stories/{name}/snapshot.pickle.gz"));
        assert!(recording.snapshot.notes.memory_stats.as_ref().unwrap().devices[0].start.as_ref().unwrap().is_empty());
        let [history] = &replay(&recording.snapshot)[..] else { panic!("{name}: several devices") };
        assert!(history.counted.len() > 8 && !history.completeness.counters_differ, "{name}");

        let rows = recording.snapshot.traces[0].rows.clone();
        let mut kept = TraceEntries::default();
        recording.snapshot.entries.rows(lost.end..rows.end).for_each(|entry| kept.push(entry));
        (recording.snapshot.traces[0].rows, recording.snapshot.entries) = (0..kept.len(), kept);
        assert!(replay(&recording.snapshot)[0].completeness.counters_differ, "{name}");
    }
}
