//! Allocations that survive step after step.
//!
//! For every group of blocks (a line of code, unless asked otherwise) this measures what is live at the end of each
//! step, and lets [`super::growth`] judge the series. Memory that a step needs for itself is free again when the next
//! one ends, so it never shows, however much it is; what is left is what the program holds on to.

use super::annotations::Annotations;
use super::attribution::{GroupBy, StackGroups};
use super::filter::Filter;
use super::growth::{MIN_JUDGED, Series, Verdict};
use super::peak::{highest, select_devices};
use super::sites::Sites;
use super::steps::{NoSteps, Steps};
use crate::error::{Error, Result};
use crate::model::{Action, DeviceId, Snapshot};
use crate::replay::{Anomalies, Completeness, Counters, History, Instant, Metric};
use rayon::prelude::*;
use regex::Regex;

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct LeakOptions {
    /// What rows stand for: site, stack, file or module. Others do not give each block one group.
    pub by: GroupBy,
    /// Annotations that stand for steps; `None` to find steps in the recording.
    pub steps: Option<Regex>,
    /// Bytes of the device; `None` to take them from an oom entry.
    pub capacity: Option<u64>,
    /// Stacks that count.
    pub filter: Filter,
    /// Number of rows kept.
    pub top: Option<usize>,
    /// Devices wanted; empty for all.
    pub devices: Vec<DeviceId>,
}

/// A group of blocks that grows, or has grown.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakRow {
    /// The group.
    pub label: String,
    /// What it does.
    pub verdict: Verdict,
    /// Bytes added a step, rounded to the nearest; 0 for [`Verdict::Cache`].
    pub bytes_per_step: u64,
    /// Blocks added a step; 0 where blocks only get larger.
    pub blocks_per_step: f64,
    /// Bytes live at the end of the last step.
    pub live_bytes: u64,
    /// Blocks live at the end of the last step.
    pub live_blocks: u64,
    /// The last step, counted from 1, that made the group larger than ever before by blocks which outlived it.
    pub filled_in: Option<usize>,
    /// The oldest block live at the end of the last step.
    pub oldest: Option<Survivor>,
    /// The stack with most bytes in the group, innermost frame first.
    pub stack: Vec<String>,
}

/// Where a block that is still there was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its alloc entry, counted within the device's trace; `None` for blocks from before the recording.
    pub entry: Option<u32>,
    /// The step, counted from 1, that allocated it; `None` for blocks from before the recording.
    pub step: Option<usize>,
    /// Time of that entry, in microseconds from the device's first one, where the file has times.
    pub since_start_us: Option<i64>,
}

/// What is allocated when a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEnd {
    /// The step, counted from 1.
    pub step: usize,
    /// The instant.
    pub instant: Instant,
    /// Allocated bytes there, of every stack.
    pub allocated_bytes: i64,
}

/// When the device is full, if growth goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Bytes that the program can have.
    pub capacity_bytes: u64,
    /// The most that was allocated within the last step.
    pub peak_bytes: i64,
    /// Bytes added a step by all that leaks or grows.
    pub bytes_per_step: u64,
    /// Further steps that fit before one needs more than there is.
    pub steps: u64,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceLeaks {
    /// Device, -1 for pinned host memory.
    pub device: DeviceId,
    /// What rows stand for.
    pub by: GroupBy,
    /// Its steps, or why there are none.
    pub steps: std::result::Result<Steps, NoSteps>,
    /// Leading steps that no rate is taken from.
    pub warm_up: usize,
    /// Every how many steps memory is looked at: 1, and more only where there are more than [`MAX_ENDS`] steps.
    pub stride: usize,
    /// What was allocated at those ends of steps.
    pub ends: Vec<StepEnd>,
    /// What leaks, then what grows, then caches; each the largest first.
    pub rows: Vec<LeakRow>,
    /// Rows left out by [`LeakOptions::top`].
    pub left_out: usize,
    /// Sum of the rates of all leaks.
    pub leak_bytes_per_step: u64,
    /// Sum of the rates of all that is [`Verdict::Growth`].
    pub growth_bytes_per_step: u64,
    /// When the device is full; `None` when nothing leaks or grows, or the capacity is not known.
    pub projection: Option<Projection>,
    /// Counters before the first kept entry.
    pub baseline: Counters,
    /// What the recording lacks.
    pub completeness: Completeness,
    /// Contradictions in it.
    pub anomalies: Anomalies,
}

/// Leaks of all devices.
#[derive(Clone, Debug, Default)]
pub struct LeakReport {
    /// The devices asked for, in order.
    pub devices: Vec<DeviceLeaks>,
}

/// Most ends of steps that memory is looked at; with more steps, only every second or third one and so on counts.
pub const MAX_ENDS: usize = 256;

/// Steps without which nothing is judged: one to warm up, and as many as a trend takes.
pub const MIN_STEPS: usize = 1 + MIN_JUDGED;

impl DeviceLeaks {
    /// Number of steps found.
    pub fn step_count(&self) -> usize {
        self.steps.as_ref().map_or(0, Steps::len)
    }

    /// Whether there were enough steps to tell a leak. Without, no row means nothing.
    pub fn is_judged(&self) -> bool {
        self.step_count() >= MIN_STEPS
    }
}

impl LeakReport {
    /// Finds the steps of each device and what survives them.
    ///
    /// # Errors
    /// When a device does not exist, no annotation matches [`LeakOptions::steps`], or blocks cannot be grouped by
    /// [`LeakOptions::by`].
    pub fn of(snapshot: &Snapshot, histories: &[History], options: &LeakOptions) -> Result<Self> {
        if !StackGroups::supports(options.by) {
            let found = options.by.name();
            return Err(Error::Request(format!("expected leaks by site, stack, file or module, found {found}")));
        }
        let wanted = select_devices(histories, &options.devices)?;
        let annotations = Annotations::of(snapshot);
        let sites = Sites::new(snapshot);
        let device = |history: &&History| device_leaks(snapshot, history, &annotations, &sites, options);
        Ok(Self { devices: wanted.par_iter().map(device).collect::<Result<_>>()? })
    }
}

fn device_leaks(
    snapshot: &Snapshot,
    history: &History,
    annotations: &Annotations,
    sites: &Sites<'_>,
    options: &LeakOptions,
) -> Result<DeviceLeaks> {
    let steps = Steps::find(snapshot, history, annotations, sites, options.steps.as_ref())?;
    let all_ends = steps.as_ref().map(|steps| steps.ends.as_slice()).unwrap_or_default();
    let sample = Sample::of(all_ends);
    let mut groups = StackGroups::new(sites, annotations, snapshot, &options.filter, options.by);
    let found =
        if all_ends.len() < MIN_STEPS { Vec::new() } else { grown(snapshot, history, &sample, &mut groups) };
    let mut rows = rows(snapshot, history, all_ends, &sample, &mut groups, &found);
    rows.sort_by(|a, b| {
        (a.verdict.cmp(&b.verdict))
            .then_with(|| (b.bytes_per_step, b.live_bytes).cmp(&(a.bytes_per_step, a.live_bytes)))
            .then_with(|| a.label.cmp(&b.label))
            .then_with(|| a.stack.cmp(&b.stack))
    });
    let rate = |verdict| {
        let rates = rows.iter().filter(|row| row.verdict == verdict).map(|row| row.bytes_per_step);
        rates.fold(0, u64::saturating_add)
    };
    let (leak_bytes_per_step, growth_bytes_per_step) = (rate(Verdict::Leak), rate(Verdict::Growth));
    let all = leak_bytes_per_step.saturating_add(growth_bytes_per_step);
    let left_out = rows.len().saturating_sub(options.top.unwrap_or(usize::MAX));
    rows.truncate(options.top.unwrap_or(usize::MAX));
    Ok(DeviceLeaks {
        device: history.device,
        by: options.by,
        projection: project(snapshot, history, all_ends, options.capacity, all),
        warm_up: sample.warm_up * sample.stride,
        stride: sample.stride,
        ends: step_ends(snapshot, history, &sample),
        steps,
        rows,
        left_out,
        leak_bytes_per_step,
        growth_bytes_per_step,
        baseline: history.start,
        completeness: history.completeness,
        anomalies: history.anomalies.clone(),
    })
}

/// The ends of steps that are looked at.
struct Sample {
    ends: Vec<Instant>,
    /// Every how many steps one is.
    stride: usize,
    /// Steps before the first of them that are no full stride.
    lead: usize,
    /// Leading ends that no rate is taken from.
    warm_up: usize,
}

impl Sample {
    fn of(ends: &[Instant]) -> Self {
        let stride = ends.len().div_ceil(MAX_ENDS).max(1);
        // The last end is always one of them.
        let lead = ends.len().saturating_sub(1) % stride;
        let ends: Vec<Instant> = ends.iter().copied().skip(lead).step_by(stride).collect();
        // The first step creates optimizer state and workspaces; a tenth more covers autotuning and compilation.
        let warm_up = 1 + ends.len() / 10;
        Self { ends, stride, lead, warm_up }
    }

    /// The number of a step, counted from 1, whose end has this index.
    fn number(&self, index: usize) -> usize {
        index * self.stride + self.lead + 1
    }
}

/// A block that outlives a step.
struct Crossing {
    group: u32,
    /// Ends of steps at which it is live.
    ends: std::ops::Range<u32>,
    size: u64,
    baseline: bool,
    /// Whether it is live at the end of the recording.
    kept: bool,
}

/// A group with a verdict.
struct Found {
    group: usize,
    verdict: Verdict,
    bytes_per_step: f64,
    blocks_per_step: f64,
    filled_in: Option<usize>,
}

/// Judges every group. Linear in allocations and in groups: only blocks that are there when a step ends are grouped at
/// all, and a group's series exists while it is judged.
fn grown(snapshot: &Snapshot, history: &History, sample: &Sample, groups: &mut StackGroups<'_>) -> Vec<Found> {
    let ends = &sample.ends;
    let last = history.entries();
    let mut crossings = Vec::new();
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
        let baseline = allocation.is_baseline();
        let Some(group) = groups.index_of(history.stack_of(snapshot, index), baseline) else { continue };
        let freed_in = born_in + ends[born_in..].partition_point(|&end| end < allocation.freed);
        crossings.push(Crossing {
            group: group as u32,
            ends: born_in as u32..freed_in as u32,
            size: allocation.size,
            baseline,
            kept: allocation.allocated_at(last),
        });
    }
    crossings.sort_unstable_by_key(|crossing| crossing.group);
    let judged = crossings.chunk_by(|a, b| a.group == b.group).filter_map(|blocks| {
        let judgement = series(blocks, ends.len()).judge(sample.warm_up)?;
        Some(Found {
            group: blocks.first()?.group as usize,
            verdict: judgement.verdict,
            bytes_per_step: judgement.bytes_per_step / sample.stride as f64,
            blocks_per_step: judgement.blocks_per_step / sample.stride as f64,
            filled_in: judgement.filled_in.map(|index| sample.number(index)),
        })
    });
    judged.collect()
}

/// The series of one group, from where each block comes and goes.
fn series(blocks: &[Crossing], ends: usize) -> Series {
    let mut series = Series::new(ends);
    for block in blocks {
        let size = i128::from(block.size);
        let (first, gone) = (block.ends.start as usize, block.ends.end as usize);
        // What is from before the recording was there when the first step began.
        let old = if block.baseline { first } else { first + 1 };
        let change = |from: usize, bytes: &mut Vec<i128>, blocks: &mut Vec<i128>| {
            if from < gone {
                bytes[from] += size;
                blocks[from] += 1;
                if gone < ends {
                    bytes[gone] -= size;
                    blocks[gone] -= 1;
                }
            }
        };
        change(first, &mut series.live, &mut series.live_blocks);
        change(old, &mut series.old, &mut series.old_blocks);
        if block.kept && !block.baseline {
            series.kept[first] += size;
        }
    }
    for changes in [&mut series.live, &mut series.live_blocks, &mut series.old, &mut series.old_blocks] {
        let mut sum = 0;
        for value in changes {
            sum += *value;
            *value = sum;
        }
    }
    series
}

/// Rows for what was found, with what each group holds at the end of the last step.
fn rows(
    snapshot: &Snapshot,
    history: &History,
    all_ends: &[Instant],
    sample: &Sample,
    groups: &mut StackGroups<'_>,
    found: &[Found],
) -> Vec<LeakRow> {
    let Some(&end) = sample.ends.last() else { return Vec::new() };
    let times = snapshot.entries.times().get(history.rows.clone()).unwrap_or(&[]);
    let mut oldest: Vec<Option<Survivor>> = Vec::new();
    for (index, allocation) in history.allocations.iter().enumerate() {
        if !allocation.allocated_at(end) || found.is_empty() {
            continue;
        }
        let stack = history.stack_of(snapshot, index);
        let Some(group) = groups.index_of(stack, allocation.is_baseline()) else { continue };
        groups.add(group, stack, allocation.size);
        if oldest.len() <= group {
            oldest.resize(group + 1, None);
        }
        oldest[group].get_or_insert_with(|| {
            let entry = History::entry_before(allocation.born);
            let time = entry.and_then(|entry| times.get(entry as usize)).filter(|_| snapshot.notes.has_times);
            Survivor {
                entry,
                step: entry.map(|_| all_ends.partition_point(|&end| end < allocation.born) + 1),
                since_start_us: time.and_then(|time| Some(time.saturating_sub(*times.first()?))),
            }
        });
    }
    let labelled = if found.is_empty() { Vec::new() } else { groups.rows() };
    let row = |found: &Found| {
        let row = labelled.get(found.group)?.clone();
        Some(LeakRow {
            label: row.label,
            verdict: found.verdict,
            bytes_per_step: found.bytes_per_step.round() as u64,
            blocks_per_step: found.blocks_per_step,
            live_bytes: row.bytes,
            live_blocks: row.blocks,
            filled_in: found.filled_in,
            oldest: oldest.get(found.group).copied().flatten(),
            stack: row.stack,
        })
    };
    found.iter().filter_map(row).collect()
}

/// What was allocated at the ends of steps.
fn step_ends(snapshot: &Snapshot, history: &History, sample: &Sample) -> Vec<StepEnd> {
    let mut allocated = vec![history.start.allocated; sample.ends.len()];
    let mut next = sample.ends.partition_point(|&end| end == 0);
    history.walk(snapshot, |instant, counters| {
        while sample.ends.get(next).is_some_and(|&end| end == instant) {
            allocated[next] = counters.allocated;
            next += 1;
        }
    });
    let ends = sample.ends.iter().zip(allocated).enumerate();
    ends.map(|(index, (&instant, allocated_bytes))| StepEnd { step: sample.number(index), instant, allocated_bytes })
        .collect()
}

/// When the device is full, from the most that the last step needed.
fn project(
    snapshot: &Snapshot,
    history: &History,
    ends: &[Instant],
    capacity: Option<u64>,
    bytes_per_step: u64,
) -> Option<Projection> {
    let capacity_bytes = capacity.or_else(|| capacity_at_oom(snapshot, history))?;
    let &[.., from, to] = ends else { return None };
    let peak_bytes = highest(snapshot, history, Metric::Allocated, from, to).bytes;
    let room = (i128::from(capacity_bytes) - i128::from(peak_bytes)).max(0);
    let steps = u64::try_from(room.checked_div(i128::from(bytes_per_step))?).ok()?;
    Some(Projection { capacity_bytes, peak_bytes, bytes_per_step, steps })
}

/// What the program could have when a request first failed: what it had reserved, and what the driver had free.
fn capacity_at_oom(snapshot: &Snapshot, history: &History) -> Option<u64> {
    let actions = snapshot.entries.actions().get(history.rows.clone())?;
    let entry = actions.iter().position(|&action| action == Action::Oom)?;
    let device_free = snapshot.entries.get(history.rows.start + entry)?.addr;
    let reserved = history.counters_at(snapshot, entry as Instant + 1).reserved;
    u64::try_from(reserved).ok()?.checked_add(device_free)
}
