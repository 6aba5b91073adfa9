//! Whether a series of live bytes, one value a step, leaks, grows, or has filled.
//!
//! In: for one group of blocks, what was live at the end of each step. Out: a verdict and a rate. Numbers only; whose
//! they are and how they are shown is decided elsewhere.

use serde::Serialize;

/// Steps after the warm-up without which no verdict is given: three values are the fewest that can show a trend twice.
pub const MIN_JUDGED: usize = 3;

/// Steps after the warm-up without which [`Verdict::Growth`] is not given to values that differ from step to step for
/// any other reason as well, such as batches of different length: eight values that only rise are no accident.
const MIN_RISING: usize = 8;

/// What a group of blocks does over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Step after step leaves blocks behind that nothing frees until the end of the recording.
    Leak,
    /// More is held step after step, but the blocks do not stay: a buffer replaced by a larger one, such as a KV cache,
    /// or blocks that pile up and are freed later.
    Growth,
    /// Filled in some step and has held what it got since: parameters, optimizer state, workspaces.
    Cache,
}

impl Verdict {
    /// The name as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::Growth => "growth",
            Self::Cache => "cache",
        }
    }
}

/// One group of blocks over the steps, a value per step; wide enough for sums of any sizes a file can hold. A step reaches from the end of the one before it to its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    /// Bytes live at the end of the step.
    pub live: Vec<i128>,
    /// Blocks live at the end of the step.
    pub live_blocks: Vec<i128>,
    /// Of [`Series::live`], bytes that were there when the step began: what a step needs for itself is not in it.
    pub old: Vec<i128>,
    /// Blocks behind [`Series::old`].
    pub old_blocks: Vec<i128>,
    /// Bytes allocated in the step and still live at the end of the recording.
    pub kept: Vec<i128>,
}

/// What a series shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judgement {
    pub verdict: Verdict,
    /// Bytes added a step; 0 for [`Verdict::Cache`].
    pub bytes_per_step: f64,
    /// Blocks added a step.
    pub blocks_per_step: f64,
    /// The step, counted from 0, in which the old bytes were last higher than ever before.
    pub filled_in: Option<usize>,
}

impl Series {
    /// A series of as many steps, all empty.
    pub(super) fn new(steps: usize) -> Self {
        let zeros = || vec![0; steps];
        Self { live: zeros(), live_blocks: zeros(), old: zeros(), old_blocks: zeros(), kept: zeros() }
    }

    /// Judges the series without its first `warm_up` steps; `None` when it does not grow, or there are too few steps.
    pub(super) fn judge(&self, warm_up: usize) -> Option<Judgement> {
        let old = self.old.get(warm_up..).filter(|old| old.len() >= MIN_JUDGED)?;
        let filled_in = last_record(&self.old);
        let judgement = |verdict, bytes_per_step, blocks_per_step| Judgement {
            verdict,
            bytes_per_step,
            blocks_per_step,
            filled_in,
        };
        if slope(old) > 0.0 && slope(tail(old)) > 0.0 {
            let blocks = slope(&self.old_blocks[warm_up..]);
            if self.stays(warm_up) {
                return Some(judgement(Verdict::Leak, slope(old), blocks));
            }
            if mostly_rises(old) {
                return Some(judgement(Verdict::Growth, slope(old), blocks));
            }
        }
        let live = &self.live[warm_up..];
        if live.len() >= MIN_RISING && mostly_rises(live) && often_rises(live) && often_rises(tail(live)) {
            let blocks = median(differences(&self.live_blocks[warm_up..], 1));
            return Some(judgement(Verdict::Growth, median(differences(live, 1)), blocks));
        }
        // What was there before the first step is no growth.
        let filled = self.old.last() > self.old.first();
        filled.then(|| judgement(Verdict::Cache, 0.0, 0.0))
    }

    /// Whether what piled up after the warm-up is still there at the end of the recording: at least three quarters of
    /// its bytes, and some from early and from late steps alike. A queue of fixed length keeps late ones only.
    fn stays(&self, warm_up: usize) -> bool {
        let (Some(first), Some(last)) = (self.old.get(warm_up), self.old.last()) else { return false };
        // The last step may still hold what the next one would free, and `old` does not count it either.
        let kept = &self.kept[warm_up..self.kept.len() - 1];
        let windows = kept.len().min(4);
        let everywhere = (0..windows).all(|window| {
            let part = &kept[kept.len() * window / windows..kept.len() * (window + 1) / windows];
            part.iter().any(|&bytes| bytes > 0)
        });
        let kept = kept.iter().sum::<i128>();
        everywhere && kept * 4 >= (last - first) * 3
    }
}

/// Growth per step, not moved by a quarter of the values being far off: the median of the slopes between each value and
/// the one half the series later (Theil's abbreviated method). Exact where every step adds the same.
fn slope(values: &[i128]) -> f64 {
    let lag = (values.len() / 2).max(1);
    median(differences(values, lag)) / lag as f64
}

/// The last third, in which a cache has stopped growing.
fn tail(values: &[i128]) -> &[i128] {
    let length = values.len().div_ceil(3).max(2).min(values.len());
    &values[values.len() - length..]
}

/// Whether at most one value in five is lower than the one before it. One in two is, where values have no trend.
fn mostly_rises(values: &[i128]) -> bool {
    let falls = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
    falls * 5 <= values.len().saturating_sub(1)
}

/// Whether at least every second value is higher than the one before it.
fn often_rises(values: &[i128]) -> bool {
    let rises = values.windows(2).filter(|pair| pair[1] > pair[0]).count();
    values.len() > 1 && rises * 2 >= values.len() - 1
}

fn differences(values: &[i128], lag: usize) -> Vec<i128> {
    values.iter().zip(values.iter().skip(lag)).map(|(before, after)| after - before).collect()
}

/// The middle value, the mean of the two middle ones of an even number; 0 of none.
fn median(mut values: Vec<i128>) -> f64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    match (values.get(middle), middle.checked_sub(1).and_then(|below| values.get(below))) {
        (None, _) => 0.0,
        (Some(&upper), Some(&lower)) if values.len().is_multiple_of(2) => f64::midpoint(lower as f64, upper as f64),
        (Some(&upper), _) => upper as f64,
    }
}

/// The step in which a value that is higher than all before it came about last: old bytes are one step behind.
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
