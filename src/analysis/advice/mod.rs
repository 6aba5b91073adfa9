//! Finds changes to a program that reduce its memory: one list for all commands.
//!
//! Each story has a finder, which looks for a known mistake in the [`facts`](crate::facts) of a device and returns its
//! line and its fix. A simulation of the fix shows what it saves; a fix that saves too little is dropped. A fix
//! that cannot be simulated has no figures, and says why.

mod abandoned;
mod activations_in_place;
mod attention_matrix;
mod cast_copies;
mod collected;
mod dataloader_prefetch;
mod detached;
mod duplicate_model;
mod expressions;
mod fix;
mod flat_gradients;
mod foreach_temporaries;
mod fp32_logits;
mod frozen;
mod frozen_model;
mod function_graphs;
mod gradients_anew;
mod grads_kept;
mod grads_zeroed;
mod graph_pools;
mod graphs;
mod growing;
mod held;
mod inference_cache;
mod kept_outputs;
mod kept_over_steps;
mod kv_cache_growth;
mod last_logits;
mod low_rank;
mod master_copies;
mod master_gradients;
mod model_calls;
mod model_functions;
mod moved_gradients;
mod one_hot;
mod pairs;
mod release_cache;
mod replaced;
mod rescue;
mod retained;
mod rules;
mod second_optimizer;
mod several_graphs;
mod side_stream;
mod stacks;
mod temporaries;
mod trial;
mod variables;
mod varying_lengths;
mod what_if;
mod whole_copies;
mod without_backward;
mod zero_grad_late;

pub use fix::Rewrite;
pub use rescue::{Effect, Measure, Rescue, Way};
pub use rules::RuleKind;
pub use trial::{Lowered, Saving};
pub use what_if::{Attempt, FixSearch, OverTime, WhatIf};

use crate::facts::device::Device;
use crate::parallel;
use crate::simulation::Trust;
use crate::simulation::changes::Lifetimes;
use crate::sorting::SortRows;
use fix::{Edit, Finding, Fix};
use foldhash::fast::RandomState;
use rules::Evidence;
use std::cmp::Reverse;
use std::collections::HashSet;
use trial::Trial;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLine {
    /// The label in all answers: `train.py:58 main`.
    pub label: String,
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    pub function: String,
    /// The text of the line. A recording does not contain it; a caller who has the source may add it.
    pub text: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub kind: RuleKind,
    /// The line to change: the one with the mistake, not the one that is affected. `None` if no stack contains it.
    pub line: Option<CodeLine>,
    /// What to change, as a request: `call optimizer.zero_grad() before the forward pass`.
    pub change: String,
    pub evidence: String,
    /// The cost of the change, in time or otherwise; `None` if it has none.
    pub cost: Option<String>,
    /// Bytes that the changed program copies to the CPU, in all; `None` where it copies none.
    pub copies: Option<u64>,
    /// The lines of Python that make the change; empty where the program decides them.
    pub code: Vec<String>,
    /// How to edit the line; `None` if only a person can do it.
    pub rewrite: Option<Rewrite>,
    pub saving: Saving,
    /// Other changes that fix the same mistake, with what each saves in place of this one.
    pub alternatives: Vec<Alternative>,
}

impl Advice {
    /// Whether `memviz fix` may write this change, or an alternative to it, as a diff.
    pub fn is_mechanical(&self) -> bool {
        self.rewrite.is_some() || self.alternatives.iter().any(|other| other.rewrite.is_some())
    }
}

/// Another change that fixes a mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    pub change: String,
    pub code: Vec<String>,
    /// How to edit the line; `None` if only a person can do it.
    pub rewrite: Option<Rewrite>,
    pub saving: Saving,
    lives: Lifetimes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    /// Their places in the list, counted from 0.
    pub places: Vec<usize>,
    pub saving: Saving,
}

pub(crate) struct First {
    /// Their places in the list, counted from 0.
    pub places: Vec<usize>,
    /// What they change; none of them is uncertain, unless it is a bound.
    pub lives: Lifetimes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Simulate {
    /// All fixes, each with the smallest device on which the program runs.
    Needs,
    All,
    /// Only fixes of recordings that are quick to simulate; for others the list names the command that simulates them.
    #[default]
    Quick,
}

/// Maximum size, in bytes, of blocks with a single number, such as step counters, and of the smallest weights.
const SCALAR: u64 = 512;

/// Entries of a device that are quick to simulate.
const QUICK: u32 = 100_000;

/// Steps played for the smallest device of one fix.
const STEPS_OF_NEEDS: u64 = 4_000_000;

impl Simulate {
    /// Why the fixes of a device are not simulated; `None` if they are.
    fn obstacle(self, device: &Device<'_>) -> Option<&'static str> {
        (!self.covers(device)).then_some("run memviz report to simulate them")
    }

    fn trial<'d, 'a>(self, device: &'d Device<'a>) -> Trial<'d, 'a> {
        Trial::new(device, self.obstacle(device), if self == Self::Needs { STEPS_OF_NEEDS } else { 0 })
    }

    pub(crate) fn covers(self, device: &Device<'_>) -> bool {
        self != Self::Quick || device.history().entries() <= QUICK
    }
}

/// The maximum number of simulated findings, the most telling first: the time for each grows with the recording.
const MOST_FOUND: usize = 48;

/// Changes to the program of a device: the largest saving for its cost first.
pub fn advice(device: &Device<'_>, simulate: Simulate) -> Vec<Advice> {
    advice_of(device, simulate, |_| true)
}

/// What to change in the program of a device, and what that does for a failed request.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Known mistakes with their fixes, the largest saving for its cost first.
    pub advice: Vec<Advice>,
    /// What helps if a request failed; `None` if none did, or if that is unknown.
    pub rescue: Option<Rescue>,
}

/// What to change in the program of a device. After a failed request, fixes that only raise a peak are left out.
pub fn changes(device: &Device<'_>, simulate: Simulate) -> Changes {
    match Rescue::of(device, simulate) {
        Some((advice, rescue)) => Changes { advice, rescue: Some(rescue) },
        None => Changes { advice: advice(device, simulate), rescue: None },
    }
}

/// The entries of that list about some of the mistakes; only these are simulated.
pub(crate) fn advice_of(device: &Device<'_>, simulate: Simulate, is_wanted: fn(RuleKind) -> bool) -> Vec<Advice> {
    let found = found(device, simulate, is_wanted);
    found.map_or_else(Vec::new, |(_, advice)| advice.into_iter().map(|(advice, _)| advice).collect())
}

/// The same, with what the first of them save together if several were simulated, and those that can be combined with
/// other changes to the program, if there are any.
pub(crate) fn advice_together(
    device: &Device<'_>,
    simulate: Simulate,
    first: usize,
) -> (Vec<Advice>, Option<Together>, Option<First>) {
    let Some((trial, all)) = found(device, simulate, |_| true) else { return (Vec::new(), None, None) };
    let lives = all.iter().take(first).enumerate().filter_map(|(place, (advice, edit))| {
        match (edit.only_lives(), &advice.saving) {
            (Some(lives), Saving::Simulated { trust, at_least, .. }) => {
                Some((place, lives, *trust == Trust::Uncertain && !at_least))
            }
            _ => None,
        }
    });
    let lives: Vec<(usize, &Lifetimes, bool)> = lives.collect();
    let merged = |wanted: fn(bool) -> bool| {
        let wanted = || lives.iter().filter(|&&(_, _, is_doubted)| wanted(is_doubted));
        let places: Vec<usize> = wanted().map(|&(place, ..)| place).collect();
        (places, Lifetimes::merged(wanted().map(|&(_, lives, _)| lives)))
    };
    let (places, all_lives) = merged(|_| true);
    let saving = (places.len() > 1).then(|| trial.saving(&all_lives.into())).flatten();
    let together = saving.map(|saving| Together { places, saving });
    // A doubt that is no bound adds up with those of other changes.
    let (places, lives) = merged(|is_doubted| !is_doubted);
    let first = (!places.is_empty()).then_some(First { places, lives });
    (all.into_iter().map(|(advice, _)| advice).collect(), together, first)
}

/// The findings with their fixes, and the trial that simulates them.
fn found<'d, 'a>(
    device: &'d Device<'a>,
    simulate: Simulate,
    is_wanted: fn(RuleKind) -> bool,
) -> Option<(Trial<'d, 'a>, Vec<(Advice, Edit)>)> {
    let mut candidates = candidates(device, simulate.covers(device));
    candidates.retain(|finding| is_wanted(finding.kind));
    if candidates.is_empty() {
        return None;
    }
    let trial = simulate.trial(device);
    let advice = parallel::filter_map(candidates, |finding| trial.advice(finding));
    let advice = best(&trial, advice);
    Some((trial, advice))
}

/// What finders find, whether it will be simulated or not.
fn candidates(device: &Device<'_>, is_simulated: bool) -> Vec<Finding> {
    let mut found = Evidence::of(device, is_simulated).findings();
    found.truncate(MOST_FOUND);
    found
}

/// What is worth advice of what was simulated: the largest saving for its cost first.
fn best(trial: &Trial<'_, '_>, mut advice: Vec<(Advice, Edit)>) -> Vec<(Advice, Edit)> {
    // A change without a cost comes first, unless another one saves more than twice as much.
    advice.sort_rows_by_key(|(advice, _)| Reverse(advice.saving.most() / (1 + u64::from(advice.cost.is_some()))));
    // One mistake can have several findings.
    let mut told = HashSet::new();
    advice.retain(|(advice, _)| told.insert((advice.kind, advice.line.as_ref().map(|line| line.label.clone()))));
    let mut advice = without_repetitions(advice);
    trial.drop_parts_of_a_leak(&mut advice);
    advice
}

/// Leaves out fixes that change the same blocks as an earlier fix of the same story at another line.
fn without_repetitions(all: Vec<(Advice, Edit)>) -> Vec<(Advice, Edit)> {
    let mut told: Vec<(RuleKind, HashSet<u32, RandomState>)> = Vec::new();
    let mut kept = Vec::with_capacity(all.len());
    for (advice, edit) in all {
        if let Some(lives) = edit.only_lives() {
            let own: HashSet<u32, RandomState> = lives.changed().collect();
            let is_repeated = |(kind, earlier): &(RuleKind, HashSet<u32, RandomState>)| {
                *kind == advice.kind && own.intersection(earlier).count() * 2 > own.len()
            };
            if told.iter().any(is_repeated) {
                continue;
            }
            told.push((advice.kind, own));
        }
        kept.push((advice, edit));
    }
    kept
}
