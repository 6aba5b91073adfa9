//! Recordings that run out of memory: the complete steps before, and how much more the step that failed needs.

use super::needs;
use crate::facts::device::Device;
use crate::model::{Action, StackId};
use crate::play::{Program, Stage};
use crate::replay::{History, Instant, Metric, Track};

/// A recording that runs out of memory: what is played of it instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unfinished {
    /// The entry at which the last complete step before the refused request ends.
    pub end: u32,
    /// By how many bytes the step that ran out of memory needs more than those before, if it goes on as it began.
    pub more: u64,
    /// What it held where it failed, the request included, as a multiple of what the last complete step held at the same
    /// request.
    pub growth: f64,
}

const NONE: &str = "it runs out of memory before a step is complete: what would have followed is not known; a recording of a step \
                    that fits, with a smaller batch, tells";
const OTHER: &str = "it runs out of memory at a request that the complete steps before do not make: how much more the step needs \
                     that failed is not known";

/// Of a program that runs out of memory the steps before that are complete. The reason where there are none.
pub(super) fn complete_steps(device: &Device<'_>, stage: &Stage) -> Result<(Program, Unfinished), &'static str> {
    let refused = stage.program.refusals.first().map_or(0, |&(entry, _)| entry);
    let steps = device.steps().map_err(|_| NONE)?;
    let before = steps.ends.partition_point(|&end| end <= refused);
    let mut ends = steps.ends[..before].iter().copied().rev();
    let end = ends.next().filter(|&end| History::entry_before(end).is_some()).ok_or(NONE)?;
    let program = stage.program.up_to(end);
    let all = needs(stage, &stage.program, &stage.settings);
    let some = needs(stage, &program, &stage.settings);
    let (Some(all), Some(some)) = (all, some) else {
        return Err("how much more the step needs that failed is not known");
    };
    if stage.capacity_recorded && stage.capacity.is_some_and(|capacity| all <= capacity) {
        return Err(
            "the device, played, would have served what was refused: something that is not recorded refused it, such \
                    as torch.cuda.set_per_process_memory_fraction",
        );
    }
    let held = Held::of(device.track, ends.next().unwrap_or(0), end, refused).ok_or(OTHER)?;
    // What is recorded of the step that failed needs so much more; all of it may need more than that.
    let more = held.more().max(all.saturating_sub(some));
    Ok((program, Unfinished { end, more, growth: held.growth() }))
}

/// What two steps hold beyond the least that is there in each: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// The complete step, at the request at which the other fails.
    complete: u64,
    /// At its most.
    most: u64,
    /// The other one when it fails, the request included.
    failed: u64,
}

impl Held {
    /// Compares the step between two instants with what follows up to a refused request. `None` where the complete step does
    /// not make that request.
    fn of(track: Track<'_>, start: Instant, end: Instant, refused: u32) -> Option<Self> {
        let same = same_request(track, start, end, refused)?;
        let begin = track.history.start.get(Metric::Allocated);
        let (mut least, mut complete, mut most) = (begin, begin, begin);
        let (mut failed_least, mut failed) = (i64::MAX, 0);
        track.walk_to(refused + 1, |instant, counters| {
            let now = counters.get(Metric::Allocated);
            if instant <= start {
                (least, most) = (now, now);
            } else if instant <= end {
                most = most.max(now);
                if instant <= same + 1 {
                    (least, complete) = (least.min(now), now);
                }
            }
            if instant >= end {
                (failed_least, failed) = (failed_least.min(now), now);
            }
        });
        let wanted = i64::try_from(*track.sizes().get(refused as usize)?).ok()?;
        let above = |bytes: i64, least: i64| u64::try_from(bytes.saturating_sub(least)).ok().filter(|&held| held > 0);
        Some(Self {
            complete: above(complete, least)?,
            most: above(most, least)?,
            failed: above(failed.saturating_add(wanted), failed_least)?,
        })
    }

    fn growth(self) -> f64 {
        self.failed as f64 / self.complete as f64
    }

    /// What the step that failed would hold more at its most, if it went on as it began.
    fn more(self) -> u64 {
        (self.most as f64 * (self.growth() - 1.0)).max(0.0) as u64
    }
}

/// The entry of a complete step whose request is the one that was refused: that of the same stack which comes after as many.
fn same_request(track: Track<'_>, start: Instant, end: Instant, refused: u32) -> Option<u32> {
    let stack: StackId = track.stack(refused);
    let is_like =
        |entry: &u32| track.actions().get(*entry as usize) == Some(&Action::Alloc) && track.stack(*entry) == stack;
    let before = (end..refused).filter(is_like).count();
    (start..end).filter(is_like).nth(before)
}
