//! Forward passes alone, in `eval` mode and without gradients.

use super::draft::{Changes, Draft};
use crate::analysis::checkpoint::Release;
use crate::analysis::device::Device;
use crate::analysis::simulate::StepKind;
use crate::analysis::training::Phase;
use std::collections::HashMap;

/// Leaves out what backward and the optimizer ask for, and frees what forward keeps for them as soon as the program lets go
/// of it. What is assumed.
pub(super) fn apply(draft: &mut Draft, device: &Device<'_>, releases: &[Release]) -> String {
    let (history, phases) = (device.history(), device.phases());
    let places = draft.places(history.entries());
    let released: HashMap<u32, u32> = releases.iter().map(|release| (release.allocation, release.released)).collect();
    let mut changes = Changes::default();
    for step in draft.program.steps.iter().filter(|step| step.kind == StepKind::Alloc) {
        let Some(made) = draft.origin(step.allocation).and_then(|origin| history.allocations.get(origin as usize))
        else {
            continue;
        };
        if matches!(phases.at(made.born), Phase::Backward | Phase::Optimizer) {
            changes.remove(step.allocation);
        } else if let Some(&at) = released.get(&step.allocation) {
            changes.free_at(places[at as usize], step.allocation, at);
        }
    }
    draft.change(changes);
    "the forward passes as recorded, with their losses, under eval and no_grad, without backward and optimizer; dropout is \
     left in"
        .to_owned()
}
