//! Calls that were chosen to be checkpointed, rather than found to be worth it.

use super::passes::Passes;
use super::recompute::{Recompute, Recomputing};
use crate::analysis::device::Device;
use crate::analysis::training::{Call, Calls, FunctionId};
use crate::replay::Metric;
use std::collections::BTreeSet;

/// The functions of a device whose calls can be chosen.
#[derive(Debug)]
pub(in crate::analysis) struct Choice {
    calls: Calls,
    passes: Passes,
    /// Functions that forward passes call, not checkpointed yet, with their labels.
    functions: Vec<(FunctionId, String)>,
}

/// Calls that are checkpointed together.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct Chosen {
    /// The calls, in the order of their starts; none lies in another one.
    pub calls: Vec<Recompute>,
    /// Workspaces that the engine's thread makes for itself: those of forward that they are like, as indexes into
    /// [`crate::replay::History::allocations`].
    pub workspaces: Vec<u32>,
}

impl Choice {
    /// Finds the functions of a device. An error says why none can be chosen.
    pub fn of(device: &Device<'_>) -> Result<Self, &'static str> {
        let (track, history, phases) = (device.track, device.history(), device.phases());
        let calls = Calls::of(track, phases, device.sites(), device.roles());
        let peak = history.maxima[Metric::Allocated as usize];
        let passes = Passes::of(phases, &calls, history, peak.instant);
        if passes.entries.is_empty() {
            return Err("no forward pass is known that a backward pass follows");
        }
        if passes.is_open {
            return Err(
                "no backward pass follows the forward passes: when what they keep would be needed is not known",
            );
        }
        let is_open = |id: FunctionId| calls.of_function(id).any(|call| !call.checkpointed);
        let functions = calls.functions().filter(|&(id, _)| is_open(id));
        let functions = functions.map(|(id, function)| (id, device.sites().label(function.frame))).collect();
        Ok(Self { calls, passes, functions })
    }

    /// The functions with a label, or if there are none those whose labels contain it.
    pub fn find(&self, site: &str) -> Vec<&(FunctionId, String)> {
        let equal: Vec<_> = self.functions.iter().filter(|(_, label)| label == site).collect();
        if !equal.is_empty() {
            return equal;
        }
        let has_end =
            |label: &str| label.strip_suffix(site).is_some_and(|before| before.is_empty() || before.ends_with('/'));
        let ending: Vec<_> = self.functions.iter().filter(|(_, label)| has_end(label)).collect();
        if !ending.is_empty() {
            return ending;
        }
        self.functions.iter().filter(|(_, label)| label.contains(site)).collect()
    }

    /// The labels of the functions that a forward pass calls more than once.
    pub fn repeated(&self) -> impl Iterator<Item = &str> {
        let is_repeated = |id: FunctionId| self.passes.split(self.open_calls(id)).iter().any(|calls| calls.len() > 1);
        self.functions.iter().filter(move |&&(id, _)| is_repeated(id)).map(|(_, label)| label.as_str())
    }

    /// What becomes of the first call of each function and every so many-th after it in a forward pass. A call within one
    /// that is checkpointed runs again with it, and is not checkpointed by itself.
    pub fn recompute(&self, device: &Device<'_>, functions: &[(FunctionId, usize)]) -> Chosen {
        let mut wanted: BTreeSet<(u32, u32, FunctionId)> = BTreeSet::new();
        for &(function, every) in functions {
            for calls in self.passes.split(self.open_calls(function)) {
                // An outer call comes before those inside.
                wanted.extend(
                    calls.iter().step_by(every.max(1)).map(|call| (call.start, u32::MAX - call.end, call.function)),
                );
            }
        }
        let mut over = 0;
        let is_chosen = |call: &&Call| wanted.contains(&(call.start, u32::MAX - call.end, call.function));
        let mut chosen: Vec<&Call> = self.calls.calls.iter().filter(is_chosen).collect();
        chosen.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end)));
        chosen.retain(|call| {
            let is_outermost = call.start >= over;
            over = if is_outermost { call.end } else { over };
            is_outermost
        });
        let recomputing = Recomputing::new(device, &self.calls, &self.passes);
        let first_step = self.passes.entries.get(1).map_or(device.history().entries(), |pass| pass.start);
        Chosen {
            workspaces: recomputing.workspaces(chosen.iter().copied(), first_step),
            calls: chosen.into_iter().filter_map(|call| recomputing.of(call)).collect(),
        }
    }

    /// Calls of a function that are not checkpointed yet.
    fn open_calls(&self, function: FunctionId) -> impl Iterator<Item = &Call> {
        self.calls.of_function(function).filter(|call| !call.checkpointed)
    }
}
