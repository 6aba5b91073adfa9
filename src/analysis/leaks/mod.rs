//! Allocations that survive step after step.
//!
//! For every group of blocks (a line of code, unless requested otherwise), this measures the bytes that are live at
//! the end of each step, and lets [`growth`] judge the series. Memory that a step needs for itself is free again at
//! the end of the next one, so it never appears, however large it is; the rest is what the program keeps.

pub mod growth;
mod holder;
mod projection;

use crate::analysis::advice::{Advice, RuleKind, Simulate, advice_of};
use crate::error::{Error, Result};
use crate::facts::code::sites::{CodeOrigin, LONGEST_STACK, Sites};
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Inference, RowHead};
use crate::facts::training::Role;
use crate::facts::training::steps::{NoSteps, RequestedSteps, Steps};
use crate::model::{Action, DeviceId, StackId};
use crate::parallel;
use crate::replay::{Allocation, Anomalies, Completeness, Counters, History, Instant, Metric, NEVER, Track};
use crate::sorting::SortRows;
use growth::{MIN_JUDGED, Rate, Series, Survivor, Verdict};
use indexmap::IndexMap;
pub use projection::Projection;
use regex_lite::Regex;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::iter;
use std::ops::Range;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct LeakOptions {
        /// What rows represent: site, stack, file or module. With other groups, a block may not have exactly one group.
        pub by: GroupBy,
        /// Annotations that represent steps; `None` to find steps in the recording.
        pub steps: Option<Regex>,
        /// Bytes of the device; `None` to take them from an OOM entry.
        pub capacity: Option<u64>,
        pub filter: Filter,
        pub inference: Inference,
        pub top: Option<usize>,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// Whether to look for mistakes in the program, and which cures to simulate.
        pub cures: Option<Simulate>,
        /// Whether to look only for mistakes that let memory grow, as [`DeviceLeaks::of_growth`] lists them.
        pub cures_of_growth: bool,
        /// Whether only rows are needed: then memory at the ends of steps and the projection are omitted.
        pub(crate) rows_alone: bool,
    }
}

/// A group of blocks that grows, or has grown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Leak"))]
pub struct LeakRow {
    /// The group.
    pub label: String,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// Growth per step; zero for a cache.
    #[serde(flatten)]
    pub rate: Rate,
    /// Requested bytes that are live at the end of the last step. Blocks that the last step allocated are not part of a
    /// cache.
    pub live_bytes: u64,
    /// Number of these blocks.
    pub live_blocks: u64,
    /// The behavior of the group.
    pub verdict: Verdict,
    /// The last step, counted from 1, in which a cache reached a new maximum; null if the group still grows.
    pub filled_in_step: Option<usize>,
    /// The oldest block of `stack` that is live at the end of the last step; null if there is none.
    pub oldest: Option<Oldest>,
    /// What holds most of the blocks of a leak, without the places in lists: `train.history[*]`. Left out unless the recording has
    /// holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The stack of most of the blocks that the verdict is about, innermost frame first.
    pub stack: Vec<String>,
    /// The blocks that a [`Verdict::Leak`] is about, by index into [`History::allocations`]: the group may have others.
    #[serde(skip)]
    pub(crate) leaked: Vec<usize>,
}

/// The oldest live block; all null for a block from before the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Oldest {
    /// Its alloc entry, counted within the device's trace.
    pub entry: Option<u32>,
    /// The step, counted from 1, that allocated it.
    pub step: Option<usize>,
    /// The time since the first entry of the recording; null if the file has no times.
    pub since_start_us: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEnd {
    /// The step, counted from 1.
    pub step: usize,
    pub instant: Instant,
    pub allocated_bytes: i64,
}

#[derive(Clone, Debug)]
pub struct DeviceLeaks {
    /// Device, -1 for pinned host memory.
    pub device: DeviceId,
    pub by: GroupBy,
    pub steps: std::result::Result<Steps, NoSteps>,
    /// Leading steps that are not used for rates.
    pub warm_up: usize,
    /// The distance between the steps at which memory is measured: 1, and more only if there are more than [`MAX_ENDS`]
    /// steps.
    pub stride: usize,
    pub ends: Vec<StepEnd>,
    /// Groups that leak, then groups that grow, then caches, then what each step renews; each the largest first.
    pub rows: Vec<LeakRow>,
    /// Rows left out by [`LeakOptions::top`].
    pub left_out: usize,
    /// Lines among the rows that run a library's model: other answers show the library's lines instead.
    pub library_below: Vec<String>,
    /// Total rates of all leaks.
    pub leaking: Rate,
    /// Total rates of all rows with [`Verdict::Growth`].
    pub growing: Rate,
    /// When the device is full; `None` if nothing leaks or grows, or if the capacity is unknown.
    pub projection: Option<Projection>,
    /// The requested capacity of the device, in bytes; `None` if none was requested.
    pub capacity: Option<u64>,
    pub cures: Vec<Advice>,
    pub baseline: Counters,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

#[derive(Clone, Debug, Default)]
pub struct LeakReport {
    pub devices: Vec<DeviceLeaks>,
}

/// The most steps at whose ends memory is measured; with more steps, only every second or third one and so on is measured.
pub const MAX_ENDS: usize = 256;

/// One step in this many is part of the warm-up, in addition to the first: that covers autotuning and compilation.
const WARM_UP_PART: usize = 10;

/// What each step renews is listed from this part of all rows on.
const SMALL_PART: u64 = 100;

/// The least number of steps for a verdict: one to warm up, and as many as a trend needs.
pub const MIN_STEPS: usize = 1 + MIN_JUDGED;

impl DeviceLeaks {
    pub fn step_count(&self) -> usize {
        self.steps.as_ref().map_or(0, Steps::len)
    }

    pub fn steps_with_entries(&self) -> usize {
        self.steps.as_ref().map_or(0, |steps| steps.len() - steps.idle)
    }

    /// The changes that are about accumulating memory.
    pub fn of_growth(&self) -> Vec<Advice> {
        self.cures.iter().filter(|cure| cure.kind.piles_up()).cloned().collect()
    }

    /// Whether there were enough steps for a verdict. If not, the absence of rows means nothing.
    pub fn is_judged(&self) -> bool {
        self.step_count() >= MIN_STEPS
    }

    /// Whether there were enough steps to detect a leak, and they are steps: a loop without a model may accumulate
    /// memory on purpose, so for it only [`Verdict::Growth`] is reported.
    pub fn tells_leaks(&self) -> bool {
        self.is_judged() && self.steps.as_ref().is_ok_and(Steps::are_steps)
    }
}

impl LeakReport {
    /// Finds the steps of each device and the memory that survives them.
    ///
    /// # Errors
    /// If a device does not exist, no annotation matches [`LeakOptions::steps`], or blocks cannot be grouped by
    /// [`LeakOptions::by`].
    pub fn of(recording: &Devices<'_>, options: &LeakOptions) -> Result<Self> {
        if !options.by.gives_each_stack_one_group() {
            let found = options.by.name();
            return Err(Error::Request(format!("expected leaks by site, stack, file or module, found {found}")));
        }
        let wanted = recording.wanted(&options.devices)?;
        let steps = |pattern| RequestedSteps::of(recording.snapshot(), recording.annotations(), pattern);
        let requested = options.steps.as_ref().map(steps).transpose()?;
        let device = |device: &&Device<'_>| DeviceLeaks::of(device, requested.as_ref(), options);
        Ok(Self { devices: parallel::map(&wanted, device) })
    }
}

impl DeviceLeaks {
    fn of(device: &Device<'_>, requested: Option<&RequestedSteps>, options: &LeakOptions) -> Self {
        let (track, history) = (device.track, device.history());
        let steps = match requested {
            Some(requested) => requested.steps(track),
            None => device.steps().cloned(),
        };
        let all_ends = steps.as_ref().map(|steps| steps.ends.as_slice()).unwrap_or_default();
        let sample = Sample::of(all_ends, device);
        let mut rows = if all_ends.len() < MIN_STEPS {
            Vec::new()
        } else {
            let grouper = Grouper::new(device, device.sites(), &options.filter, options.by).inferring(
                device,
                options.inference,
                Metric::Allocated,
            );
            grown(track, all_ends, &sample, &mut Groups::new(&grouper), device.sites())
        };
        if !steps.as_ref().is_ok_and(Steps::are_steps) {
            rows.retain(|row| !matches!(row.verdict, Verdict::Leak | Verdict::Renewed));
        }
        // A loss, and the like.
        let total = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.live_bytes));
        rows.retain(|row| row.verdict != Verdict::Renewed || row.live_bytes > total / SMALL_PART);
        rows.sort_rows_by(|a, b| {
            (a.verdict.cmp(&b.verdict))
                .then_with(|| (b.rate.bytes, b.live_bytes).cmp(&(a.rate.bytes, a.live_bytes)))
                .then_with(|| a.label.cmp(&b.label))
                .then_with(|| a.stack.cmp(&b.stack))
        });
        let leaking = sum(&rows, Verdict::Leak);
        let growing = sum(&rows, Verdict::Growth);
        let allocated_bytes_per_step = leaking.allocated_bytes.saturating_add(growing.allocated_bytes);
        let left_out = rows.len().saturating_sub(options.top.unwrap_or(usize::MAX));
        rows.truncate(options.top.unwrap_or(usize::MAX));
        for row in &mut rows {
            row.holder = holder::of(device, &row.leaked);
        }
        let is_wanted: fn(RuleKind) -> bool = if options.cures_of_growth { RuleKind::piles_up } else { |_| true };
        Self {
            device: device.id(),
            by: options.by,
            projection: if options.rows_alone {
                None
            } else {
                Projection::of(track, all_ends, options.capacity, allocated_bytes_per_step)
            },
            capacity: options.capacity,
            warm_up: sample.warm_up * sample.stride,
            stride: sample.stride,
            ends: if options.rows_alone { Vec::new() } else { step_ends(track, &sample) },
            steps,
            library_below: if options.rows_alone || options.by != GroupBy::Site {
                Vec::new()
            } else {
                let mut lines = device.library_below();
                lines.retain(|line| rows.iter().any(|row| row.label.contains(line.as_str())));
                lines
            },
            rows,
            left_out,
            leaking,
            growing,
            cures: options.cures.map(|simulate| advice_of(device, simulate, is_wanted)).unwrap_or_default(),
            baseline: history.start,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        }
    }
}

fn sum(rows: &[LeakRow], verdict: Verdict) -> Rate {
    let rates = rows.iter().filter(|row| row.verdict == verdict).map(|row| row.rate);
    rates.fold(Rate::default(), |sum, rate| Rate {
        bytes: sum.bytes.saturating_add(rate.bytes),
        allocated_bytes: sum.allocated_bytes.saturating_add(rate.allocated_bytes),
        blocks: sum.blocks + rate.blocks,
    })
}

struct Sample {
    ends: Vec<Instant>,
    stride: usize,
    /// Number of steps before the first of them, if less than a full stride.
    lead: usize,
    /// Leading ends that are not used for rates.
    warm_up: usize,
    /// The instant at which a block must be live to count as kept: see [`before_exit`].
    last: Instant,
}

impl Sample {
    fn of(ends: &[Instant], device: &Device<'_>) -> Self {
        let last = before_exit(device, ends);
        let stride = ends.len().div_ceil(MAX_ENDS).max(1);
        // The last end is always one of them.
        let lead = ends.len().saturating_sub(1) % stride;
        let ends: Vec<Instant> = ends.iter().copied().skip(lead).step_by(stride).collect();
        // The first step creates optimizer state and workspaces.
        let warm_up = 1 + ends.len() / WARM_UP_PART;
        Self { ends, stride, lead, warm_up, last }
    }

    /// The number of a step, counted from 1, whose end has this index.
    fn number(&self, index: usize) -> usize {
        index * self.stride + self.lead + 1
    }
}

/// Usually the end of the recording. If the program frees even its model after the last step and the last request, as when
/// `main` returns, the instant after these two: what a program holds until it exits counts as kept.
fn before_exit(device: &Device<'_>, ends: &[Instant]) -> Instant {
    let (track, history) = (device.track, device.history());
    let (Some(&first), Some(&last)) = (ends.first(), ends.last()) else { return history.entries() };
    let request = track.actions().iter().rposition(|action| matches!(action, Action::Alloc | Action::Oom));
    let before = request.map_or(last, |entry| last.max(entry as Instant + 1));
    // The weights of the model, as far as stacks show them, or whatever is older than the recording. The process keeps workspaces.
    let is_weight = |block: &Allocation, stack: StackId| block.born == 0 || device.roles().role(stack) == Role::Setup;
    let weights = track.allocations().take_while(|(_, block, _)| block.born <= first);
    let weights = weights.filter(|(_, block, stack)| block.allocated_at(before) && is_weight(block, *stack));
    let (mut held, mut freed) = (0, 0);
    for (_, block, _) in weights {
        held += 1;
        freed += usize::from(block.freed != NEVER);
    }
    if freed > held / 2 { before } else { history.entries() }
}

/// A block that is live at the end of a step.
struct Crossing {
    /// Index into [`History::allocations`].
    allocation: usize,
    /// Ends at which it is live, by index into [`Sample::ends`].
    ends: Range<usize>,
}

/// Judges every group. Linear in allocations and in groups: only blocks that are live when a step ends are grouped at
/// all, and the series of a group exists only while it is judged.
fn grown(
    track: Track<'_>,
    all_ends: &[Instant],
    sample: &Sample,
    groups: &mut Groups<'_>,
    sites: &Sites<'_>,
) -> Vec<LeakRow> {
    let history = track.history;
    let ends = &sample.ends;
    // Of each group, the oldest block first.
    let mut crossings: Vec<Vec<Crossing>> = Vec::new();
    let mut born_in = 0;
    for (index, allocation) in history.allocations.iter().enumerate() {
        // Allocations come in the order of the trace, baseline first.
        while ends.get(born_in).is_some_and(|&end| end < allocation.born) {
            born_in += 1;
        }
        let Some(&end) = ends.get(born_in) else { break };
        if !allocation.allocated_at(end) {
            continue;
        }
        let Some(&group) = groups.of_allocation(index).first() else { continue };
        if groups.is_filtered_out(group) {
            continue;
        }
        let freed_in = born_in + ends[born_in..].partition_point(|&end| end < allocation.freed);
        if crossings.len() <= group {
            crossings.resize_with(group + 1, Vec::new);
        }
        crossings[group].push(Crossing { allocation: index, ends: born_in..freed_in });
    }
    let heads: Vec<RowHead> = groups.heads(|_| iter::empty()).into_iter().map(|(_, head)| head).collect();
    let row = |(group, blocks): (usize, &Vec<Crossing>)| {
        let survivors = blocks.iter().map(|block| survivor(history, sample, block));
        let series = Series::of(survivors, ends.len());
        let judgement = series.judge(sample.warm_up, sample.stride)?;
        let held = if judgement.verdict == Verdict::Cache { &series.old } else { &series.live };
        let last = |values: &[i128]| values.last().and_then(|&value| u64::try_from(value).ok());
        let origin = example(groups, history, sample, blocks, judgement.verdict);
        let head = heads.get(group)?;
        Some(LeakRow {
            label: head.label.clone(),
            inferred: head.inferred,
            verdict: judgement.verdict,
            rate: judgement.rate,
            live_bytes: last(&held.requested)?,
            live_blocks: last(&held.blocks)?,
            filled_in_step: judgement.filled_in.map(|index| sample.number(index)),
            oldest: origin.and_then(|origin| oldest(track, groups, all_ends, blocks, origin)),
            holder: None,
            stack: origin.map(|origin| sites.origin_labels(origin, LONGEST_STACK)).unwrap_or_default(),
            leaked: match judgement.verdict {
                Verdict::Leak => leaked(groups, history, sample, blocks),
                Verdict::Growth | Verdict::Cache | Verdict::Renewed => Vec::new(),
            },
        })
    };
    crossings.iter().enumerate().filter(|(_, blocks)| !blocks.is_empty()).filter_map(row).collect()
}

fn survivor(history: &History, sample: &Sample, block: &Crossing) -> Survivor {
    let allocation = &history.allocations[block.allocation];
    Survivor {
        requested: allocation.requested,
        allocated: allocation.size,
        steps: block.ends.clone(),
        baseline: allocation.is_baseline(),
        kept: allocation.allocated_at(sample.last),
    }
}

/// The code of most of the blocks that a verdict is about: for a leak the remaining blocks, for growth those allocated
/// after the warm-up, for a cache those that it holds.
fn example(
    groups: &Groups<'_>,
    history: &History,
    sample: &Sample,
    blocks: &[Crossing],
    verdict: Verdict,
) -> Option<CodeOrigin> {
    let last = sample.ends.len().checked_sub(1)?;
    let mut origins: IndexMap<CodeOrigin, u128> = IndexMap::new();
    for block in blocks {
        let allocation = &history.allocations[block.allocation];
        let counts = match verdict {
            Verdict::Leak => block.ends.start >= sample.warm_up && allocation.allocated_at(sample.last),
            Verdict::Growth => block.ends.start >= sample.warm_up,
            Verdict::Cache => block.ends.start < last && block.ends.contains(&last),
            Verdict::Renewed => block.ends.contains(&last),
        };
        if counts {
            *origins.entry(groups.origin_of(block.allocation)).or_default() += u128::from(allocation.requested);
        }
    }
    origins.into_iter().max_by_key(|&(origin, bytes)| (bytes, Reverse(origin))).map(|(origin, _)| origin)
}

/// The blocks that steps after the warm-up leave behind until [`Sample::last`], and those like them from before. The last step
/// may still hold what the next one would free.
fn leaked(groups: &Groups<'_>, history: &History, sample: &Sample, blocks: &[Crossing]) -> Vec<usize> {
    let last = sample.ends.len().saturating_sub(1);
    let is_left = |block: &&Crossing| {
        let allocation = &history.allocations[block.allocation];
        !allocation.is_baseline() && allocation.allocated_at(sample.last)
    };
    let kind = |block: &Crossing| (groups.origin_of(block.allocation), history.allocations[block.allocation].requested);
    let is_judged = |block: &&Crossing| (sample.warm_up..last).contains(&block.ends.start);
    let kinds: HashSet<(CodeOrigin, u64)> = blocks.iter().filter(is_left).filter(is_judged).map(kind).collect();
    let of_kind = blocks.iter().filter(is_left).filter(|block| kinds.contains(&kind(block)));
    of_kind.map(|block| block.allocation).collect()
}

/// The oldest block of an origin that is live at the end of the last step.
fn oldest(
    track: Track<'_>,
    groups: &Groups<'_>,
    all_ends: &[Instant],
    blocks: &[Crossing],
    origin: CodeOrigin,
) -> Option<Oldest> {
    let &end = all_ends.last()?;
    let history = track.history;
    let block = blocks.iter().find(|block| {
        history.allocations[block.allocation].allocated_at(end) && groups.origin_of(block.allocation) == origin
    })?;
    let born = history.allocations[block.allocation].born;
    let times = track.times();
    let entry = History::entry_before(born);
    let time = entry.and_then(|entry| times.get(entry as usize)).filter(|_| track.has_times());
    let first = track.snapshot.first_time();
    Some(Oldest {
        entry,
        step: entry.map(|_| all_ends.partition_point(|&end| end < born) + 1),
        since_start_us: time.zip(first).map(|(time, first)| time.saturating_sub(first)),
    })
}

fn step_ends(track: Track<'_>, sample: &Sample) -> Vec<StepEnd> {
    let history = track.history;
    let mut allocated = vec![history.start.allocated; sample.ends.len()];
    let mut next = sample.ends.partition_point(|&end| end == 0);
    track.walk(|instant, counters| {
        while sample.ends.get(next).is_some_and(|&end| end == instant) {
            allocated[next] = counters.allocated;
            next += 1;
        }
    });
    let ends = sample.ends.iter().zip(allocated).enumerate();
    ends.map(|(index, (&instant, allocated_bytes))| StepEnd { step: sample.number(index), instant, allocated_bytes })
        .collect()
}
