//! Decides whether a series of live bytes, one value per step, leaks, grows, or is constant.
//!
//! In: for one group of blocks, the live bytes at the end of each step. Out: a verdict and a rate. Only numbers: other
//! modules decide which group they belong to and how they are shown.

use serde::Serialize;
use std::ops::Range;

/// The least number of steps after the warm-up for a verdict: three values are the fewest that can show a trend twice.
pub const MIN_JUDGED: usize = 3;

/// The least number of steps after the warm-up for [`Verdict::Growth`]: values differ from step to step for other reasons as
/// well, such as batches of different length, but eight increases in a row are not a coincidence.
const MIN_RISING: usize = 8;

/// The share of the growth after the warm-up that must still be live at the end for a leak: numerator and denominator.
const KEPT: (i128, i128) = (3, 4);

/// The number of periods of steps; for a leak, blocks of each period must be live at the end.
const WINDOWS: usize = 4;

/// The last 1/N of a series, in which a cache has stopped growing.
const TAIL: usize = 3;

/// At most 1/N of the values may be lower than the previous one for a series to be increasing. Without a trend, half of them
/// are.
const MAY_FALL: usize = 5;

names! {
    /// The behavior of a group of blocks over the steps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Verdict {
        /// Each step leaves blocks behind that are still live at the end of the recording, or when the program exits.
        Leak = "leak",
        /// More memory is held step after step, but the blocks do not stay: a buffer that is replaced by a larger one,
        /// such as a KV cache, or blocks that accumulate and are freed later.
        Growth = "growth",
        /// Filled in some step, and unchanged since: parameters, optimizer state, workspaces.
        Cache = "cache",
        /// Live at the end of each step, and replaced in the next one: gradients, or what a variable keeps of the last step.
        Renewed = "renewed",
    }
}

impl Verdict {
    /// Whether more memory is held step after step.
    pub fn grows(self) -> bool {
        matches!(self, Self::Leak | Self::Growth)
    }
}

/// How much a group of blocks grows per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rate {
    /// Requested bytes, rounded to the nearest.
    #[serde(rename = "bytes_per_step")]
    pub bytes: u64,
    /// Bytes of the blocks, rounded to the nearest. The allocator rounds requests up, and uses a free block as a whole if the
    /// rest would be too small, so these bytes fill the device.
    #[serde(rename = "allocated_bytes_per_step")]
    pub allocated_bytes: i64,
    /// Number of blocks; 0 if it is constant and only their sizes grow.
    #[serde(rename = "blocks_per_step")]
    pub blocks: f64,
}

/// Totals of a group of blocks, one value per step; wide enough for sums of any sizes that a file can contain.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub requested: Vec<i128>,
    pub allocated: Vec<i128>,
    pub blocks: Vec<i128>,
}

/// One group of blocks over the steps. A step extends from the end of the previous one to its own end.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    /// Live at the end of each step.
    pub live: Totals,
    /// The bytes of these that are from before the step: memory that a step needs for itself is not included.
    pub old: Totals,
    /// Requested bytes in each step and still live at the end of the recording, or when the program exits.
    pub kept: Vec<i128>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judgement {
    pub verdict: Verdict,
    /// 0 for [`Verdict::Cache`] and [`Verdict::Renewed`].
    pub rate: Rate,
    /// The step, counted from 0, in which a [`Verdict::Cache`] last became larger than ever before.
    pub filled_in: Option<usize>,
}

impl Totals {
    fn new(steps: usize) -> Self {
        Self { requested: vec![0; steps], allocated: vec![0; steps], blocks: vec![0; steps] }
    }

    /// Applies a measure of growth to each total from a step on; values are `stride` steps apart.
    fn rate(&self, from: usize, stride: usize, measure: impl Fn(&[i128]) -> f64) -> Rate {
        let per_step = |values: &[i128]| values.get(from..).map_or(0.0, &measure) / stride as f64;
        Rate {
            bytes: per_step(&self.requested).round() as u64,
            allocated_bytes: per_step(&self.allocated).round() as i64,
            blocks: per_step(&self.blocks),
        }
    }

    /// Adds a block that is live at the ends of these steps: as a change, which [`Totals::sum_up`] sums up.
    fn add(&mut self, steps: Range<usize>, requested: u64, allocated: u64) {
        if steps.is_empty() {
            return;
        }
        let (requested, allocated) = (i128::from(requested), i128::from(allocated));
        for (step, sign) in [(steps.start, 1), (steps.end, -1)] {
            if let Some(bytes) = self.requested.get_mut(step) {
                *bytes += sign * requested;
                self.allocated[step] += sign * allocated;
                self.blocks[step] += sign;
            }
        }
    }

    fn sum_up(&mut self) {
        for values in [&mut self.requested, &mut self.allocated, &mut self.blocks] {
            let mut sum = 0;
            for value in values {
                sum += *value;
                *value = sum;
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Survivor {
    pub requested: u64,
    pub allocated: u64,
    /// Steps at whose ends it is live.
    pub steps: Range<usize>,
    /// Whether it is from before the recording, so that it was live when the first step started.
    pub baseline: bool,
    /// Whether it is live at the end of the recording, or was until the program exited.
    pub kept: bool,
}

impl Series {
    /// The series of a group, from the lifetimes of its blocks; linear in blocks and steps.
    pub(super) fn of(blocks: impl Iterator<Item = Survivor>, steps: usize) -> Self {
        let mut series = Self { live: Totals::new(steps), old: Totals::new(steps), kept: vec![0; steps] };
        for block in blocks {
            let (first, end) = (block.steps.start, block.steps.end);
            series.live.add(first..end, block.requested, block.allocated);
            series.old.add(if block.baseline { first } else { first + 1 }..end, block.requested, block.allocated);
            if let Some(kept) = series.kept.get_mut(first).filter(|_| block.kept && !block.baseline) {
                *kept += i128::from(block.requested);
            }
        }
        series.live.sum_up();
        series.old.sum_up();
        series
    }

    /// Judges the series without its first `warm_up` values, which are `stride` steps apart; `None` if it does not grow, or
    /// there are too few values.
    pub(super) fn judge(&self, warm_up: usize, stride: usize) -> Option<Judgement> {
        let old = self.old.requested.get(warm_up..).filter(|old| old.len() >= MIN_JUDGED)?;
        let live = &self.live.requested[warm_up..];
        if slope(old) > 0.0 && slope(tail(old)) > 0.0 {
            let rate = self.old.rate(warm_up, stride, slope);
            if self.stays(warm_up) {
                return Some(Judgement { verdict: Verdict::Leak, rate, filled_in: None });
            }
            if old.len() >= MIN_RISING && mostly_rises(old) {
                return Some(Judgement { verdict: Verdict::Growth, rate, filled_in: None });
            }
        }
        if live.len() >= MIN_RISING && mostly_rises(live) && often_rises(live) && often_rises(tail(live)) {
            let usual = |values: &[i128]| median(differences(values, 1));
            let rate = self.live.rate(warm_up, stride, usual);
            return Some(Judgement { verdict: Verdict::Growth, rate, filled_in: None });
        }
        // Blocks from before the first step are not growth.
        let filled = self.old.requested.last() > self.old.requested.first();
        let filled_in = last_record(&self.old.requested);
        let constant = |verdict, filled_in| Judgement { verdict, rate: Rate::default(), filled_in };
        // Gradients that `zero_grad` frees behind the last step were not left for the next one.
        let is_left = || self.live.requested.last() == self.kept.last();
        let is_renewed = || is_left() && live.iter().all(|&bytes| bytes > 0) && old.iter().all(|&bytes| bytes == 0);
        filled
            .then(|| constant(Verdict::Cache, filled_in))
            .or_else(|| is_renewed().then(|| constant(Verdict::Renewed, None)))
    }

    /// Whether the blocks that accumulated after the warm-up stay until the recording ends or the program exits: at least
    /// three quarters of their bytes, and some from both early and late steps. A queue of fixed length keeps only late ones.
    fn stays(&self, warm_up: usize) -> bool {
        let (Some(first), Some(last)) = (self.old.requested.get(warm_up), self.old.requested.last()) else {
            return false;
        };
        // The last step may still hold what the next one would free, and `old` does not count it either.
        let kept = &self.kept[warm_up..self.kept.len() - 1];
        let windows = kept.len().min(WINDOWS);
        let everywhere = (0..windows).all(|window| {
            let part = &kept[kept.len() * window / windows..kept.len() * (window + 1) / windows];
            part.iter().any(|&bytes| bytes > 0)
        });
        let kept = kept.iter().sum::<i128>();
        everywhere && kept * KEPT.1 >= (last - first) * KEPT.0
    }
}

/// Growth per step, even if up to a quarter of the values are outliers: the median of the slopes between each value
/// and the one half the series later (Theil's abbreviated method). Exact if every step adds the same number, even if a
/// few steps add something else.
fn slope(values: &[i128]) -> f64 {
    let lag = (values.len() / 2).max(1);
    median(differences(&without_jumps(values), lag)) / lag as f64
}

/// Changes this many times as large as usual happen once, such as the allocation of a buffer for evaluation.
const JUMP: u128 = 8;

/// The series, from zero, with jumps replaced by the usual change. A level shift in the middle of a series lies
/// between half of all pairs of values, which a median of slopes cannot handle.
fn without_jumps(values: &[i128]) -> Vec<i128> {
    let changes = differences(values, 1);
    let mut sorted: Vec<i128> = changes.iter().copied().filter(|&change| change != 0).collect();
    sorted.sort_unstable_by_key(|change| change.unsigned_abs());
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    let mut sum = 0;
    let summed = changes.into_iter().map(|change| {
        sum += if change.unsigned_abs() > usual.unsigned_abs() * JUMP { usual } else { change };
        sum
    });
    std::iter::once(0).chain(summed).collect()
}

/// The last third, in which a cache has stopped growing.
fn tail(values: &[i128]) -> &[i128] {
    let length = values.len().div_ceil(TAIL).max(2).min(values.len());
    &values[values.len() - length..]
}

/// Whether at most one value in five is lower than the previous one. Without a trend, half of them are.
fn mostly_rises(values: &[i128]) -> bool {
    let falls = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
    falls * MAY_FALL <= values.len().saturating_sub(1)
}

/// Whether at least every second value is higher than the one before it.
fn often_rises(values: &[i128]) -> bool {
    let rises = values.windows(2).filter(|pair| pair[1] > pair[0]).count();
    values.len() > 1 && rises * 2 >= values.len() - 1
}

fn differences(values: &[i128], lag: usize) -> Vec<i128> {
    values.iter().zip(values.iter().skip(lag)).map(|(before, after)| after - before).collect()
}

/// The middle value, or the mean of the two middle values of an even number; 0 if there are none.
fn median(mut values: Vec<i128>) -> f64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    match (values.get(middle), middle.checked_sub(1).and_then(|below| values.get(below))) {
        (None, _) => 0.0,
        (Some(&upper), Some(&lower)) if values.len().is_multiple_of(2) => f64::midpoint(lower as f64, upper as f64),
        (Some(&upper), _) => upper as f64,
    }
}

/// The latest step in which a value exceeded all previous ones: bytes from before a step appear one step later.
fn last_record(old: &[i128]) -> Option<usize> {
    let mut highest = *old.first()?;
    let mut step = None;
    for (index, &bytes) in old.iter().enumerate().skip(1) {
        if bytes > highest {
            (highest, step) = (bytes, Some(index - 1));
        }
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_exact_where_growth_is_steady() {
        for steps in 2..50 {
            let values: Vec<i128> = (0..steps).map(|step| 1000 + 7 * step).collect();
            assert!((slope(&values) - 7.0).abs() < 1e-9, "{steps} steps");
        }
        assert!(slope(&[5]).abs() < 1e-9 && slope(&[]).abs() < 1e-9);
    }

    #[test]
    fn slopes_ignore_outliers() {
        let mut values: Vec<i128> = (0..40).map(|step| 7 * step).collect();
        values[11] = 100_000;
        values[30] = -100_000;
        assert!((slope(&values) - 7.0).abs() < 1.0, "two values are far off: {}", slope(&values));
        let shifted: Vec<i128> = (0..40).map(|step| 7 * step + if step < 20 { 0 } else { 100_000 }).collect();
        assert!((slope(&shifted) - 7.0).abs() < 1e-9, "a level shift: {}", slope(&shifted));
    }

    #[test]
    fn sparse_growth_has_a_slope() {
        let every_third: Vec<i128> = (0..60).map(|step| step / 3 * 30).collect();
        assert!((slope(&every_third) - 10.0).abs() < 1.0, "{}", slope(&every_third));
    }

    #[test]
    fn series_count_blocks_where_they_live() {
        let block = |steps, baseline| Survivor { requested: 100, allocated: 512, steps, baseline, kept: true };
        let series = Series::of([block(1..4, false), block(0..2, true), block(3..4, false)].into_iter(), 4);
        assert_eq!(series.live.requested, [100, 200, 100, 200]);
        assert_eq!(series.live.allocated, [512, 1024, 512, 1024]);
        assert_eq!(series.live.blocks, [1, 2, 1, 2]);
        // A block counts as old from the end of the step after its own on; a block from before the recording counts at once.
        assert_eq!(series.old.requested, [100, 100, 100, 100]);
        assert_eq!(series.kept, [0, 100, 0, 100]);
    }
}
