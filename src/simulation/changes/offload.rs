//! Keeps tensors that forward saves for backward on the CPU, as `torch.autograd.graph.save_on_cpu` does.

use super::Assumed;
use super::rewrite::{Patch, Rewrite, free};
use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::replay::NEVER;
use crate::simulation::changes::Release;
use crate::simulation::{Step, StepKind};
use std::collections::HashMap;
use std::sync::Arc;

/// Frees each tensor kept for backward as soon as the program releases it, and allocates it again for the node that
/// needs it. Returns the assumption.
pub(super) fn activations(rewrite: &mut Rewrite, device: &Device<'_>, releases: &[Release]) -> Assumed {
    let history = device.history();
    let places = rewrite.places(history.entries());
    let mut patch = Patch::default();
    let releases: HashMap<u32, &Release> = releases.iter().map(|release| (release.allocation, release)).collect();
    let steps = Arc::clone(&rewrite.program.steps);
    for step in steps.iter().filter(|step| step.kind == StepKind::Alloc) {
        if let Some(&&Release { released, needed, .. }) = releases.get(&step.allocation) {
            if released < needed {
                let copy = rewrite.add(step.allocation);
                patch.insert(places[released as usize], free(step.allocation, released));
                patch.insert(places[needed as usize], Step { allocation: copy, entry: needed, ..*step });
                patch.inherit(step.allocation, copy);
            }
            continue;
        }
        // The node that computes the gradient of a weight needs the weight, which is one of its saved tensors.
        let Some(made) = history.allocations.get(step.allocation as usize) else { continue };
        let is_gradient = device.categories().get(step.allocation as usize).category == Category::Gradient;
        if is_gradient && made.freed != NEVER && device.phases().at(made.born) == Phase::Backward {
            let copy = rewrite.add_nameless();
            let place = places[made.born.saturating_sub(1) as usize];
            patch.insert(place, Step { allocation: copy, ..*step });
            patch.insert(places[made.born as usize], free(copy, step.entry));
        }
    }
    rewrite.apply(patch);
    let assumption = "every tensor saved for backward, weights included, moves to the CPU after forward uses it and returns for \
                      the node that needs it, as under torch.autograd.graph.save_on_cpu";
    let doubt = "saved tensors may be views of one block, which the recording does not show, and each view comes back as a separate copy";
    Assumed { assumption: assumption.to_owned(), doubt: Some(doubt.to_owned()) }
}
