//! A range for another number from a single recording, by the category of each allocation.
//!
//! One recording does not show what grows with the number, but it shows the category of each allocation: parameters,
//! their gradients and optimizer state are constant, and memory that forward keeps for backward grows with the batch.
//! The rest is simulated both ways.

use super::prediction::{Doubt, Prediction};
use super::{DeviceFit, FitInput, FitOptions, FitReport, LARGEST, MULTIPLES, Measured, Refusal, program};
use crate::error::{Error, Result};
use crate::facts::device::{Device, ask_each};
use crate::facts::training::Category;
use crate::replay::Metric;
use crate::simulation::{
    Outcome, Program, Setup, StepKind, Trust, placements_of, recorded_settings, refuses, simulate,
};
use std::collections::HashSet;
use std::sync::Arc;

/// The fraction (1/N) by which both ends are moved outwards: kernels allocate other workspaces at other sizes, and segments
/// are placed differently.
const MARGIN: u64 = 20;

/// Which memory is assumed to grow in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Only memory that forward keeps.
    Kept,
    /// All except memory of the model and blocks with the size of a parameter.
    Likely,
    /// All except memory of the model.
    Most,
}

impl Rule {
    /// Whether an allocation grows.
    fn grows(self, category: Category, has_size_of_parameter: bool) -> bool {
        match category {
            Category::Parameter
            | Category::Buffer
            | Category::Gradient
            | Category::OptimizerState
            | Category::ModelState
            | Category::BeforeRecording
            | Category::Workspace => false,
            Category::Activation | Category::Input | Category::KvCache => {
                self != Self::Likely || !has_size_of_parameter
            }
            Category::Temporary | Category::Communication | Category::Unknown => match self {
                Self::Kept => false,
                Self::Likely => !has_size_of_parameter,
                Self::Most => true,
            },
        }
    }
}

impl FitReport {
    /// The range of the memory of a program at numbers other than the recorded one.
    ///
    /// # Errors
    /// If the number is 0 or too large, or a device is named that the recording does not have.
    pub fn of_one(parameter: &str, input: FitInput<'_>, options: &FitOptions) -> Result<Self> {
        if !(1..=LARGEST).contains(&input.value) {
            let found = input.value;
            return Err(Error::Request(format!("expected a value of {parameter} from 1 to {LARGEST}, found {found}")));
        }
        let wanted = input.devices.wanted(&options.devices)?;
        let devices = ask_each(&wanted, |device| {
            let mut fit = DeviceFit::nothing(device, options);
            fit.refused = fit.scale(device, input.value, options).err();
            Ok(fit)
        })?;
        Ok(Self { parameter: parameter.to_owned(), devices: devices.0 })
    }
}

impl DeviceFit {
    fn scale(&mut self, device: &Device<'_>, value: u64, options: &FitOptions) -> std::result::Result<(), Refusal> {
        let program = program(device).map_err(|because| Refusal::NotSimulated(value, because))?;
        let history = device.history();
        let maxima = history.maxima.map(|maximum| maximum.bytes);
        self.points.push(Measured {
            value,
            max_allocated: maxima[Metric::Allocated as usize],
            max_reserved: maxima[Metric::Reserved as usize],
            entries: history.entries(),
        });
        if !program.refusals.is_empty() {
            return Err(Refusal::OutOfMemory(value));
        }
        if history.completeness.has_baseline {
            let late = "the recording starts late, and memory from before it cannot be scaled; start recording before the model is built";
            return Err(Refusal::NotSimulated(value, late));
        }
        let recorded = recorded_settings(device.track);
        let settings = options.settings.as_ref().unwrap_or(&recorded);
        if let Some(because) = refuses(settings, false) {
            return Err(Refusal::Settings(because));
        }
        let setup = Setup::new(settings, None, 0);
        let placement = placements_of(device.track, &program, &recorded)[0];
        let setup = Setup { placement, ..setup };
        let mut values = options.at.clone();
        if values.is_empty() {
            values.extend(MULTIPLES.iter().filter_map(|&times| value.checked_mul(times)));
        }
        values.push(value);
        values.retain(|&value| value > 0);
        values.sort_unstable();
        values.dedup();
        self.predictions = values.into_iter().map(|to| predict(device, &program, &setup, (value, to))).collect();
        Ok(())
    }
}

/// The program at a number.
fn predict(device: &Device<'_>, program: &Program, setup: &Setup, (from, to): (u64, u64)) -> Prediction {
    let simulated = |rule| simulate(&scaled(device, program, rule, (from, to)), setup);
    let is_recorded = from == to;
    let (outcome, ends) = if is_recorded {
        (simulate(program, setup), Vec::new())
    } else {
        (simulated(Rule::Likely), vec![simulated(Rule::Kept), simulated(Rule::Most)])
    };
    let range = |of: fn(&Outcome) -> u64| {
        let all = || ends.iter().chain([&outcome]).map(of);
        let (least, most) = all().min().zip(all().max()).filter(|_| !is_recorded)?;
        Some((least - least / MARGIN, most.saturating_add(most / MARGIN)))
    };
    Prediction {
        value: to,
        is_recorded,
        allocated_range: range(|outcome| outcome.max_allocated),
        reserved_range: range(|outcome| outcome.max_reserved),
        outcome,
        unmatched: 0,
        unmatched_bytes: 0,
        trust: if is_recorded { Trust::Exact } else { Trust::Uncertain },
        doubts: if is_recorded { Vec::new() } else { vec![Doubt::OneRecording] },
    }
}

/// The program at another number, by a rule.
fn scaled(device: &Device<'_>, program: &Program, rule: Rule, (from, to): (u64, u64)) -> Program {
    let allocations = &device.history().allocations;
    let category = |index: u32| device.categories().get(index as usize).category;
    let indices = || 0..allocations.len() as u32;
    let parameters: HashSet<u64> = indices()
        .filter(|&index| category(index) == Category::Parameter)
        .map(|index| allocations[index as usize].requested)
        .collect();
    let mut program = program.clone();
    for step in Arc::make_mut(&mut program.steps).iter_mut().filter(|step| step.kind == StepKind::Alloc) {
        if rule.grows(category(step.allocation), parameters.contains(&step.bytes)) {
            let bytes = (u128::from(step.bytes) * u128::from(to)).div_ceil(u128::from(from));
            step.bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        }
    }
    program.with_its_loop()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a range and the middle: what forward keeps grows in any case, blocks with the size of a parameter may be
    /// part of that, and what the model owns is constant.
    #[test]
    fn growth_depends_on_the_category() {
        let grows = |category, has_size_of_parameter| {
            [Rule::Kept, Rule::Likely, Rule::Most].map(|rule| rule.grows(category, has_size_of_parameter))
        };
        assert_eq!(grows(Category::Activation, false), [true, true, true]);
        assert_eq!(grows(Category::Activation, true), [true, false, true]);
        assert_eq!(grows(Category::Temporary, false), [false, true, true]);
        assert_eq!(grows(Category::Temporary, true), [false, false, true]);
        assert_eq!(grows(Category::OptimizerState, false), [false, false, false]);
    }
}
