//! Several forward and backward passes for each step of the optimizer.

use super::rewrite::{Patch, Rewrite, free, is_free};
use super::shard::Nodes;
use super::trained::Trained;
use crate::facts::device::Device;
use crate::facts::training::Phase;
use crate::replay::NEVER;
use crate::simulation::{Step, StepKind};
use crate::sorting::SortRows;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Repeats the passes before each update: later passes add their gradients to those of the first one. Returns the
/// assumption. An error says what is unknown.
pub(super) fn apply(
    rewrite: &mut Rewrite,
    device: &Device<'_>,
    trained: &Trained,
    times: u32,
) -> Result<String, String> {
    let history = device.history();
    let places = rewrite.places(history.entries());
    let steps = Arc::clone(&rewrite.program.steps);
    let nodes = Nodes::of(&steps);
    let mut patch = Patch::default();
    for pass in passes(device, trained)? {
        let range = places[pass.start as usize]..places[pass.end as usize];
        let mut freed: HashMap<u32, usize> = HashMap::new();
        for (place, step) in steps[range.clone()].iter().enumerate().filter(|(_, step)| is_free(step.kind)) {
            freed.insert(step.allocation, range.start + place);
        }
        let is_gradient = |allocation: u32| {
            rewrite.origin(allocation).is_some_and(|origin| trained.all_gradients.binary_search(&origin).is_ok())
        };
        // Gradients are added when the node that computes them is done.
        let mut added: Vec<(usize, u32)> = Vec::new();
        let mut stays: Vec<u32> = Vec::new();
        for step in steps[range.clone()].iter().filter(|step| step.kind == StepKind::Alloc) {
            if freed.contains_key(&step.allocation) {
                continue;
            }
            if is_gradient(step.allocation) {
                added.push((nodes.end_of(step.allocation).min(range.end), step.allocation));
            } else {
                stays.push(step.allocation);
            }
        }
        added.sort_rows_by_key(|&(place, allocation)| (place, std::cmp::Reverse(allocation)));
        let lasts = |allocation: u32| {
            let origin = rewrite.origin(allocation).and_then(|origin| history.allocations.get(origin as usize));
            origin.is_none_or(|made| made.freed == NEVER)
        };
        // Blocks that are allocated once and stay are already live; a variable receives its next value and frees the
        // previous one.
        let once: Vec<u32> = stays.iter().copied().filter(|&allocation| lasts(allocation)).collect();
        let mut variables: HashMap<u32, u32> = stays
            .iter()
            .filter(|allocation| !once.contains(allocation))
            .map(|&allocation| (allocation, allocation))
            .collect();
        for _ in 1..times {
            let mut copies: HashMap<u32, u32> = HashMap::new();
            let mut added = added.iter().peekable();
            for (place, step) in steps[range.clone()].iter().enumerate() {
                while let Some((_, allocation)) = added.next_if(|&&(at, _)| at <= range.start + place) {
                    if let Some(copy) = copies.remove(allocation) {
                        patch.insert(range.end, free(copy, pass.end));
                    }
                }
                if step.kind == StepKind::Alloc && !once.contains(&step.allocation) {
                    let copy = rewrite.add(rewrite.origin(step.allocation).unwrap_or(u32::MAX));
                    copies.insert(step.allocation, copy);
                    patch.insert(range.end, Step { allocation: copy, entry: pass.end, ..*step });
                    if let Some(last) = variables.get_mut(&step.allocation) {
                        patch.insert(range.end, free(std::mem::replace(last, copy), pass.end));
                    }
                } else if is_free(step.kind) {
                    let copy = match step.kind {
                        StepKind::RequestFree => copies.get(&step.allocation).copied(),
                        _ => copies.remove(&step.allocation),
                    };
                    if let Some(copy) = copy {
                        patch.insert(range.end, Step { allocation: copy, entry: pass.end, ..*step });
                    }
                }
            }
            for (_, allocation) in added {
                if let Some(copy) = copies.remove(allocation) {
                    patch.insert(range.end, free(copy, pass.end));
                }
            }
        }
        for allocation in stays.iter().filter(|allocation| !once.contains(allocation)) {
            if let Some(&last) = variables.get(allocation) {
                patch.inherit(*allocation, last);
            }
        }
    }
    rewrite.apply(patch);
    Ok(format!("{times} forward and backward passes for each optimizer step; their gradients are accumulated in place"))
}

/// Entries from the first input or forward pass after an update to the next update.
fn passes(device: &Device<'_>, trained: &Trained) -> Result<Vec<Range<u32>>, String> {
    let mut passes = Vec::new();
    let mut behind = 0;
    for update in &trained.updates {
        let spans = device.phases().spans.iter().filter(|span| span.start >= behind && span.start < update.start);
        let (mut is_ahead, mut backwards) = (false, 0);
        for span in spans.clone() {
            backwards += u32::from(is_ahead && span.phase == Phase::Backward);
            is_ahead = span.phase == Phase::Forward || (is_ahead && span.phase != Phase::Backward);
        }
        if backwards > 1 {
            return Err("several backward passes already precede each optimizer step".to_owned());
        }
        let first = spans.clone().find(|span| matches!(span.phase, Phase::Data | Phase::Forward));
        passes.extend(first.map(|span| span.start..update.start));
        behind = update.end;
    }
    if passes.is_empty() { Err("no forward pass before an optimizer step was found".to_owned()) } else { Ok(passes) }
}
