//! Replaces the optimizer: other states, and other memory during its steps.

use super::Assumed;
use super::rewrite::{Patch, Rewrite, free, is_free};
use super::trained::{MOST_STATES, Trained};
use crate::replay::History;
use crate::simulation::{Step, StepKind};
use std::collections::{HashMap, VecDeque};

/// Assumed bytes of an element of a parameter.
const ELEMENT: u64 = 4;
/// Parameters with fewer elements have states of full size in 8-bit optimizers (`min_8bit_size` of bitsandbytes).
const LEAST_8BIT: u64 = 4096;
/// Elements that share a scale there.
const BLOCK_8BIT: u64 = 256;

/// Parameters with fewer elements count as vectors, whose second moment `Adafactor` keeps whole.
const LEAST_MATRIX: u64 = 1 << 14;

names! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Optimizer {
        /// `torch.optim.AdamW`, and `Adam`, with their defaults for parameters on a device (`foreach`).
        AdamW = "adamw",
        Adam8bit = "adam8bit",
        Adafactor = "adafactor",
        /// `torch.optim.SGD` without momentum.
        Sgd = "sgd",
        /// `torch.optim.SGD` with momentum.
        Momentum = "momentum",
    }
}

impl Optimizer {
    pub const ALL: [Self; 5] = [Self::AdamW, Self::Adam8bit, Self::Adafactor, Self::Sgd, Self::Momentum];

    fn assumption(self) -> &'static str {
        match self {
            Self::AdamW => {
                "AdamW with its defaults (foreach): two states the size of each trained parameter, and one more during the step"
            }
            Self::Adam8bit => {
                "8-bit Adam as in bitsandbytes: two states of one byte per element with a scale for every 256 elements, 32-bit \
                 states for parameters with fewer than 4096 elements; parameters take 4 bytes per element"
            }
            Self::Adafactor => {
                "Adafactor as in torch.optim, without foreach: a value per row and per column of each matrix instead of two states \
                 of its size; parameters of 16384 or more elements are treated as square matrices of 4-byte elements; the updates of \
                 two parameters are live during the step"
            }
            Self::Sgd => "SGD without momentum or weight decay: no states, and no allocations during the step",
            Self::Momentum => {
                "SGD with momentum, without weight decay: one state for each trained parameter, of the same size"
            }
        }
    }

    /// The requests for the states of a parameter with this many bytes.
    fn states(self, bytes: u64) -> Vec<u64> {
        let elements = bytes / ELEMENT;
        match self {
            Self::Sgd => Vec::new(),
            Self::Adam8bit if elements >= LEAST_8BIT => {
                let scales = elements.div_ceil(BLOCK_8BIT) * ELEMENT;
                vec![elements, scales, elements, scales]
            }
            Self::Adafactor if elements >= LEAST_MATRIX => vec![square_root_up(elements) * ELEMENT; 2],
            Self::Momentum | Self::Adafactor => vec![bytes],
            Self::Adam8bit | Self::AdamW => vec![bytes; 2],
        }
    }

    pub(super) fn per_parameter(self) -> u32 {
        match self {
            Self::Sgd => 0,
            Self::Momentum => 1,
            Self::AdamW | Self::Adam8bit | Self::Adafactor => 2,
        }
    }

    /// Why its figures may be far off.
    fn doubt(self) -> Option<String> {
        (self == Self::Adafactor).then(|| {
            "the shapes of parameters are not recorded, so Adafactor's states are computed as if the parameters were square matrices"
                .to_owned()
        })
    }
}

/// The smallest number whose square is at least this number.
fn square_root_up(number: u64) -> u64 {
    let root = number.isqrt();
    if root * root == number { root } else { root + 1 }
}

/// Replaces the optimizer of a program; returns the assumption. An error says why this is impossible.
pub(super) fn apply(
    rewrite: &mut Rewrite,
    trained: &Trained,
    history: &History,
    optimizer: Optimizer,
) -> Result<Assumed, String> {
    if trained.per_parameter > MOST_STATES {
        return Err(trained.too_many());
    }
    if matches!(optimizer, Optimizer::Adam8bit | Optimizer::Adafactor)
        && trained.gradients.keys().any(|bytes| bytes % ELEMENT != 0)
    {
        return Err("some parameters do not have 4-byte elements".to_owned());
    }
    if optimizer == Optimizer::AdamW && trained.per_parameter == optimizer.per_parameter() {
        return Ok("the two states recorded for each parameter are those of AdamW, and stay unchanged"
            .to_owned()
            .into());
    }
    let is_state = |allocation: u32| trained.states.binary_search(&allocation).is_ok();
    if rewrite.starts_with(is_state) {
        rewrite.request_start();
    }
    let mut patch = Patch::default();
    remove_scratch(rewrite, trained, &mut patch);
    let after = replace_states(rewrite, trained, &mut patch, optimizer);
    if trained.per_parameter == 0 {
        add_states(rewrite, trained, history, &mut patch, optimizer);
    }
    if matches!(optimizer, Optimizer::AdamW | Optimizer::Adafactor) {
        let at_once = if optimizer == Optimizer::AdamW { usize::MAX } else { 2 };
        add_scratch(rewrite, trained, history, &mut patch, after, at_once);
    }
    rewrite.apply(patch);
    Ok(Assumed { assumption: optimizer.assumption().to_owned(), doubt: optimizer.doubt() })
}

/// Removes the optimizer from the device: neither its states nor its temporaries remain.
pub(super) fn offload(rewrite: &mut Rewrite, trained: &Trained) -> String {
    if rewrite.starts_with(|allocation| trained.states.binary_search(&allocation).is_ok()) {
        rewrite.request_start();
    }
    let mut patch = Patch::default();
    remove_scratch(rewrite, trained, &mut patch);
    trained.states.iter().for_each(|&state| patch.remove(state));
    rewrite.apply(patch);
    "the optimizer runs on the CPU and keeps all its state there, so none of it is on the device".to_owned()
}

fn remove_scratch(rewrite: &Rewrite, trained: &Trained, patch: &mut Patch) {
    let is_scratch = |step: &&Step| {
        let is_it = |update: &Vec<u32>| {
            rewrite.origin(step.allocation).is_some_and(|origin| update.binary_search(&origin).is_ok())
        };
        step.kind == StepKind::Alloc && trained.scratch.iter().any(is_it)
    };
    rewrite.program.steps.iter().filter(is_scratch).for_each(|step| patch.remove(step.allocation));
}

/// Replaces the recorded states with others. Returns the place after the last of them.
fn replace_states(rewrite: &mut Rewrite, trained: &Trained, patch: &mut Patch, optimizer: Optimizer) -> usize {
    let mut made: HashMap<u32, usize> = HashMap::new();
    let mut freed: HashMap<u32, usize> = HashMap::new();
    for (place, step) in rewrite.program.steps.iter().enumerate() {
        if step.kind == StepKind::Alloc {
            made.insert(step.allocation, place);
        } else if is_free(step.kind) {
            freed.insert(step.allocation, place);
        }
    }
    let groups = trained.groups(&rewrite.program);
    let grouped: std::collections::HashSet<u32> = groups.iter().flatten().map(|step| step.allocation).collect();
    // Step counters and similar states.
    trained.states.iter().filter(|state| !grouped.contains(state)).for_each(|&state| patch.remove(state));
    let mut last = 0;
    for group in &groups {
        let Some(first) = group.first() else { continue };
        let wanted = optimizer.states(first.bytes);
        for (state, &bytes) in group.iter().zip(&wanted) {
            patch.resize(state.allocation, bytes);
        }
        group.iter().skip(wanted.len()).for_each(|state| patch.remove(state.allocation));
        let place = group.last().and_then(|state| made.get(&state.allocation)).map_or(0, |place| place + 1);
        last = last.max(place);
        for &bytes in wanted.iter().skip(group.len()) {
            let allocation = rewrite.add(first.allocation);
            patch.insert(place, Step { allocation, bytes, ..*first });
            if let Some(&place) = freed.get(&first.allocation) {
                patch.insert(place, free(allocation, first.entry));
            }
        }
    }
    last
}

/// Allocates states in the first optimizer step if none are recorded.
fn add_states(rewrite: &mut Rewrite, trained: &Trained, history: &History, patch: &mut Patch, optimizer: Optimizer) {
    let Some(update) = trained.updates.first() else { return };
    let place = rewrite.places(history.entries())[update.start as usize];
    for gradient in gradients_at(rewrite, trained, history, update.start) {
        for bytes in optimizer.states(gradient.bytes) {
            let allocation = rewrite.add_nameless();
            patch.insert(place, Step { allocation, bytes, entry: update.start, ..gradient });
        }
    }
}

/// One more block of each parameter's size while the optimizer steps: all of them at once (`_multi_tensor_adam`), or at most
/// this many, if a variable holds the last one while the next is allocated. In the first step they come after the states.
fn add_scratch(
    rewrite: &mut Rewrite,
    trained: &Trained,
    history: &History,
    patch: &mut Patch,
    behind: usize,
    at_once: usize,
) {
    let places = rewrite.places(history.entries());
    for update in &trained.updates {
        let (start, end) = (places[update.start as usize], places[update.end as usize]);
        let place = if (start..end).contains(&behind) { behind } else { start };
        let mut made = VecDeque::new();
        for gradient in gradients_at(rewrite, trained, history, update.start) {
            let allocation = rewrite.add_nameless();
            patch.insert(place, Step { allocation, entry: update.start, ..gradient });
            made.push_back(allocation);
            if made.len() == at_once
                && let Some(oldest) = made.pop_front()
            {
                patch.insert(place, free(oldest, update.start));
            }
        }
        made.into_iter().rev().for_each(|allocation| patch.insert(place, free(allocation, update.start)));
    }
}

/// The requests of the gradients that are live when an update starts, in the order of parameters: backward allocates them in
/// the opposite order.
fn gradients_at(rewrite: &Rewrite, trained: &Trained, history: &History, instant: u32) -> Vec<Step> {
    let is_there = |allocation: u32| {
        trained.all_gradients.binary_search(&allocation).is_ok()
            && history.allocations.get(allocation as usize).is_some_and(|gradient| gradient.allocated_at(instant))
    };
    let steps = rewrite.program.steps.iter().filter(|step| step.kind == StepKind::Alloc && is_there(step.allocation));
    let mut gradients: Vec<Step> = steps.copied().collect();
    gradients.reverse();
    gradients
}
