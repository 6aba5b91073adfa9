//! Gradients, states and temporary blocks of a recording's optimizer.

use crate::facts::device::Device;
use crate::facts::training::{Category, Origin, Origins, Phase};
use crate::model::bytes::Bytes;
use crate::replay::{Allocation, Metric};
use crate::simulation::{Program, Step, StepKind};
use std::collections::BTreeMap;
use std::ops::Range;

/// Share of the states, in percent, that may have no gradient of their size: counters of steps, scales.
const MOST_OTHER: u64 = 1;
/// The most states that an optimizer keeps for each parameter: `amsgrad` keeps the two of Adam and the largest second moment.
pub(super) const MOST_STATES: u32 = 3;
/// The share of the recorded peak, in percent, that may have an unknown use and yet stay.
const MOST_UNCLEAR: u64 = 2;

/// The allocations that belong to the optimizer of a recording. Allocations are indexes into
/// [`crate::replay::History::allocations`].
#[derive(Clone, Debug)]
pub(super) struct Trained {
    /// Number of gradients by size: of the parameters that are trained.
    pub gradients: BTreeMap<u64, u32>,
    pub states: Vec<u32>,
    /// How many states each parameter has; a state that is allocated in every step counts each time.
    pub per_parameter: u32,
    pub at_once: u32,
    pub scratch: Vec<Vec<u32>>,
    /// Entries of each step of the optimizer that updates parameters.
    pub updates: Vec<Range<u32>>,
    /// Every gradient of every backward pass.
    pub all_gradients: Vec<u32>,
}

impl Trained {
    /// Finds the optimizer's allocations on a device. An error says what the recording does not show.
    pub fn of(device: &Device<'_>) -> Result<Self, String> {
        let (track, history, phases) = (device.track, device.history(), device.phases());
        let categories = device.categories();
        let origins = Origins::of(device.sites(), device.roles());
        let of = |wanted: Category| {
            (0..history.allocations.len() as u32)
                .filter(move |&index| categories.get(index as usize).category == wanted)
        };
        let allocation = |index: u32| &history.allocations[index as usize];
        let updates = updates(device);
        if updates.is_empty() {
            return Err("no optimizer step after a backward pass was found".to_owned());
        }
        let all_gradients: Vec<u32> = of(Category::Gradient).collect();
        let states: Vec<u32> = of(Category::OptimizerState).collect();
        let gradients = most_at_once(all_gradients.iter().map(|&index| *allocation(index)), &updates);
        if gradients.is_empty() {
            return Err("no gradients were found".to_owned());
        }
        let mut scratch: Vec<Vec<u32>> = vec![Vec::new(); updates.len()];
        for (index, &Allocation { born, freed, .. }) in (0..).zip(&history.allocations) {
            let update = updates.partition_point(|update| update.end < born);
            let is_within = updates.get(update).is_some_and(|update| update.start < born && freed <= update.end);
            if is_within
                && categories.get(index as usize).category == Category::Temporary
                && phases.at(born) == Phase::Optimizer
                && matches!(origins.get(track.stack_of(index as usize)), Origin::Optimizer | Origin::State)
            {
                scratch[update].push(index);
            }
        }
        let peak = history.maxima[Metric::Allocated as usize];
        let unclear: u64 = [Category::ModelState, Category::BeforeRecording]
            .into_iter()
            .flat_map(of)
            .map(allocation)
            .filter(|allocation| allocation.allocated_at(peak.instant))
            .fold(0, |sum, allocation| sum.saturating_add(allocation.size));
        if unclear.saturating_mul(100) > (peak.bytes.max(0) as u64).saturating_mul(MOST_UNCLEAR) {
            return Err(format!(
                "{} at the peak may be parameters, gradients or optimizer state; start recording before the model is created \
                 to distinguish them",
                Bytes(unclear)
            ));
        }
        let per_parameter = per_parameter(states.iter().map(|&index| allocation(index).requested), &gradients)?;
        let together = most_at_once(states.iter().map(|&index| *allocation(index)), &updates);
        let at_once = |(size, count): (&u64, &u32)| together.get(size).map_or(0, |states| states / count.max(&1));
        let at_once = gradients.iter().max_by_key(|&(size, count)| size * u64::from(*count)).map_or(0, at_once);
        Ok(Self { gradients, states, per_parameter, at_once, scratch, updates, all_gradients })
    }

    /// Why more states are recorded than an optimizer has.
    pub fn too_many(&self) -> String {
        match self.at_once {
            1..=MOST_STATES if self.at_once < self.per_parameter => format!(
                "the recorded optimizer reallocates its {} for each parameter in every step, which memviz cannot simulate",
                if self.at_once == 1 { "state".to_owned() } else { format!("{} states", self.at_once) }
            ),
            _ => format!(
                "the recorded optimizer keeps {} states for each parameter, whose kinds are unknown",
                self.per_parameter
            ),
        }
    }

    /// Bytes of one gradient of each trained parameter, the largest first.
    pub fn sizes(&self) -> Vec<u64> {
        let all = self.gradients.iter().rev();
        all.flat_map(|(&bytes, &count)| std::iter::repeat_n(bytes, count as usize)).collect()
    }

    pub fn bytes(&self) -> u64 {
        self.gradients
            .iter()
            .fold(0, |sum, (&bytes, &count)| sum.saturating_add(bytes.saturating_mul(u64::from(count))))
    }

    /// The states of each parameter that have the size of a gradient, by the requests that a program makes for them:
    /// the steps of one parameter's states, in order.
    pub fn groups(&self, program: &Program) -> Vec<Vec<Step>> {
        let mut of_size: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
        let is_state = |step: &&Step| {
            step.kind == StepKind::Alloc
                && self.states.binary_search(&step.allocation).is_ok()
                && self.gradients.contains_key(&step.bytes)
        };
        for step in program.steps.iter().filter(is_state) {
            of_size.entry(step.bytes).or_default().push(*step);
        }
        let each = self.per_parameter.max(1) as usize;
        of_size.into_values().flat_map(|steps| steps.chunks(each).map(<[Step]>::to_vec).collect::<Vec<_>>()).collect()
    }
}

/// Optimizer periods after a backward pass, up to the one that frees gradients last.
fn updates(device: &Device<'_>) -> Vec<Range<u32>> {
    let mut updates: Vec<Range<u32>> = Vec::new();
    let mut is_due = false;
    let mut is_open = false;
    for span in &device.phases().spans {
        match span.phase {
            Phase::Backward => (is_due, is_open) = (true, false),
            Phase::Optimizer if is_due => {
                updates.push(span.start..span.end);
                (is_due, is_open) = (false, true);
            }
            Phase::Optimizer if is_open => {
                if let Some(last) = updates.last_mut() {
                    last.end = span.end;
                }
            }
            Phase::Forward | Phase::Data => is_open = false,
            _ => {}
        }
    }
    updates
}

/// For each size, the maximum number of blocks that are live when an update starts.
fn most_at_once(blocks: impl Iterator<Item = Allocation>, updates: &[Range<u32>]) -> BTreeMap<u64, u32> {
    let mut counts: BTreeMap<(u64, usize), u32> = BTreeMap::new();
    for block in blocks {
        let first = updates.partition_point(|update| update.start < block.born);
        let there = updates[first..].iter().take_while(|update| block.allocated_at(update.start));
        for update in first..first + there.count() {
            *counts.entry((block.requested, update)).or_default() += 1;
        }
    }
    let mut most: BTreeMap<u64, u32> = BTreeMap::new();
    for ((size, _), count) in counts {
        let known = most.entry(size).or_default();
        *known = count.max(*known);
    }
    most
}

/// How many states of its size each gradient has. An error says why this is unknown.
fn per_parameter(states: impl Iterator<Item = u64>, gradients: &BTreeMap<u64, u32>) -> Result<u32, String> {
    let (mut counts, mut all, mut other): (BTreeMap<u64, u32>, u64, u64) = (BTreeMap::new(), 0, 0);
    for size in states {
        all = all.saturating_add(size);
        if gradients.contains_key(&size) {
            *counts.entry(size).or_default() += 1;
        } else {
            other = other.saturating_add(size);
        }
    }
    if all == 0 {
        return Ok(0);
    }
    let unlike = || format!("{} of optimizer state does not match any gradient size", Bytes(other));
    if other.saturating_mul(100) > all.saturating_mul(MOST_OTHER) {
        return Err(unlike());
    }
    // A few bytes may be miscounted, such as those of sizes that other blocks share.
    let each = |(size, count): (&u64, &u32)| (count / gradients[size].max(1), size.saturating_mul(u64::from(*count)));
    let mut bytes_of: BTreeMap<u32, u64> = BTreeMap::new();
    for (each, bytes) in counts.iter().map(each) {
        let sum = bytes_of.entry(each).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let (&each, &bytes) = bytes_of.iter().max_by_key(|&(_, bytes)| *bytes).unwrap_or((&0, &0));
    if each == 0 || all.saturating_sub(bytes).saturating_mul(100) > all.saturating_mul(MOST_OTHER) {
        return Err("parameters of different sizes have different numbers of states".to_owned());
    }
    Ok(each)
}
