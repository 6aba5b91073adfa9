//! Files whose bytes follow rules that the file does not state, and files from which memory is missing. The figures are those of
//! PyTorch's counters when the file was made.

use crate::support::open;
use memviz::Recording;
use memviz::analysis::check::{Budgets, CheckOptions, CheckVerdict};
use memviz::analysis::simulate::SimulateOptions;
use memviz::replay::{Bound, InferredRule, Metric, Track};

fn report(name: &str) -> Recording {
    open(&format!("fixtures/reports/{name}"))
}

#[test]
fn a_rule_that_alone_explains_a_recording_gives_its_figures() {
    for (name, rule, allocated, active, requested) in [
        ("ascend_tiny.pickle", InferredRule::Ascend, 528_384, 528_384, 524_288),
        ("settings_toggled_expandable.pickle", InferredRule::ExpandableChanged, 115_958_784, 115_958_784, 113_651_062),
        ("skip_free_completed.pickle", InferredRule::NoFreeCompleted, 34_603_008, 34_603_008, 33_554_432),
    ] {
        let recording = report(name);
        let history = &recording.histories[0];
        assert_eq!(history.anomalies.total(), 0, "{name}");
        assert_eq!(history.completeness.inferred_rule, Some(rule), "{name}");
        let maximum = |metric: Metric| history.maxima[metric as usize].bytes;
        let found = [Metric::Allocated, Metric::Active, Metric::Requested].map(maximum);
        assert_eq!(found, [allocated, active, requested], "{name}");
    }
    let completeness = report("skip_free_completed.pickle").histories[0].completeness;
    assert_eq!(completeness.bound(Metric::Active), Some(Bound::Lower), "nobody recorded when frees completed");
    assert_eq!(completeness.bound(Metric::Allocated), None);
}

/// Pools that do not split segments, and settings that change: what entries and segments show of them. Programs with random sizes,
/// recorded with PyTorch 2.15.
#[test]
fn pools_and_settings_are_known_from_segments() {
    for (name, whole_segments, rule, allocated) in [
        ("mempool_no_split.pickle", true, None, 54_525_952),
        // A request got a new segment although the rest of another one had room.
        ("no_split_refused.pickle.gz", true, None, 218_659_840),
        // Blocks are whole ranges of free pages.
        ("no_split_expandable.pickle.gz", true, None, 1_294_175_232),
        // Blocks of expandable segments keep rests of up to 1 MiB while the setting is off.
        ("expandable_toggled.pickle.gz", false, Some(InferredRule::ExpandableChanged), 464_441_344),
    ] {
        let recording = report(name);
        let history = &recording.histories[0];
        assert_eq!(history.anomalies.total(), 0, "{name}");
        let found = (history.completeness.whole_segments, history.completeness.inferred_rule);
        assert_eq!(found, (whole_segments, rule), "{name}");
        assert_eq!(history.maxima[Metric::Allocated as usize].bytes, allocated, "{name}");
    }
}

/// Blocks of 31.10 MiB are whole segments or not, and nothing shows which: PyTorch counted 170,003,968 bytes.
#[test]
fn a_peak_under_one_of_two_rules_is_a_range() {
    let recording = report("either_rule.pickle.gz");
    let completeness = recording.histories[0].completeness;
    let lowest = recording.histories[0].maxima[Metric::Allocated as usize].bytes;
    assert_eq!(completeness.bound(Metric::Allocated), Some(Bound::Lower));
    assert!((lowest..=lowest + completeness.other_rules_bytes as i64).contains(&170_003_968), "{lowest}");
    assert_eq!(verdict(&recording, 140 << 20, Vec::new()), CheckVerdict::Unknown);
    assert_eq!(verdict(&recording, 200 << 20, Vec::new()), CheckVerdict::Passed);
}

/// Settings that a recording states need no other rule, also where it starts late or ran out of memory.
#[test]
fn a_recording_that_follows_its_settings_needs_no_other_rule() {
    for name in ["tiny", "expandable", "private_pool", "oom", "gpt_late"] {
        for history in open(&crate::support::fixture(name)).histories {
            assert_eq!(history.completeness.inferred_rule, None, "{name}");
            assert_eq!(
                (history.completeness.whole_segments, history.completeness.other_rules_bytes),
                (false, 0),
                "{name}"
            );
        }
    }
}

fn verdict(recording: &Recording, max_peak: u64, devices: Vec<i32>) -> CheckVerdict {
    let budgets = Budgets::default().max_peak(Some(max_peak)).devices(devices);
    recording.check(&CheckOptions::default().budgets(vec![budgets])).verdict()
}

/// `trace_plot -f` leaves out what was freed: the recording that this page was made from peaks at 104.04 MiB, the page at 68.05.
#[test]
fn a_page_without_freed_blocks_cannot_meet_a_budget() {
    let page = report("trace_plot_filtered.html");
    assert!(page.histories[0].completeness.freed_left_out && !page.is_complete());
    assert_eq!(page.histories[0].completeness.bound(Metric::Allocated), Some(Bound::Lower));
    assert_eq!(verdict(&page, 90 << 20, Vec::new()), CheckVerdict::Unknown);
    assert_eq!(verdict(&page, 60 << 20, Vec::new()), CheckVerdict::Failed);
}

/// Kernels ran, and only 8 bytes of the CPU were recorded: with caching off, nothing tells of the GPU's memory.
#[test]
fn a_trace_without_the_memory_of_its_gpu_cannot_meet_a_budget() {
    let trace = report("nopool.json");
    assert!(trace.snapshot.lacks_gpu_memory());
    assert_eq!(verdict(&trace, 1 << 30, Vec::new()), CheckVerdict::Unknown);
    assert_eq!(verdict(&trace, 1 << 30, vec![-2]), CheckVerdict::Unknown, "CPU memory is a lower bound");
    assert_eq!(verdict(&trace, 4, vec![-2]), CheckVerdict::Failed);
}

/// PyTorch counts CPU memory from the first profiler of a process on, and misses frees between two profilers: the 100 MiB in the
/// totals of the second trace were freed before it began.
#[test]
fn cpu_totals_of_a_profiler_are_lower_bounds() {
    for (name, allocated) in
        [("cpu_first_profile.json", 100 << 20), ("cpu_second_profile.json", 1 << 20), ("sched1.json.gz", 33_554_440)]
    {
        let trace = report(name);
        let history = &trace.histories[0];
        assert_eq!((history.start.allocated, history.anomalies.total()), (0, 0), "{name}");
        assert_eq!(history.maxima[Metric::Allocated as usize].bytes, allocated, "{name}");
        assert_eq!(history.completeness.bound(Metric::Allocated), Some(Bound::Lower), "{name}");
        assert!(!trace.is_complete(), "{name}");
    }
}

/// Recording was on when an earlier snapshot was taken, and no entry followed.
#[test]
fn a_marker_of_a_snapshot_is_no_allocation() {
    let recording = report("only_snapshot_marker.pickle");
    assert!(Track::new(&recording.snapshot, &recording.histories[0]).has_only_markers());
    assert_eq!(verdict(&recording, 1 << 30, Vec::new()), CheckVerdict::Unknown);
}

/// The recorded device decides about sizes in simulations, too.
#[test]
fn a_simulation_rounds_as_the_recorded_device() {
    let report = report("ascend_tiny.pickle").simulate(&SimulateOptions::default()).unwrap();
    let difference = report.devices[0].difference.as_ref().expect("a simulation");
    assert!(difference.is_none(), "{difference:?}");
}

/// `record_pinned_host_memory` writes the sizes of blocks, which are powers of two.
#[test]
fn requested_bytes_of_pinned_memory_are_upper_bounds() {
    let recording = open(&crate::support::fixture("pinned_t215"));
    let bounds = recording.histories.iter().map(|history| history.completeness.bound(Metric::Requested));
    assert_eq!(bounds.collect::<Vec<_>>(), [Some(Bound::Upper), None]);
}
