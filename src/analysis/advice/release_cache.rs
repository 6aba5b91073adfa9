//! Segments that an earlier phase left behind: free, reserved, and of no use for what comes next.

use super::{Finding, Remedy, Story};
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::model::bytes::Bytes;
use crate::play::changes::Lives;
use crate::replay::{Instant, Metric};

/// One part in so many of the most that is reserved is left behind at least.
const PART_LEFT: i64 = 5;
/// Models that are called in turn are no phases: a phase has so many passes at least.
const LEAST_PASSES: usize = 2;

/// Where most is left behind by what the program did before.
pub(super) fn find(device: &Device<'_>) -> Vec<Finding> {
    let highest = device.history().maxima[Metric::Reserved as usize];
    let boundary = boundaries(device).into_iter().take_while(|&at| at < highest.instant);
    let mut largest: Option<(Instant, i64)> = None;
    let mut boundary = boundary.peekable();
    device.track.walk_to(highest.instant, |instant, now| {
        if boundary.next_if(|&at| at <= instant).is_some() {
            let left = now.reserved - now.active;
            if largest.is_none_or(|(_, known)| left > known) {
                largest = Some((instant, left));
            }
        }
    });
    let Some((instant, left)) = largest.filter(|&(_, left)| left > 0 && left >= highest.bytes / PART_LEFT) else {
        return Vec::new();
    };
    let next = (instant..device.history().entries()).map(|entry| device.track.stack(entry));
    let line =
        next.take(64).find_map(|stack| device.sites().site_frame(stack).filter(|&frame| device.sites().is_own(frame)));
    vec![Finding {
        story: Story::ReleaseCache,
        line,
        cure: "call torch.cuda.empty_cache() once before this line".to_owned(),
        evidence: format!(
            "{} of segments are free when the program moves on to its next phase",
            Bytes(left.unsigned_abs())
        ),
        cost: Some("the next passes reserve memory again".to_owned()),
        code: vec!["torch.cuda.empty_cache()  # once, not in the loop".to_owned()],
        remedy: Remedy::Lives(Lives { emptied: vec![instant], ..Lives::default() }),
    }]
}

/// Instants at which the program goes on with something else: the first forward pass behind what loads and builds, several that no
/// backward pass follows behind several that it does, and the other way round.
fn boundaries(device: &Device<'_>) -> Vec<Instant> {
    let mut passes: Vec<(Instant, bool)> = Vec::new();
    let mut is_open = false;
    for span in &device.phases().spans {
        match span.phase {
            Phase::Forward if !is_open => {
                passes.push((span.start, false));
                is_open = true;
            }
            Phase::Backward => {
                if let Some(last) = passes.last_mut() {
                    last.1 = true;
                }
                is_open = false;
            }
            Phase::Data | Phase::Other => is_open = false,
            // `zero_grad` comes anywhere in a step.
            Phase::Forward | Phase::Optimizer => {}
        }
    }
    let runs: Vec<&[(Instant, bool)]> = passes.chunk_by(|a, b| a.1 == b.1).collect();
    let changes = runs.windows(2).filter(|pair| pair.iter().all(|run| run.len() >= LEAST_PASSES));
    // What a late recording starts with may be the cache of steps like those that follow.
    let is_late = device.history().completeness.has_baseline;
    let first = passes.first().map(|&(start, _)| start).filter(|_| !is_late);
    first.into_iter().chain(changes.filter_map(|pair| pair[1].first()).map(|&(start, _)| start)).collect()
}
