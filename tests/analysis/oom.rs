//! Failed requests: figures equal those in PyTorch's message, and the cause is correct.

use crate::support::allocator_model::{Config, Expandable, MIB, Op};
use crate::support::programs::{Program, programs};
use crate::support::{self, assert_none, cases, corpus, fixture, open, stranger};
use memviz::analysis::advice::Simulate;
use memviz::analysis::fit::FitPlans;
use memviz::analysis::oom::{Advice, Cause, Fit, Oom, Replayed, Symptom};
use memviz::analysis::oom::{OomOptions, OomReport};
use memviz::analysis::triage::TriageOptions;
use memviz::facts::device::Devices;
use memviz::input::Compression;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, DEFAULT_POOL, Snapshot};
use memviz::replay::replay;
use memviz::report::{Answer, Rows, Source, TextStyle};
use memviz::simulation::plans::PlanOptions;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashMap;

/// Recordings that end in a failed request, dumped by an observer, and its cause.
const OBSERVED: &[(&str, Cause)] = &[
    ("fragmented", Cause::Fragmentation),
    ("fragmented_t201", Cause::Fragmentation),
    ("fragmented_t231", Cause::Fragmentation),
    ("oom", Cause::Capacity),
    ("oom_expandable", Cause::Capacity),
    ("oom_forward", Cause::Capacity),
    ("oom_t201", Cause::Capacity),
    ("oom_t215", Cause::Capacity),
    ("oom_t231", Cause::Capacity),
];

/// The device has more free memory than the request, and so has the small pool: neither can serve a request of the large pool,
/// which needs a new segment.
#[test]
fn free_memory_of_another_pool_is_not_fragmentation() {
    let report = open("fixtures/families/oom_moe_85/snapshot.pickle.gz").oom(&OomOptions::default()).unwrap();
    let oom = &report.devices[0].ooms[0];
    assert!(oom.request.bytes < oom.device_free && oom.request.bytes < oom.figures.inactive);
    assert_eq!((oom.cause, oom.serving.figures.inactive), (Cause::Capacity, 0));
    let needed = Symptom::NotEnough { together: oom.device_free + oom.figures.inactive, needed: 20 * MIB };
    assert_eq!(oom.evidence, [needed]);
}

#[test]
fn fixtures_equal_what_pytorch_said() {
    let seen = check(support::FIXTURES);
    assert!(seen.len() >= 7, "only {seen:?} were found");
}

#[test]
fn corpus_equals_what_pytorch_said() {
    let Some(root) = corpus() else { return };
    assert_eq!(check(root).len(), OBSERVED.len());
}

/// Compares every recording of [`OBSERVED`] under `root` with its truth; returns their names.
fn check(root: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for case in cases(root) {
        let Some(&(name, cause)) = OBSERVED.iter().find(|(name, _)| *name == case.name) else { continue };
        seen.push(name.to_owned());
        let report = open(&case.path).oom(&OomOptions::default()).unwrap();
        let [oom] = &report.devices[0].ooms[..] else {
            problems.push(format!("{name}: {} ooms", report.count()));
            continue;
        };
        let (truth, stats) = (&case.truth, &case.truth["devices"][0]["memory_stats"]);
        for (what, found, said) in [
            ("requested", oom.request.bytes, &truth["oom_observer"]["alloc"]),
            ("device free", oom.device_free, &truth["oom_observer"]["device_free"]),
            ("allocated", oom.figures.allocated, &stats["allocated_bytes.all.current"]),
            ("active", oom.figures.active(), &stats["active_bytes.all.current"]),
            ("reserved", oom.figures.reserved, &stats["reserved_bytes.all.current"]),
            ("segments", oom.figures.segments, &stats["segment.all.current"]),
            ("inactive", oom.figures.inactive, &truth["inactive_bytes"]),
            ("largest free block", oom.figures.largest_free_block, &truth["largest_inactive"]),
            ("held", oom.attribution.total_bytes, &stats["allocated_bytes.all.current"]),
        ] {
            // Expandable segments are one for PyTorch's counter, and one for each mapped run in the snapshot.
            let counted = what == "segments" && name == "oom_expandable";
            if said.as_u64() != Some(found) && !counted {
                problems.push(format!("{name}: {what} is {found}, PyTorch said {said}"));
            }
        }
        if oom.cause != cause {
            problems.push(format!("{name}: {:?} instead of {cause:?}", oom.cause));
        }
        // On the default stream alone, all memory of its size could be used for the request.
        if oom.serving.figures.largest_free_block != oom.figures.largest_free_block {
            problems.push(format!("{name}: {:?}", oom.serving));
        }
        if oom.attribution.rows.iter().map(|row| row.bytes).sum::<u64>() != oom.figures.allocated {
            problems.push(format!("{name}: rows do not sum to allocated"));
        }
    }
    assert_none(&problems);
    seen
}

/// Each batch leaves its graph behind, until free memory is fragmented.
#[test]
fn a_leak_is_shown_before_what_the_allocator_lacked() {
    let recording = open("fixtures/stories/retained_graph_llama_flawed/snapshot.pickle.gz");
    let cause = |options: &OomOptions| recording.oom(options).unwrap().devices[0].ooms[0].cause;
    assert_eq!(cause(&OomOptions::default()), Cause::Fragmentation);
    let options = OomOptions::default().cures(Some(Simulate::All));
    assert_eq!(cause(&options), Cause::Leak);
    let report = recording.oom(&options).unwrap();
    let oom = &report.devices[0].ooms[0];
    assert_eq!(oom.signature.as_ref().map(|signature| signature.cause.as_str()), Some("leak"));
    let first = &oom.evidence[0];
    let Symptom::Accumulates { label, reserved, capacity } = first else { panic!("{first:?}") };
    assert_eq!(label.as_deref(), Some("perplexity.py:22 perplexity"));
    assert!(*reserved < capacity / 2, "{reserved} of {capacity}");
    let mut text = Vec::new();
    let source = Source { path: "leak", recording: &recording };
    report
        .text(
            source,
            TextStyle { width: Some(80), color: false, advice: false, all: true, ..TextStyle::default() },
            &mut text,
        )
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.find("torch.no_grad()").unwrap() < text.find("expandable_segments:True").unwrap(), "{text}");

    let triage = recording.triage(&TriageOptions::default()).unwrap();
    assert_eq!(triage.devices[0].failure.unwrap().cause, Cause::Leak);
    let fit = FitPlans::of(&recording.devices(), &PlanOptions::default()).unwrap();
    assert!(fit.plans.devices[0].refused.is_some(), "no step completes");
    let cure = &fit.fixes[0][0];
    assert_eq!(cure.fits, None);
    assert_eq!(cure.advice.line.as_ref().map(|line| line.label.as_str()), Some("perplexity.py:22 perplexity"));
}

/// The program caught two errors; their messages state the free memory.
#[test]
fn caught_ooms_are_explained_one_by_one() {
    let recording = open(&fixture("oom_caught"));
    let report = recording.oom(&OomOptions::default()).unwrap();
    let truth: Value =
        serde_json::from_str(&support::read_text(&format!("{}/oom_caught/truth.json", support::FIXTURES))).unwrap();
    let messages = truth["oom_messages"].as_array().unwrap();
    let ooms = &report.devices[0].ooms;
    assert_eq!((ooms.len(), messages.len()), (2, 2));
    for (oom, message) in ooms.iter().zip(messages) {
        let shown = |bytes: u64| memviz::model::bytes::Bytes(bytes).to_string();
        let said = message.as_str().unwrap();
        let unallocated = oom.figures.reserved - oom.figures.allocated;
        for part in [
            format!("Tried to allocate {}.", shown(oom.request.bytes)),
            format!("of which {} is free", shown(oom.device_free)),
            format!("{} is allocated by PyTorch", shown(oom.figures.allocated)),
            format!("{} is reserved by PyTorch but unallocated", shown(unallocated)),
        ] {
            assert!(said.contains(&part), "{part:?} in {said:?}");
        }
        assert_eq!(oom.cause, Cause::Capacity);
        assert_eq!(oom.retry.segments, 0);
        assert!(!oom.request.stack.is_empty() && oom.request.last_known_entry.is_none());
    }
    // The other half of the truth: only the process's own memory was in the way.
    let capacity: Vec<u64> = ooms.iter().map(|oom| oom.figures.reserved + oom.device_free).collect();
    assert_eq!(capacity[0], capacity[1]);
}

/// A limit for the process is not a lack of memory, and the file does not contain it.
#[test]
fn a_limit_is_not_a_lack_of_capacity() {
    let oom = only_oom("oom_capped");
    assert_eq!(oom.cause, Cause::Unknown);
    assert!(oom.advice.is_empty(), "{:?}", oom.advice);
    let [Symptom::DeviceHadEnough { free, needed, reserved }] = oom.evidence[..] else { panic!("{:?}", oom.evidence) };
    assert_eq!((free, needed), (82_095_112_192, 1_048_576_000));
    // PyTorch's message: "4.00 GiB allowed".
    assert!(reserved <= 4 << 30 && 4 << 30 < reserved + needed);
}

/// Other blocks of the same line stay, with other stacks: what is said of its earlier blocks is about some stacks.
#[test]
fn a_line_may_free_the_blocks_of_some_stacks() {
    let Some(path) = stranger("oom_mamba_85/snapshot.pickle.gz") else { return };
    let report = open(&path).oom(&OomOptions::default()).unwrap();
    let [Advice::FreeSites { sites, some_stacks, fit }, ..] = &report.devices[0].ooms[0].advice[..] else {
        panic!("{:?}", report.devices[0].ooms[0].advice)
    };
    assert_eq!(sites, &[("mamba.py:15 ssm".to_owned(), 36 << 20, 3)]);
    assert_eq!((*some_stacks, fit), (true, &Fit::Block(12 << 20)));
}

/// Backward passes have no Python frames: the output shows what is known instead.
#[test]
fn a_backward_request_is_described() {
    let oom = only_oom("oom");
    assert_eq!(oom.request.site, "(no stack)");
    assert!(oom.request.stack.is_empty());
    let sites: Vec<&str> = oom.request.same_size.iter().map(|same| same.label.as_str()).collect();
    assert_eq!(sites, ["minigpt.py:79 forward", "minigpt.py:82 forward"]);
    assert_eq!(oom.request.last_known_entry, Some(6346));
    assert_eq!(oom.request.last_known_site.as_deref(), Some("cases.py:252 oom"));
}

#[test]
fn fragmentation_names_pinning_sites_and_remedies() {
    let oom = only_oom("fragmented");
    let pinned = oom.evidence.iter().find_map(|evidence| match evidence {
        Symptom::Pinned { bytes, top: Some((label, _)), .. } => Some((*bytes, label.as_str())),
        _ => None,
    });
    assert_eq!(pinned, Some((1_714_742_272, "cases.py:280 fragmented")));
    let [
        Advice::FreeSites { sites, some_stacks: false, fit },
        Advice::ExpandableSegments(replayed),
        Advice::NoSettings { .. },
    ] = &oom.advice[..]
    else {
        panic!("{:?}", oom.advice)
    };
    assert_eq!(sites.iter().map(|site| site.0.as_str()).collect::<Vec<_>>(), ["cases.py:280 fragmented"]);
    assert!(matches!(fit, Fit::Driver(supply) if *supply >= oom.request.driver_bytes));
    // What PyTorch recommends in this case would not have helped.
    assert_eq!(replayed.fails_at, oom.moment.entry);
    assert_eq!(replayed.capacity, oom.figures.reserved + oom.device_free);
}

#[test]
fn recordings_without_a_failed_request_show_the_peak() {
    for name in ["gpt_train", "no_history", "state_only", "multi_gpu", "tiny_t201"] {
        let recording = open(&fixture(name));
        let report = recording.oom(&OomOptions::default()).unwrap();
        assert_eq!(report.count(), 0, "{name}");
        let peaks = recording.peak(&memviz::analysis::peak::PeakOptions::default()).unwrap();
        assert_eq!(report.devices.len(), peaks.devices.len(), "{name}");
        for (device, peak) in report.devices.iter().zip(&peaks.devices) {
            let shown = device.peak.as_ref().unwrap();
            assert_eq!((shown.device, shown.at), (device.device, peak.at), "{name}");
        }
    }
    let empty = open(&fixture("empty")).oom(&OomOptions::default()).unwrap();
    assert!(empty.devices.is_empty());
}

/// Another process took half of the device between two failures.
#[test]
fn a_device_that_shrinks_is_noticed() {
    let ops = [alloc(40 * MIB), alloc(90 * MIB), alloc(50 * MIB)];
    let mut snapshot = program(&ops, 96 * MIB).run().snapshot();
    let ooms = |snapshot: &Snapshot| report(snapshot).devices.remove(0).ooms;
    assert_eq!(ooms(&snapshot).len(), 1);
    // 50 MiB did fit the remaining memory; now they do not.
    let row = snapshot.entries.len();
    let last = snapshot.entries.get(row - 1).unwrap();
    let before = ooms(&snapshot)[0].figures.reserved;
    assert_eq!((before, ooms(&snapshot)[0].cause), (40 * MIB, Cause::Capacity));
    let failed = TraceEntry { action: Action::Oom, addr: 2 * MIB, size: 8 * MIB, ..last };
    snapshot.entries.push(failed);
    snapshot.traces[0].rows.end += 1;
    let after = ooms(&snapshot);
    // 90 MiB are reserved by now, of 96 MiB: 4 MiB less are not worth a word.
    assert_eq!(after[1].cause, Cause::Capacity, "{:?}", after[1].evidence);

    let ops = [alloc(40 * MIB), alloc(90 * MIB)];
    let mut snapshot = program(&ops, 96 * MIB).run().snapshot();
    let row = snapshot.entries.len();
    let last = snapshot.entries.get(row - 1).unwrap();
    snapshot.entries.push(TraceEntry { action: Action::Oom, addr: 6 * MIB, size: 12 * MIB, ..last });
    snapshot.traces[0].rows.end += 1;
    let after = ooms(&snapshot);
    assert_eq!(after[1].cause, Cause::OtherProcess);
    let Symptom::Shrunk { known, here } = after[1].evidence[0] else { panic!("{:?}", after[1].evidence) };
    assert_eq!((known.bytes, known.instant, here), (96 * MIB, 3, 46 * MIB));
}

/// A block that was freed, but may still be used on another stream, is not free.
#[test]
fn pending_frees_are_named() {
    let ops = [alloc(40 * MIB), Op::RecordStream { pick: 0 }, Op::Free { pick: 0 }];
    let oom = failing(&program(&ops, 96 * MIB), 20 * MIB, 50 * MIB);
    assert_eq!((oom.cause, oom.figures.pending_free), (Cause::Capacity, 40 * MIB));
    assert!(oom.advice.contains(&Advice::PendingFree { bytes: 40 * MIB }), "{:?}", oom.advice);
}

/// The free that completed during the retry made a block that would do, but the allocator had looked before.
#[test]
fn frees_that_complete_too_late_are_noticed() {
    let ops = [
        alloc(64 * MIB),
        Op::Free { pick: 0 },
        alloc(4 * MIB),
        alloc(30 * MIB),
        Op::RecordStream { pick: 1 },
        Op::Free { pick: 1 },
        alloc(50 * MIB),
    ];
    let ooms = report(&program(&ops, 80 * MIB).run().snapshot()).devices.remove(0).ooms;
    let [oom] = &ooms[..] else { panic!("{} ooms", ooms.len()) };
    assert_eq!(oom.cause, Cause::Fragmentation);
    assert_eq!(oom.evidence, [Symptom::FreedTooLate { bytes: 60 * MIB }]);
}

/// Free memory that `max_split_size` keeps unsplit cannot serve small requests.
#[test]
fn blocks_that_are_kept_back_are_named() {
    let mut program = program(&[alloc(60 * MIB), alloc(16 * MIB), Op::Free { pick: 0 }, alloc(512)], 90 * MIB);
    program.config.expandable = Expandable::Always;
    program.config.max_split_size = Some(70 * MIB);
    assert_eq!(failing(&program, 4 * MIB, 24 * MIB).evidence, [Symptom::BlockWouldDo { bytes: 60 * MIB }]);
    program.config.max_split_size = Some(40 * MIB);
    let oom = failing(&program, 4 * MIB, 24 * MIB);
    assert_eq!((oom.cause, oom.serving.largest_usable), (Cause::Fragmentation, 4 * MIB));
    assert!(oom.evidence.contains(&Symptom::KeptBack { bytes: 60 * MIB }), "{:?}", oom.evidence);
}

/// A failure that contradicts everything that is known has no cause, and no advice.
#[test]
fn contradictory_failures_are_not_explained() {
    let ops = [alloc(40 * MIB), alloc(4 * MIB), Op::Free { pick: 0 }, alloc(MIB)];
    let oom = failing(&program(&ops, 96 * MIB), 0, 30 * MIB);
    assert_eq!((oom.cause, &oom.advice[..]), (Cause::Unknown, &[] as &[Advice]));
    assert_eq!(oom.evidence, [Symptom::BlockWouldDo { bytes: 40 * MIB }]);
}

/// `roundup_power2_divisions` wastes the missing bytes.
#[test]
fn rounding_is_named_where_it_matters() {
    let mut program = program(&[alloc(33 * MIB)], 96 * MIB);
    program.config.divisions = [1; 16];
    let without = failing(&program, 30 * MIB, 32 * MIB);
    assert!(!without.advice.iter().any(|advice| matches!(advice, Advice::Rounding { .. })), "{:?}", without.advice);
    program.config.divisions = [2; 16];
    let with = failing(&program, 30 * MIB, 32 * MIB);
    assert_eq!(with.figures.allocated, 48 * MIB);
    let [Advice::Settings { replayed, .. }, rounding] = &with.advice[..] else { panic!("{:?}", with.advice) };
    assert_eq!(replayed.fails_at, None);
    assert_eq!(rounding, &Advice::Rounding { bytes: 15 * MIB, missing: 2 * MIB });
}

/// Blocks from before the recording have no name.
#[test]
fn a_recording_that_starts_late_is_told_to_start_earlier() {
    // The first call site has no frames.
    let recording = program(&[alloc(40 * MIB), alloc(20 * MIB), alloc(60 * MIB)], 96 * MIB).run().cut(&[400]);
    let ooms = report(&recording.snapshot()).devices.remove(0).ooms;
    let [oom] = &ooms[..] else { panic!("{} ooms", ooms.len()) };
    assert_eq!(oom.figures.allocated, 60 * MIB);
    assert!(oom.advice.contains(&Advice::RecordEarlier { bytes: 40 * MIB }), "{:?}", oom.advice);
}

/// For a program that catches hundreds of failures, the first ones are shown in full, and the others are counted.
#[test]
fn many_failures_are_counted() {
    let mut ops = vec![alloc(40 * MIB)];
    ops.extend([alloc(90 * MIB); 14]);
    let recording = program(&ops, 96 * MIB).run();
    let snapshot = recording.snapshot();
    let histories = replay(&snapshot);
    let recording =
        memviz::Recording { snapshot, histories, compression: Compression::None, bytes: 0, device_file: None };
    let report = recording.oom(&OomOptions::default()).unwrap();
    assert_eq!(report.count(), 14);
    let source = Source { path: "many", recording: &recording };
    let mut text = Vec::new();
    report
        .text(
            source,
            TextStyle { width: Some(80), color: false, advice: false, all: true, ..TextStyle::default() },
            &mut text,
        )
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches("out of memory").count(), 10);
    assert!(text.ends_with("\n\nDevice 0: 4 requests failed later; --format csv lists all\n"), "{text}");
    let mut csv = Vec::new();
    report.csv(&mut csv).unwrap();
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 15);
}

/// What another stream holds cannot serve a request.
#[test]
fn memory_of_another_stream_is_named() {
    let side = |size| Op::Alloc { size, stream: 7, private_pool: 0 };
    // The side stream keeps a free block of 50 MiB in a segment that a block pins.
    let ops =
        [side(64 * MIB), Op::Free { pick: 0 }, side(50 * MIB), side(4 * MIB), Op::Free { pick: 0 }, alloc(40 * MIB)];
    let ooms = report(&program(&ops, 96 * MIB).run().snapshot()).devices.remove(0).ooms;
    let [oom] = &ooms[..] else { panic!("{} ooms", ooms.len()) };
    assert_eq!(oom.cause, Cause::Fragmentation);
    assert_eq!((oom.serving.figures.largest_free_block, oom.figures.largest_free_block), (0, 50 * MIB));
    let other = oom.advice.iter().find_map(|advice| match advice {
        Advice::OtherPool { stream, inactive, largest, .. } => Some((*stream, *inactive, *largest)),
        _ => None,
    });
    assert_eq!(other, Some((Some(7), 60 * MIB, 50 * MIB)));
}

/// With its pages released, the same request would have been served.
#[test]
fn expandable_segments_are_recommended_where_they_would_help() {
    // 60 MiB are free before a block, and 40 MiB on the device; 70 MiB are wanted.
    let ops =
        [alloc(64 * MIB), Op::Free { pick: 0 }, alloc(60 * MIB), alloc(4 * MIB), Op::Free { pick: 0 }, alloc(70 * MIB)];
    let ooms = report(&program(&ops, 104 * MIB).run().snapshot()).devices.remove(0).ooms;
    let [oom] = &ooms[..] else { panic!("{} ooms", ooms.len()) };
    assert_eq!(oom.cause, Cause::Fragmentation);
    let replayed = Replayed { fails_at: None, reserved: 80 * MIB, capacity: 104 * MIB };
    assert!(oom.advice.contains(&Advice::ExpandableSegments(replayed)), "{:?}", oom.advice);
    let config = Config { expandable: Expandable::Always, ..config(104 * MIB) };
    let served = Program { config, devices: vec![ops.to_vec()] }.run().snapshot();
    assert_eq!(report(&served).count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Every failure of the model is explained, and by the cause that it has.
    #[test]
    fn every_failure_has_its_cause(program in small_devices()) {
        let recording = program.run();
        let snapshot = recording.snapshot();
        let capacity = program.config.capacity;
        for device in report(&snapshot).devices {
            let log = &recording.logs[device.device as usize];
            let failed: Vec<_> =
                (0u32..).zip(&log.entries).filter(|(_, entry)| entry.action == Action::Oom).collect();
            prop_assert_eq!(device.ooms.len(), failed.len());
            for (oom, (index, entry)) in device.ooms.iter().zip(failed) {
                let [allocated, active, _, reserved] = log.moments[index as usize].counters();
                prop_assert_eq!(oom.moment.entry, Some(index));
                prop_assert_eq!((oom.request.bytes, oom.device_free), (entry.size, capacity - reserved));
                let figures = &oom.figures;
                prop_assert_eq!((figures.allocated, figures.active(), figures.reserved), (allocated, active, reserved));
                prop_assert_eq!(oom.attribution.total_bytes, allocated);
                prop_assert_eq!(oom.attribution.rows.iter().map(|row| row.bytes).sum::<u64>(), allocated);
                // The free memory of its pool as one block, or all of it released: the most that could ever serve the request.
                let room = capacity - active;
                let of_pool = oom.serving.figures.inactive;
                prop_assert!(of_pool <= reserved - active);
                let hopeless = of_pool < entry.size && room < oom.request.driver_bytes;
                let free = capacity - reserved;
                // Memory of other pools would do, but a private pool cannot use it.
                let is_elsewhere = oom.request.pool.is_some_and(|pool| pool != DEFAULT_POOL)
                    && oom.serving.largest_usable < entry.size
                    && free + of_pool < oom.request.driver_bytes
                    && free + figures.inactive >= oom.request.driver_bytes;
                let cause = match (is_elsewhere, hopeless) {
                    (true, _) => Cause::PrivatePool,
                    (_, true) => Cause::Capacity,
                    _ => Cause::Fragmentation,
                };
                // With expandable segments, the search for the best fit may end at a block that max_split_size_mb keeps
                // back, although a smaller one would do.
                let may_pass_over = program.config.expandable != Expandable::Never && program.config.max_split_size.is_some();
                let is_passed_over = matches!(oom.evidence[..], [Symptom::BlockWouldDo { .. }]);
                let cause = if may_pass_over && is_passed_over { Cause::Unknown } else { cause };
                prop_assert_eq!(oom.cause, cause, "{:?}", oom);
                prop_assert!(!oom.evidence.is_empty());
                for advice in &oom.advice {
                    served(advice, oom)?;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// The text about expandable segments matches the model of the allocator.
    #[test]
    fn expandable_segments_help_as_the_text_says(program in programs(Just(Expandable::Never), false)) {
        let mut program = program;
        program.devices.truncate(1);
        program.config.capacity = program.config.capacity.min(700 * MIB);
        program.config.max_split_size = None;
        // A trace does not show when the program emptied the cache, and shared blocks are freed later.
        program.devices[0].retain(|op| !matches!(op, Op::EmptyCache | Op::RecordStream { .. }));
        // The model releases memory of private pools as if they were no longer needed.
        for op in &mut program.devices[0] {
            if let Op::Alloc { private_pool, .. } = op {
                *private_pool = 0;
            }
        }
        let recording = program.run();
        let snapshot = recording.snapshot();
        let Some(oom) = report(&snapshot).devices.into_iter().find_map(|device| device.ooms.into_iter().next()) else {
            return Ok(());
        };
        let entries = &recording.logs[0].entries;
        let failed = entries[oom.moment.entry.unwrap() as usize].op;

        let mut made = HashMap::new();
        for entry in entries {
            match entry.action {
                Action::Alloc => _ = made.insert(entry.addr, entry.op),
                Action::FreeRequested => program.devices[0][entry.op] = Op::FreeOf(made[&entry.addr]),
                _ => {}
            }
        }
        program.config.expandable = Expandable::Always;
        let with = &program.run().logs[0].entries;
        let first = with.iter().find(|entry| entry.action == Action::Oom && entry.op <= failed).map(|entry| entry.op);
        let said = oom.advice.iter().find_map(|advice| match advice {
            Advice::ExpandableSegments(replayed) => Some(replayed.fails_at.map(|entry| entries[entry as usize].op)),
            _ => None,
        });
        // For a lack of capacity, the setting is mentioned only if it would have helped.
        let expected = (oom.cause == Cause::Fragmentation || first.is_none()).then_some(first);
        prop_assert_eq!(said, expected);
    }
}

/// The figures of advice must be consistent.
fn served(advice: &Advice, oom: &Oom) -> Result<(), TestCaseError> {
    match advice {
        Advice::FreeSites { sites, fit, .. } => {
            prop_assert!(!sites.is_empty() && sites.iter().all(|(_, bytes, blocks)| *bytes > 0 && *blocks > 0));
            match *fit {
                Fit::Block(block) => prop_assert!(block >= oom.request.bytes),
                Fit::Driver(supply) => {
                    prop_assert!(supply >= oom.request.driver_bytes);
                    prop_assert!(supply <= oom.device_free + oom.figures.reserved);
                }
            }
        }
        Advice::ExpandableSegments(replayed) => prop_assert!(replayed.reserved <= replayed.capacity),
        Advice::ExpandableConflict(because) => prop_assert!(!because.is_empty()),
        Advice::Settings { replayed, .. } => {
            prop_assert!(replayed.fails_at.is_none() && replayed.reserved <= replayed.capacity);
        }
        Advice::NoSettings { tried } => prop_assert!(*tried > 0),
        Advice::AlreadyExpandable => prop_assert!(oom.request.expandable || oom.request.pool.is_some()),
        Advice::WholePages { whole_pages, together, .. } => {
            prop_assert!(*whole_pages <= oom.figures.inactive);
            prop_assert_eq!(*together, oom.device_free + whole_pages);
        }
        Advice::OtherPool { inactive, largest, .. } => {
            prop_assert!(largest <= inactive && *inactive <= oom.figures.inactive - oom.serving.figures.inactive);
        }
        Advice::PendingFree { bytes } => prop_assert_eq!(*bytes, oom.figures.pending_free),
        Advice::Rounding { bytes, missing } => prop_assert!(bytes >= missing),
        Advice::RecordEarlier { .. } => prop_assert!(false, "the history is complete"),
    }
    Ok(())
}

/// Programs on devices that soon are full.
fn small_devices() -> impl Strategy<Value = Program> {
    let segments = prop_oneof![
        2 => Just(Expandable::Never),
        1 => Just(Expandable::Always),
        1 => Just(Expandable::OutsidePrivatePools),
    ];
    (programs(segments, false), prop::sample::select(vec![64 * MIB, 96 * MIB, 200 * MIB])).prop_map(
        |(mut program, capacity)| {
            program.config.capacity = capacity;
            program
        },
    )
}

fn alloc(size: u64) -> Op {
    Op::Alloc { size, stream: 0, private_pool: 0 }
}

fn config(capacity: u64) -> Config {
    Config { expandable: Expandable::Never, max_split_size: None, divisions: [0; 16], capacity, spacing: 2 * MIB }
}

fn program(ops: &[Op], capacity: u64) -> Program {
    Program { config: config(capacity), devices: vec![ops.to_vec()] }
}

fn report(snapshot: &Snapshot) -> OomReport {
    OomReport::of(&Devices::of(snapshot, &replay(snapshot)), &OomOptions::default()).unwrap()
}

/// A program whose last request fails, with this much free on the device. The model would not fail like that.
fn failing(program: &Program, device_free: u64, bytes: u64) -> Oom {
    let mut snapshot = program.run().snapshot();
    let last = snapshot.entries.get(snapshot.entries.len() - 1).unwrap();
    snapshot.entries.push(TraceEntry { action: Action::Oom, addr: device_free, size: bytes, ..last });
    snapshot.traces[0].rows.end += 1;
    report(&snapshot).devices[0].ooms[0].clone()
}

fn only_oom(name: &str) -> Oom {
    let report = open(&fixture(name)).oom(&OomOptions::default()).unwrap();
    assert_eq!(report.count(), 1, "{name}");
    report.devices[0].ooms[0].clone()
}
