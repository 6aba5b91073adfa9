//! The replay against an independent model of the allocator, on random programs.
//!
//! The model (`support/allocator_model.rs`) knows what really happened. The replay sees what PyTorch would have recorded
//! of it, and must find out the rest.

use crate::support::allocator_model::{Entry, Expandable, Held, Log, MIB, Moment};
use crate::support::plain_replay;
use crate::support::programs::{Program, Recording, plain_or_expandable, programs};
use memviz::model::trace_entry::{TraceEntries, TraceEntry};
use memviz::model::{Action, DeviceTrace, EntryContext, Snapshot, StackId};
use memviz::replay::{AnomalyKind, Counters, History, Metric, Track, replay};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner};
use std::cell::Cell;

proptest! {
    #[test]
    fn complete_recordings_are_exact(program in programs(plain_or_expandable(), false)) {
        let recording = program.run();
        let snapshot = recording.snapshot();
        for (history, log) in histories(&snapshot, &recording) {
            no_anomalies(&history)?;
            prop_assert!(history.completeness.is_complete());
            prop_assert_eq!(history.completeness.baseline_uncertain_bytes, 0);
            same_past(&history, &snapshot, log)?;
        }
    }

    /// Up to PyTorch 2.4, private pools did not grow in place, yet their blocks were split as if they did.
    #[test]
    fn regular_private_pools_next_to_expandable_segments_are_exact(
        program in programs(Just(Expandable::OutsidePrivatePools), false),
    ) {
        let recording = program.run();
        let snapshot = recording.snapshot();
        for (history, log) in histories(&snapshot, &recording) {
            no_anomalies(&history)?;
            same_past(&history, &snapshot, log)?;
        }
    }

    #[test]
    fn late_recordings_are_exact_up_to_the_stated_uncertainty(
        program in programs(plain_or_expandable(), false),
        cut in vec(0..=1000usize, 3),
    ) {
        let recording = program.run().cut(&cut);
        let snapshot = recording.snapshot();
        for (history, log) in histories(&snapshot, &recording) {
            no_anomalies(&history)?;
            same_past(&history, &snapshot, log)?;
            honest_uncertainty(&history, &recording, log)?;
        }
    }

    /// The second run over a late recording applies only what depends on the baseline. An annotation of an unknown block, which
    /// changes nothing, makes it apply all entries.
    #[test]
    fn a_partial_second_run_equals_a_full_one(
        program in programs(plain_or_expandable(), true),
        changes in vec((any::<prop::sample::Index>(), change()), 0..4),
        cut in vec(0..=1000usize, 3),
        truncated in any::<bool>(),
    ) {
        let mut recording = program.run().cut(&cut);
        for log in &mut recording.logs {
            for &(index, change) in &changes {
                if !log.entries.is_empty() {
                    let index = index.index(log.entries.len());
                    change.apply(&mut log.entries, index);
                }
            }
        }
        let replayed = |recording: &Recording| {
            let mut snapshot = recording.snapshot();
            for trace in &mut snapshot.traces {
                trace.truncated = truncated;
            }
            replay(&snapshot)
        };
        let partial = replayed(&recording);
        for log in &mut recording.logs {
            let unknown = Entry { action: Action::Annotate, addr: 1, size: 0, stream: 0, private_pool: 0, op: 0 };
            log.entries.push(unknown);
        }
        let full = replayed(&recording).into_iter().filter(|history| history.rows.len() > 1);
        for (partial, full) in partial.iter().filter(|history| !history.rows.is_empty()).zip(full) {
            prop_assert_eq!(&partial.allocations, &full.allocations);
            prop_assert_eq!(&partial.segments, &full.segments);
            prop_assert_eq!(&partial.baseline, &full.baseline);
            prop_assert_eq!(&partial.anomalies, &full.anomalies);
            prop_assert_eq!(partial.completeness, full.completeness);
            prop_assert_eq!((partial.start, partial.end, partial.maxima), (full.start, full.end, full.maxima));
            let entries = 0..partial.entries();
            prop_assert!(entries.clone().all(|entry| partial.allocation_of(entry) == full.allocation_of(entry)));
        }
    }

    #[test]
    fn checksums_hold_in_complete_recordings(program in programs(plain_or_expandable(), true)) {
        let recording = program.run();
        let snapshot = recording.snapshot();
        for (history, _) in histories(&snapshot, &recording) {
            no_anomalies(&history)?;
        }
    }

    #[test]
    fn checksums_hold_in_late_recordings(
        program in programs(plain_or_expandable(), true),
        cut in vec(0..=1000usize, 3),
    ) {
        let recording = program.run().cut(&cut);
        let snapshot = recording.snapshot();
        for (history, _) in histories(&snapshot, &recording) {
            no_anomalies(&history)?;
        }
    }

    #[test]
    fn a_wrong_checksum_is_noticed(program in programs(plain_or_expandable(), true), wrong in 1..1000u64) {
        let mut recording = program.run();
        let checksum = recording.logs[0].entries.iter_mut().find(|entry| entry.action == Action::Snapshot);
        let Some(entry) = checksum else { return Ok(()) };
        entry.size += wrong;
        let found: Vec<_> = replay(&recording.snapshot())[0].anomalies.kinds().map(|anomaly| anomaly.kind).collect();
        prop_assert_eq!(found, [AnomalyKind::SnapshotMismatch]);
    }

    /// A file that was cut off: the newest entries are missing, the segments are from a later time.
    #[test]
    fn truncated_recordings_are_exact(
        program in programs(plain_or_expandable(), false),
        kept in 0..1000usize,
    ) {
        let mut recording = program.run();
        let log = &mut recording.logs[0];
        let kept = log.entries.len() * kept / 1000;
        log.entries.truncate(kept);
        log.moments.truncate(kept + 1);
        let mut snapshot = recording.snapshot();
        if snapshot.traces.first().is_none_or(|trace| trace.device != 0) {
            return Ok(());
        }
        snapshot.traces[0].truncated = true;
        let history = &replay(&snapshot)[0];
        no_anomalies(history)?;
        prop_assert!(history.completeness.truncated);
        same_past(history, &snapshot, &recording.logs[0])?;
    }

    /// `skip_actions=["free_requested"]`: allocated cannot be known and equals active, the other counters are exact.
    #[test]
    fn recordings_without_free_requested_know_all_but_allocated(program in programs(plain_or_expandable(), false)) {
        let mut recording = program.run();
        for log in &mut recording.logs {
            let keep: Vec<_> = log.entries.iter().map(|entry| entry.action != Action::FreeRequested).collect();
            let mut kept = keep.iter();
            log.entries.retain(|_| kept.next() == Some(&true));
            let mut kept = std::iter::once(&true).chain(&keep);
            log.moments.retain(|_| kept.next() == Some(&true));
        }
        let snapshot = recording.snapshot();
        for (history, log) in histories(&snapshot, &recording) {
            no_anomalies(&history)?;
            let freed = log.entries.iter().any(|entry| entry.action == Action::FreeCompleted);
            prop_assert!(!freed || history.completeness.no_free_requested);
            history_values(&history, &snapshot).zip(&log.moments).try_for_each(|(replayed, moment)| {
                let [_, active, requested, reserved] = moment.counters();
                prop_assert_eq!(replayed, [active, active, requested, reserved]);
                Ok(())
            })?;
        }
    }

    /// A missing entry looks like a past before the recording at best, and a contradiction otherwise.
    #[test]
    fn a_missing_alloc_is_noticed(program in programs(plain_or_expandable(), false), pick in any::<prop::sample::Index>()) {
        let mut recording = program.run();
        let entries = &mut recording.logs[0].entries;
        let Some(index) = pick_entry(entries, pick, &[Action::Alloc]) else { return Ok(()) };
        entries.remove(index);
        let snapshot = recording.snapshot();
        let history = replay(&snapshot).into_iter().find(|history| history.device == 0);
        prop_assert!(history.is_some_and(|history| history.anomalies.total() > 0 || history.completeness.has_baseline));
    }

    #[test]
    fn a_repeated_free_is_noticed(
        program in programs(plain_or_expandable(), false),
        pick in any::<prop::sample::Index>(),
        later in 1..20usize,
    ) {
        let mut recording = program.run();
        let entries = &mut recording.logs[0].entries;
        let frees = [Action::FreeRequested, Action::FreeCompleted];
        let Some(index) = pick_entry(entries, pick, &frees) else { return Ok(()) };
        let place = (index + later).min(entries.len());
        entries.insert(place, entries[index]);
        prop_assert!(replay(&recording.snapshot())[0].anomalies.total() > 0);
    }

    #[test]
    fn a_changed_size_is_noticed(
        program in programs(plain_or_expandable(), false),
        pick in any::<prop::sample::Index>(),
        size in prop_oneof![1..80 * MIB, any::<u64>()],
    ) {
        let mut recording = program.run();
        let entries = &mut recording.logs[0].entries;
        let sized = [Action::Alloc, Action::FreeRequested, Action::FreeCompleted];
        let Some(index) = pick_entry(entries, pick, &sized) else { return Ok(()) };
        prop_assume!(entries[index].size != size);
        entries[index].size = size;
        prop_assert!(replay(&recording.snapshot())[0].anomalies.total() > 0);
    }

    /// Whatever the entries say, the replay ends, and its own numbers agree with one another.
    #[test]
    fn nonsense_is_survived(
        program in programs(plain_or_expandable(), true),
        changes in vec((any::<prop::sample::Index>(), change()), 1..12),
        cut in vec(0..=1000usize, 3),
        truncated in any::<bool>(),
    ) {
        let mut recording = program.run().cut(&cut);
        let entries = &mut recording.logs[0].entries;
        for (index, change) in changes {
            if !entries.is_empty() {
                let index = index.index(entries.len());
                change.apply(entries, index);
            }
        }
        let mut snapshot = recording.snapshot();
        for trace in &mut snapshot.traces {
            trace.truncated = truncated;
        }
        for history in replay(&snapshot) {
            consistent(&history, &snapshot)?;
        }
    }
}

/// Programs whose entries are changed: numbers near 2^63, addresses of other blocks, times that go back.
const CASES: u32 = 1000;

/// A program, changes of its entries, and an entry with what is added to its time.
type Changed = (Program, Vec<(prop::sample::Index, Change)>, Option<(prop::sample::Index, i64)>);

#[test]
fn figures_without_a_mark_equal_those_of_a_second_replay() {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let changes = vec((any::<prop::sample::Index>(), change()), 0..4);
    let time = prop::option::of((any::<prop::sample::Index>(), prop_oneof![-9..9i64, any::<i64>()]));
    let unmarked = Cell::new(0);
    let case = |(program, changes, time): Changed| {
        let mut recording = program.run();
        recording.logs.truncate(1);
        let entries = &mut recording.logs[0].entries;
        for (index, change) in changes {
            if !entries.is_empty() {
                change.apply(entries, index.index(entries.len()));
            }
        }
        let mut snapshot = recording.snapshot();
        if let Some((index, late)) = time.filter(|_| !snapshot.entries.is_empty()) {
            let row = index.index(snapshot.entries.len());
            let mut rows: Vec<TraceEntry> = snapshot.entries.rows(0..snapshot.entries.len()).collect();
            rows[row].time_us = rows[row].time_us.saturating_add(late);
            snapshot.entries = TraceEntries::default();
            snapshot.entries.extend(&rows);
        }
        let is_mapped = |action: &Action| matches!(action, Action::SegmentMap | Action::SegmentUnmap);
        if snapshot.entries.actions().iter().any(is_mapped) {
            // The second replay does not know expandable segments.
            return Ok(());
        }
        for history in replay(&snapshot).iter().filter(|it| it.anomalies.total() == 0 && it.completeness.is_complete())
        {
            unmarked.set(unmarked.get() + 1);
            let values = history_values(history, &snapshot).map(|values| values.map(u128::from)).collect();
            let other = plain_replay::counters(&snapshot, history.device);
            prop_assert!(
                other == Some(values),
                "the second replay {}",
                if other.is_none() { "gives up" } else { "differs" }
            );
        }
        Ok(())
    };
    runner.run(&(programs(Just(Expandable::Never), false), changes, time), case).unwrap();
    assert!(unmarked.get() > 100, "only {} recordings have no mark", unmarked.get());
}

/// The second device starts earlier than the first one ends, which is no contradiction.
#[test]
fn times_that_go_back_are_counted_on_their_device() {
    let mut snapshot = Snapshot::default();
    snapshot.notes.has_times = true;
    let context = snapshot.contexts.intern(EntryContext::default());
    for (device, times) in (0..).zip([[5, 7, 7], [1, 4, 2]]) {
        let start = snapshot.entries.len();
        for (place, time_us) in (1..).zip(times) {
            let (action, stack) = (Action::SegmentAlloc, StackId::EMPTY);
            snapshot.entries.push(TraceEntry { action, addr: place << 30, size: 2 * MIB, time_us, stack, context });
        }
        snapshot.traces.push(DeviceTrace { device, rows: start..snapshot.entries.len(), truncated: true });
    }
    let reversed = |history: &History| {
        let found = history.anomalies.kinds().find(|anomaly| anomaly.kind == AnomalyKind::TimeReversed).copied();
        found.map(|anomaly| (anomaly.count, anomaly.first_entry))
    };
    assert_eq!(replay(&snapshot).iter().map(reversed).collect::<Vec<_>>(), [None, Some((1, Some(2)))]);
}

/// The histories that have a log, each with it.
fn histories<'r>(snapshot: &Snapshot, recording: &'r Recording) -> impl Iterator<Item = (History, &'r Log)> {
    replay(snapshot).into_iter().map(|history| {
        let log = &recording.logs[history.device as usize];
        (history, log)
    })
}

fn no_anomalies(history: &History) -> TestCaseResult {
    let found: Vec<_> = history.anomalies.kinds().collect();
    prop_assert!(found.is_empty(), "device {}: {:?}", history.device, found);
    Ok(())
}

fn values(counters: &Counters) -> [u64; 4] {
    Metric::ALL.map(|metric| u64::try_from(counters.get(metric)).expect("no counter is negative"))
}

/// The four counters before the first entry and after each entry.
fn history_values(history: &History, snapshot: &Snapshot) -> impl Iterator<Item = [u64; 4]> {
    let mut all = vec![values(&history.start)];
    Track::new(snapshot, history).walk(|_, counters| all.push(values(counters)));
    all.into_iter()
}

/// Compares everything that the replay says with what happened. Block sizes, and with them allocated and active bytes, may be
/// lower by at most the uncertainty that the history states.
fn same_past(history: &History, snapshot: &Snapshot, log: &Log) -> TestCaseResult {
    let slack = history.completeness.baseline_uncertain_bytes;
    let within = |replayed: u64, real: u64, slack: u64| replayed <= real && real - replayed <= slack;

    prop_assert_eq!(history.entries() as usize, log.entries.len());
    let real: Vec<_> = log.moments.iter().map(Moment::counters).collect();
    let replayed: Vec<_> = history_values(history, snapshot).collect();
    prop_assert_eq!(replayed.len(), real.len());
    for (instant, (replayed, real)) in replayed.iter().zip(&real).enumerate() {
        let exact = replayed[2..] == real[2..];
        let close = within(replayed[0], real[0], slack) && within(replayed[1], real[1], slack);
        prop_assert!(exact && close, "instant {}: {:?} instead of {:?}, slack {}", instant, replayed, real, slack);
    }
    prop_assert_eq!(replayed.last(), Some(&values(&history.end)));

    for (index, maximum) in history.maxima.iter().enumerate() {
        let highest = real.iter().map(|counters| counters[index]).max().unwrap_or(0);
        let first = real.iter().position(|counters| counters[index] == highest).unwrap_or(0);
        if slack == 0 || index >= 2 {
            prop_assert_eq!((maximum.bytes as u64, maximum.instant as usize), (highest, first));
        } else {
            prop_assert!(within(maximum.bytes as u64, highest, history.completeness.peak_uncertain_bytes));
            prop_assert_eq!(replayed[maximum.instant as usize][index], maximum.bytes as u64);
        }
    }

    for (instant, moment) in (0u32..).zip(&log.moments) {
        let mut active: Vec<_> =
            history.allocations.iter().filter(|allocation| allocation.active_at(instant)).collect();
        active.sort_by_key(|allocation| allocation.addr);
        let found: Vec<_> =
            active.iter().map(|block| (block.addr, block.requested, !block.allocated_at(instant))).collect();
        let held: Vec<_> = moment.held.iter().map(|block| (block.addr, block.requested, block.pending)).collect();
        prop_assert_eq!(found, held, "instant {}", instant);
        for (found, held) in active.iter().zip(&moment.held) {
            prop_assert!(within(found.size, held.size, slack.min(MIB)), "{:?} instead of {:?}", found, held);
        }

        let spans = history.segments.iter().filter(|span| span.reserved_at(instant));
        let mut reserved: Vec<_> = spans.map(|span| (span.addr, span.end())).collect();
        reserved.sort_unstable();
        reserved.dedup_by(|next, range| {
            let touches = range.1 == next.0;
            if touches {
                range.1 = next.1;
            }
            touches
        });
        prop_assert_eq!(&reserved, &moment.reserved, "instant {}", instant);
    }

    for (index, entry) in (0u32..).zip(&log.entries) {
        let concerned = history.allocation_of(index).map(|allocation| (allocation.addr, allocation.requested));
        let concerns =
            matches!(entry.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted | Action::Annotate);
        prop_assert_eq!(concerned, concerns.then_some((entry.addr, entry.size)));
    }

    prop_assert_eq!(history.completeness.has_baseline, log.moments[0] != Moment::default());
    prop_assert_eq!(history.completeness.no_entries, log.entries.is_empty());
    Ok(())
}

/// The size of a block is uncertain only if nothing shows it: the block is large, it was live at the start and is freed at
/// the end, and the free memory after it was unused all that time. Expandable segments leave no doubt.
fn honest_uncertainty(history: &History, recording: &Recording, log: &Log) -> TestCaseResult {
    let untold = |block: &&Held| {
        let later = log.moments.iter().map(|moment| moment.held.iter().find(|held| held.addr == block.addr));
        let mut present = later.clone().map_while(|held| held);
        block.size > MIB && later.clone().any(|held| held.is_none()) && present.all(|held| held.free_behind)
    };
    let blocks = log.moments[0].held.iter().filter(untold).count() as u64;
    let most = if recording.config.expandable == Expandable::Never { blocks * MIB } else { 0 };
    let uncertain = history.completeness.baseline_uncertain_bytes;
    prop_assert!(uncertain <= most, "{} instead of at most {}", uncertain, most);
    prop_assert!(history.completeness.peak_uncertain_bytes <= uncertain);
    Ok(())
}

/// What must hold for any entries: the counters along the trace lead to those at its end, and the maxima are theirs.
fn consistent(history: &History, snapshot: &Snapshot) -> TestCaseResult {
    let mut maxima = Metric::ALL.map(|metric| history.start.get(metric));
    let mut end = history.start;
    Track::new(snapshot, history).walk(|_, counters| {
        for (maximum, metric) in maxima.iter_mut().zip(Metric::ALL) {
            *maximum = (*maximum).max(counters.get(metric));
        }
        end = *counters;
    });
    prop_assert_eq!(end, history.end);
    for (metric, maximum) in Metric::ALL.into_iter().zip(&history.maxima) {
        let at = Track::new(snapshot, history).counters_at(maximum.instant);
        prop_assert_eq!(at.get(metric), maximum.bytes);
    }
    let found: Vec<_> = history.anomalies.kinds().map(|anomaly| anomaly.kind).collect();
    if !found.contains(&AnomalyKind::Overflow) && !found.contains(&AnomalyKind::NegativeTotal) {
        prop_assert_eq!(maxima, history.maxima.map(|maximum| maximum.bytes));
    }
    Ok(())
}

fn pick_entry(entries: &[Entry], pick: prop::sample::Index, actions: &[Action]) -> Option<usize> {
    let eligible: Vec<_> = (0..entries.len()).filter(|&index| actions.contains(&entries[index].action)).collect();
    (!eligible.is_empty()).then(|| *pick.get(&eligible))
}

/// Something that happens to an entry on the way.
#[derive(Clone, Copy, Debug)]
enum Change {
    Drop,
    Repeat,
    Swap,
    Act(Action),
    Move(u64),
    /// To the address of the first entry, or some bytes around it.
    Meet(i16),
    Resize(u64),
}

impl Change {
    fn apply(self, entries: &mut Vec<Entry>, index: usize) {
        match self {
            Self::Drop => drop(entries.remove(index)),
            Self::Repeat => entries.insert(index, entries[index]),
            Self::Swap => entries.swap(0, index),
            Self::Act(action) => entries[index].action = action,
            Self::Move(addr) => entries[index].addr = addr,
            Self::Meet(offset) => entries[index].addr = entries[0].addr.wrapping_add_signed(offset.into()),
            Self::Resize(size) => entries[index].size = size,
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let number = || prop_oneof![any::<u64>(), 0..3u64, u64::MAX - 2..=u64::MAX, 0..64 * MIB, Just(i64::MAX as u64)];
    prop_oneof![
        Just(Change::Drop),
        Just(Change::Repeat),
        Just(Change::Swap),
        prop::sample::select(Action::ALL.to_vec()).prop_map(Change::Act),
        number().prop_map(Change::Move),
        prop_oneof![Just(0), any::<i16>()].prop_map(Change::Meet),
        number().prop_map(Change::Resize),
    ]
}
