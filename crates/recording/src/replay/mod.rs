//! From trace entries, in order, to the allocator's history.
//!
//! In: a [`Snapshot`], or what a profiler wrote ([`profile`]). Out: one [`History`] per device: every allocation with its
//! true block size and lifetime, every reserved range, the four counters of `torch.cuda.memory_stats()` with their maxima,
//! and all contradictions. A [`Track`] combines a device's entries with its history.
//!
//! The trace records requested sizes, while the counters count blocks. Block sizes follow from the rules of the
//! [`crate::allocator`] once its layout is known, so the replay drives a small model of the allocator (`simulation`). A first
//! run starts from an empty allocator. If the recording did not start there, that run discovers what was there before
//! (`discovery`), and a second run starts from that, over the entries that depend on it.

mod address_map;
mod allocation;
mod anomaly;
mod baseline;
mod counted;
mod counters;
mod discovery;
mod history;
mod inferred_rules;
mod occupancy;
mod operator_usage;
pub mod profile;
mod ranges;
mod reconcile;
mod simulation;
mod split_timeline;
mod tally;
mod totals;
mod track;
mod whole_pools;

pub use allocation::{Allocation, Instant, NEVER};
pub use anomaly::{Anomalies, Anomaly, AnomalyKind};
pub use counted::{ComparedCounter, CountedAt};
pub use counters::{Counters, Maximum, Metric};
pub use history::{BaselineOrigin, Bound, Completeness, History, SegmentSpan};
pub use inferred_rules::InferredRule;
pub use operator_usage::{NO_OPERATOR, OperatorUsage, Usage};
#[doc(hidden)]
pub use totals::require_plausible;
pub use track::Track;

use crate::allocator::{SMALL_SIZE, SizeRules};
use crate::input::EntryObserver;
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, Block, BlockState, DeviceTrace, HOST_DEVICE, Snapshot};
use crate::parallel;
use baseline::Baseline;
use foldhash::fast::RandomState;
use inferred_rules::Variant;
use simulation::Simulation;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use tally::Tally;
use whole_pools::WholePools;

/// Replays every device of a snapshot, in the order of [`Snapshot::traces`]. Devices are replayed in parallel; the result
/// does not depend on that.
pub fn replay(snapshot: &Snapshot) -> Vec<History> {
    HeadStart::default().finish(snapshot)
}

/// First runs made while the file is still being read.
///
/// Reading keeps one core busy; this keeps a second one busy. For a complete recording with default settings, the first run
/// is the only one, and the replay of a million entries ends 3 ms after reading instead of 33 ms.
#[derive(Debug, Default)]
pub struct HeadStart {
    runs: Vec<FirstRun>,
}

/// The most first runs kept: more than any machine has devices, and few enough for a file with a separate list for each
/// entry.
const MAX_FIRST_RUNS: usize = 256;

#[derive(Debug)]
struct FirstRun {
    list: u32,
    rows: Range<usize>,
    simulation: Simulation,
}

impl EntryObserver for HeadStart {
    fn observe(&mut self, list: u32, first_row: usize, entries: &[TraceEntry]) {
        // Lists are read one after the other; any other layout is replayed later.
        if self.runs.last().is_none_or(|run| run.list != list) {
            if self.runs.len() >= MAX_FIRST_RUNS {
                return;
            }
            let simulation = Simulation::discovering(SizeRules::default());
            self.runs.push(FirstRun { list, rows: first_row..first_row, simulation });
        }
        let Some(run) = self.runs.last_mut().filter(|run| run.rows.end == first_row) else { return };
        run.rows.end += entries.len();
        for entry in entries {
            run.simulation.apply(entry);
        }
    }
}

impl HeadStart {
    /// Replays every device of the snapshot that was observed, like [`replay`].
    pub fn finish(self, snapshot: &Snapshot) -> Vec<History> {
        let mut runs: HashMap<Range<usize>, Simulation> =
            self.runs.into_iter().map(|run| (run.rows, run.simulation)).collect();
        let starts: Vec<_> = snapshot.traces.iter().map(|trace| (trace, runs.remove(&trace.rows))).collect();
        parallel::map(starts, |(trace, start)| replay_trace(snapshot, trace, start))
    }
}

/// Replays one device. `head_start` is a first run that was made while the file was still being read.
fn replay_trace(snapshot: &Snapshot, trace: &DeviceTrace, head_start: Option<Simulation>) -> History {
    if trace.device == HOST_DEVICE {
        return replay_under(snapshot, trace, head_start, SizeRules::host());
    }
    let rules = SizeRules::device(&snapshot.settings);
    let pools = WholePools::of(snapshot, trace, &rules);
    let splits = split_timeline::shown(snapshot, trace, &rules);
    let rule = (!splits.is_empty()).then_some(InferredRule::ExpandableChanged);
    let base = Variant { rule, splits, whole_segments: pools.contexts(snapshot, false), ..Variant::default() };
    let mut history = if base.departs() {
        inferred_rules::replay_with(snapshot, trace, rules.clone(), base.clone())
    } else {
        replay_under(snapshot, trace, head_start, rules.clone())
    };
    if history.anomalies.total() > 0 && !trace.truncated {
        history = inferred_rules::explain(snapshot, trace, &rules, &base).unwrap_or(history);
    }
    let possible = Variant {
        keeps_rests: !base.splits.is_empty(),
        whole_segments: pools.contexts(snapshot, true),
        ..base.clone()
    };
    if possible != base {
        let most = inferred_rules::replay_with(snapshot, trace, rules, possible);
        let more = UNCERTAIN.map(|metric| most.maxima[metric as usize].bytes - history.maxima[metric as usize].bytes);
        history.completeness.other_rules_bytes = more.into_iter().max().map_or(0, |more| more.max(0).unsigned_abs());
    }
    history
}

fn replay_under(snapshot: &Snapshot, trace: &DeviceTrace, head_start: Option<Simulation>, rules: SizeRules) -> History {
    let mut simulation = match head_start {
        Some(simulation) => simulation,
        None => run(Simulation::discovering(SizeRules::default()), snapshot, trace),
    };
    let baseline = discovery::baseline(snapshot, trace, &simulation, &rules);
    let is_complete = baseline.is_empty() && simulation.discovered.is_empty() && simulation.holds_under(&rules);
    if !is_complete && !simulation.second_run(rules.clone(), &baseline, &snapshot.entries, trace.rows.clone()) {
        simulation = run(Simulation::from_baseline(rules, &baseline, simulation), snapshot, trace);
    }
    finish(snapshot, trace, simulation, &baseline)
}

fn run(mut simulation: Simulation, snapshot: &Snapshot, trace: &DeviceTrace) -> Simulation {
    for entry in snapshot.entries.rows(trace.rows.clone()) {
        simulation.apply(&entry);
    }
    simulation
}

fn finish(snapshot: &Snapshot, trace: &DeviceTrace, mut simulation: Simulation, baseline: &Baseline) -> History {
    let segments = snapshot.segments_of(trace.device);
    // So is a free that is pending at the end but was never requested in the trace.
    let unrequested = |block: &Block| {
        let live = simulation.live_at(block.address).map(|index| simulation.allocations[index as usize]);
        block.state == BlockState::ActivePendingFree && live.is_some_and(|live| !live.is_baseline())
    };
    let pending = simulation.free_requests == 0 && segments.iter().flat_map(|segment| &segment.blocks).any(unrequested);
    let no_free_requested = simulation.lacks_free_requests() || (pending && !trace.truncated);
    let mut anomalies = std::mem::take(&mut simulation.anomalies);
    if no_free_requested {
        anomalies.forget(AnomalyKind::CompletedWithoutRequest);
    }
    if !trace.truncated {
        let pending_known = !no_free_requested;
        reconcile::reconcile(&simulation.allocations, &simulation.ranges, segments, pending_known, &mut anomalies);
    }
    if snapshot.notes.has_times && snapshot.entries.times_fall() {
        let times = snapshot.entries.times().get(trace.rows.clone()).unwrap_or(&[]);
        for (index, _) in times.windows(2).enumerate().filter(|(_, pair)| pair[1] < pair[0]) {
            anomalies.add(AnomalyKind::TimeReversed, Some(index as u32 + 1), 0);
        }
    }
    let is_full = |capacity| trace.rows.len() as u64 >= capacity;
    let ring_full = snapshot.notes.trace_overflowed.is_none() && snapshot.notes.ring_capacity.is_some_and(is_full);
    let is_short = |made: &Allocation| !made.is_baseline() && made.freed != NEVER;
    let completeness = Completeness {
        no_entries: trace.rows.is_empty(),
        has_baseline: !baseline.is_empty(),
        truncated: trace.truncated,
        no_free_requested,
        overflowed: snapshot.notes.trace_overflowed == Some(true),
        ring_full: ring_full && !trace.rows.is_empty(),
        unrecorded_frees: !baseline.is_empty() && snapshot.is_of_2_0() && !trace.rows.is_empty(),
        blocks_only: false,
        sampled: false,
        no_totals: false,
        while_profiling: false,
        no_reserved: false,
        no_free_completed: simulation.variant.frees_complete_at_once,
        inferred_rule: simulation.variant.rule,
        whole_segments: !simulation.variant.whole_segments.is_empty(),
        other_rules_bytes: 0,
        freed_left_out: snapshot.notes.in_page
            && !trace.rows.is_empty()
            && !simulation.allocations.iter().any(is_short),
        rounded_requests: trace.device == HOST_DEVICE,
        baseline_uncertain_bytes: simulation.unsettled.len() as u64 * SMALL_SIZE,
        peak_uncertain_bytes: 0,
        counters_differ: false,
    };
    let start = baseline.counters(&simulation.allocations);
    let mut history = History {
        device: trace.device,
        rows: trace.rows.clone(),
        allocations: simulation.allocations,
        baseline: baseline.blocks.iter().map(|block| block.origin).collect(),
        segments: simulation.ranges.into_spans(),
        start,
        end: start,
        maxima: [Maximum::default(); 4],
        at_maxima: None,
        anomalies,
        completeness,
        counted: Vec::new(),
        operators: Vec::new(),
        links: simulation.links,
        corrections: Vec::new(),
    };
    match simulation.tally {
        Some(tally) => enter(tally, &mut history),
        None => count(snapshot, &mut history, &simulation.unsettled),
    }
    history.counted = counted::compare(snapshot, &history);
    history.completeness.counters_differ = history.counted.iter().any(ComparedCounter::differs);
    history
}

/// The counters whose peaks may increase by a baseline block of uncertain size.
const UNCERTAIN: [Metric; 2] = [Metric::Allocated, Metric::Active];

/// Computes the counters along the trace: maxima, end, and the checks that need them. Baseline blocks of uncertain size may
/// increase the peaks of allocated and active, unless they are freed before memory comes near the peak; the possible increase
/// is computed here, too.
fn count(snapshot: &Snapshot, history: &mut History, unsettled: &HashSet<u32, RandomState>) {
    let mut uncertain = history.completeness.baseline_uncertain_bytes;
    let mut tally = Tally::starting_at(history.start, uncertain);
    let at_most =
        |now: &Counters, uncertain| UNCERTAIN.map(|metric| now.get(metric).saturating_add_unsigned(uncertain));
    let mut highest = at_most(&history.start, uncertain);
    let track = Track::new(snapshot, history);
    let entries = track.actions().iter().zip(track.sizes()).zip(&history.links);
    let mut corrections = history.corrections.iter().peekable();
    for (instant, ((&action, &size), &link)) in (1..).zip(entries) {
        let before = tally.now;
        tally.now.apply(action, history.allocations.get(link as usize), instant, || size);
        while let Some((_, bytes)) = corrections.next_if(|(from, _)| *from <= instant) {
            tally.now.correct(*bytes);
        }
        tally.see(action, size, instant, &before);
        if action == Action::FreeCompleted && (link as usize) < history.baseline.len() && unsettled.contains(&link) {
            uncertain -= SMALL_SIZE;
        }
        for (highest, bytes) in highest.iter_mut().zip(at_most(&tally.now, uncertain)) {
            *highest = (*highest).max(bytes);
        }
    }
    enter(tally, history);
    if !unsettled.is_empty() {
        let excess = |(metric, bytes): (Metric, i64)| bytes.saturating_sub(history.maxima[metric as usize].bytes);
        let most = UNCERTAIN.into_iter().zip(highest).map(excess).max();
        history.completeness.peak_uncertain_bytes = most.map_or(0, |bytes| bytes.max(0) as u64);
    }
}

/// Copies the results of the whole trace into the history.
fn enter(tally: Tally, history: &mut History) {
    history.maxima = tally.maxima;
    history.at_maxima = Some(tally.at_maxima);
    history.end = tally.now;
    history.anomalies.append(tally.anomalies);
}
