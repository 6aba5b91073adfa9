//! Keeps one rank's shard of parameters, gradients and states: stage 3 of `ZeRO`, as PyTorch's `fully_shard` does.
//!
//! Units are the calls of the function whose backward computes most of the gradients, such as the layers of a model: the
//! parameters of a unit are gathered for it, one unit ahead, and freed after it. All other parameters belong to the root,
//! which keeps gathered parameters from the start of a forward pass until its backward ends.

use super::Assumed;
use super::chosen::Choice;
use super::rewrite::{Patch, Rewrite, free};
use super::trained::Trained;
use crate::facts::device::Device;
use crate::facts::training::{Category, FunctionId};
use crate::model::bytes::Bytes;
use crate::simulation::{Step, StepKind};
use std::cmp::Reverse;
use std::ops::Range;

/// A call in one pass.
struct Unit {
    forward: Range<u32>,
    backward: Range<u32>,
    /// Its gradients, as indexes into [`crate::replay::History::allocations`].
    gradients: Vec<u32>,
    /// Bytes of them, and so of its parameters.
    bytes: u64,
}

struct Pass {
    entries: Range<u32>,
    units: Vec<Unit>,
    gradients: Vec<u32>,
    bytes: u64,
}

/// Keeps one rank's shard. An error says what is unknown.
pub(super) fn apply(
    rewrite: &mut Rewrite,
    device: &Device<'_>,
    trained: &Trained,
    choice: &Choice,
    ranks: u32,
) -> Result<Assumed, String> {
    let share = |bytes: u64| bytes.div_ceil(u64::from(ranks));
    let (passes, label) = passes(device, trained, choice)?;
    let categories = device.categories();
    let is_parameter = |allocation: u32| categories.get(allocation as usize).category == Category::Parameter;
    let is_divided = |allocation: u32| is_parameter(allocation) || trained.states.binary_search(&allocation).is_ok();
    if rewrite.starts_with(is_divided) {
        rewrite.request_start();
    }
    let mut patch = Patch::default();
    let mut like: Option<Step> = None;
    for step in rewrite.program.steps.iter().filter(|step| step.kind == StepKind::Alloc) {
        let is_scratch = trained.scratch.iter().any(|update| update.binary_search(&step.allocation).is_ok());
        if is_divided(step.allocation) || is_scratch {
            patch.resize(step.allocation, share(step.bytes));
        }
        if trained.all_gradients.binary_search(&step.allocation).is_ok() {
            like.get_or_insert(*step);
        }
    }
    let like = like.ok_or("no gradients were found")?;
    let places = rewrite.places(device.history().entries());
    let place = |instant: u32| places[instant as usize];
    let mut communication = Communication { rewrite, patch: &mut patch, like };
    for pass in &passes {
        let root = communication.gather(place(pass.entries.start), pass.bytes);
        let units = &pass.units;
        for (index, unit) in units.iter().enumerate() {
            // The previous unit gathers for this one, in forward and, from the other end, in backward.
            let ahead = index.checked_sub(1).map_or(unit, |before| &units[before]);
            let gathered = communication.gather(place(ahead.forward.start), unit.bytes);
            communication.give_back(place(unit.forward.end), gathered);
            let ahead = units.get(index + 1).unwrap_or(unit);
            let gathered = communication.gather(place(ahead.backward.start), unit.bytes);
            communication.reduce(place(unit.backward.end), &unit.gradients, unit.bytes, share(unit.bytes));
            communication.give_back(place(unit.backward.end), gathered);
        }
        communication.reduce(place(pass.entries.end), &pass.gradients, pass.bytes, share(pass.bytes));
        communication.give_back(place(pass.entries.end), root);
    }
    rewrite.apply(patch);
    let largest = passes.iter().flat_map(|pass| &pass.units).map(|unit| unit.bytes).max().unwrap_or(0);
    Ok(Assumed {
        assumption: format!(
            "one of {ranks} ranks, with parameters, gradients and states divided evenly, as under fully_shard; the parameters of each call to {label}, at most {}, are gathered one call ahead and held while it runs; the other {} of parameters stay gathered until backward ends",
            Bytes(largest),
            Bytes(passes.iter().map(|pass| pass.bytes).max().unwrap_or(0)),
        ),
        doubt: Some("memviz assumes when parameters are gathered and gradients are reduced".to_owned()),
    })
}

struct Communication<'a> {
    rewrite: &'a mut Rewrite,
    patch: &'a mut Patch,
    /// A template for requests.
    like: Step,
}

impl Communication<'_> {
    /// Requests the whole of some parameters; returns the number of the allocation.
    fn gather(&mut self, place: usize, bytes: u64) -> u32 {
        let allocation = self.rewrite.add_nameless();
        self.patch.insert(place, Step { allocation, bytes, ..self.like });
        allocation
    }

    fn give_back(&mut self, place: usize, allocation: u32) {
        self.patch.insert(place, free(allocation, self.like.entry));
    }

    /// Copies gradients into one block, and leaves a shard of it in their place.
    fn reduce(&mut self, place: usize, gradients: &[u32], bytes: u64, share: u64) {
        let Some((&first, others)) = gradients.split_first() else { return };
        let whole = self.gather(place, bytes);
        for &gradient in others {
            self.patch.free_at(place, gradient, self.like.entry);
        }
        self.give_back(place, first);
        let reduced = self.gather(place, share);
        self.patch.inherit(first, reduced);
        self.give_back(place, whole);
    }
}

/// The passes with the units that have most of the gradients, and the calls of each unit.
fn passes(device: &Device<'_>, trained: &Trained, choice: &Choice) -> Result<(Vec<Pass>, String), String> {
    let bytes = |passes: &[Pass]| -> u64 { passes.iter().flat_map(|pass| &pass.units).map(|unit| unit.bytes).sum() };
    let calls = |passes: &[Pass]| passes.iter().map(|pass| pass.units.len()).sum::<usize>();
    let all = choice.repeated_functions().map(|(id, label)| (divided(device, trained, choice, id), label));
    let best = all.max_by_key(|(passes, _)| (bytes(passes), Reverse(calls(passes))));
    let best = best.filter(|(passes, _)| bytes(passes) > 0);
    best.map(|(passes, label)| (passes, label.to_owned()))
        .ok_or_else(|| "no function that a forward pass calls repeatedly, such as a layer, has a backward pass that produces gradients".to_owned())
}

/// The passes with the calls of a function as units.
fn divided(device: &Device<'_>, trained: &Trained, choice: &Choice, function: FunctionId) -> Vec<Pass> {
    let history = device.history();
    let recomputing = choice.recomputing(device);
    let born = |&index: &u32| history.allocations[index as usize].born;
    let sum = |gradients: &[u32]| gradients.iter().map(|&index| history.allocations[index as usize].requested).sum();
    let made_in = |range: &Range<u32>| {
        let first = trained.all_gradients.partition_point(|index| born(index) <= range.start);
        let last = trained.all_gradients.partition_point(|index| born(index) <= range.end);
        trained.all_gradients[first..last.max(first)].to_vec()
    };
    let mut passes = Vec::new();
    for (entries, calls) in choice.passes.entries.iter().zip(choice.passes.split(choice.open_calls(function))) {
        let next = trained.updates.iter().find(|update| update.start >= entries.end);
        let end = next.map_or(history.entries(), |update| update.start);
        let mut units: Vec<Unit> = Vec::new();
        for call in calls {
            let Some(recompute) = choice.recompute_of(&recomputing, call) else { continue };
            let freed = recompute.kept.iter().map(|&index| history.allocations[index as usize].freed);
            let until = freed.max().unwrap_or(recompute.resume).min(end);
            let backward = recompute.resume.min(until)..until;
            let gradients = made_in(&backward);
            units.push(Unit { forward: call.start..call.end, bytes: sum(&gradients), backward, gradients });
        }
        let mut gradients = made_in(&(entries.end..end));
        gradients.retain(|gradient| units.iter().all(|unit| unit.gradients.binary_search(gradient).is_err()));
        passes.push(Pass { entries: entries.start..end, bytes: sum(&gradients), units, gradients });
    }
    passes
}
