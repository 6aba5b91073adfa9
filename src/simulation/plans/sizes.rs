//! Sizes of a program's requests at another batch or length, as far as a run that failed there shows them.
//!
//! The failed run shows the sizes of the requests that it reached. A request that it did not reach has the size of memory that
//! does not depend on the inputs, or grows at most as much as any request that was reached.

use crate::facts::device::Device;
use crate::facts::training::{Category, Phase};
use crate::simulation::StepKind;
use crate::simulation::changes::Edited;
use std::collections::HashMap;
use std::sync::Arc;

/// Smaller requests, such as counters, do not show how much larger ones grow.
const TELLING: u64 = 4096;

/// A request of the run that has all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The allocation, as an index into [`crate::replay::History::allocations`].
    pub allocation: u32,
    /// Requested bytes.
    pub bytes: u64,
    /// Whether the size does not depend on the inputs.
    pub is_fixed: bool,
}

impl Reference {
    pub fn of(device: &Device<'_>, allocation: u32, bytes: u64) -> Self {
        let category = device.categories().get(allocation as usize).category;
        let born = device.history().allocations.get(allocation as usize).map_or(0, |made| made.born);
        let is_fixed = matches!(
            category,
            Category::Parameter
                | Category::Buffer
                | Category::Gradient
                | Category::OptimizerState
                | Category::ModelState
                | Category::Workspace
        ) || device.phases().at(born) == Phase::Optimizer;
        Self { allocation, bytes, is_fixed }
    }
}

/// By how much requests grow: two numbers with this ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ratio {
    to: u64,
    from: u64,
}

impl Ratio {
    fn exceeds(self, other: Self) -> bool {
        u128::from(self.to) * u128::from(other.from) > u128::from(other.to) * u128::from(self.from)
    }

    fn of(self, bytes: u64) -> u64 {
        let scaled = (u128::from(bytes) * u128::from(self.to)).div_ceil(u128::from(self.from.max(1)));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// The ratio by which each allocation of a recording grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    of_allocation: HashMap<u32, Ratio>,
    /// The largest ratio, for requests that a change adds.
    most: Ratio,
}

impl Sizes {
    /// Upper bounds, given all requests of a run, and for some of them, by their allocations, the bytes in the other run.
    pub fn at_most(all: impl Iterator<Item = Reference>, pairs: impl Iterator<Item = (u32, u64)>) -> Self {
        let known: HashMap<u32, u64> = pairs.collect();
        let all: Vec<Reference> = all.collect();
        let ratio = |reference: &Reference| {
            let to = *known.get(&reference.allocation)?;
            (reference.bytes > 0).then_some(Ratio { to, from: reference.bytes })
        };
        let mut most = Ratio { to: 1, from: 1 };
        // Tensors of one size are mostly of one shape.
        let mut of_size: HashMap<u64, Ratio> = HashMap::new();
        for reference in &all {
            let Some(ratio) = ratio(reference) else { continue };
            if reference.bytes >= TELLING && ratio.exceeds(most) {
                most = ratio;
            }
            let known = of_size.entry(reference.bytes).or_insert(ratio);
            if ratio.exceeds(*known) {
                *known = ratio;
            }
        }
        let grows = |reference: &Reference| {
            let of_size = of_size.get(&reference.bytes).copied().filter(|ratio| ratio.to != ratio.from);
            match ratio(reference) {
                Some(ratio) => ratio,
                None if reference.is_fixed => Ratio { to: 1, from: 1 },
                None => of_size.unwrap_or(most),
            }
        };
        let of_allocation = all.iter().map(|reference| (reference.allocation, grows(reference))).collect();
        Self { of_allocation, most }
    }

    /// The bytes of a request that stands for this recorded allocation, or comes from a change.
    pub fn of(&self, origin: Option<u32>, bytes: u64) -> u64 {
        origin.and_then(|origin| self.of_allocation.get(&origin)).unwrap_or(&self.most).of(bytes)
    }

    /// A program, changed or not, with these sizes.
    pub fn apply(&self, changed: Edited) -> Edited {
        let Edited { mut program, origins, assumptions, doubts, moved } = changed;
        for step in Arc::make_mut(&mut program.steps).iter_mut().filter(|step| step.kind == StepKind::Alloc) {
            step.bytes = self.of(origins.get(step.allocation as usize).copied().flatten(), step.bytes);
        }
        Edited { program: program.with_its_loop(), origins, assumptions, doubts, moved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(allocation: u32, bytes: u64, is_fixed: bool) -> Reference {
        Reference { allocation, bytes, is_fixed }
    }

    /// Requests that were reached have their sizes; others are fixed, grow like one of their size, or as much as any.
    #[test]
    fn sizes_that_were_not_reached_are_upper_bounds() {
        let all = [(0, 10_000, false), (1, 30_000, false), (2, 10_000, false), (3, 70_000, false), (4, 70_000, true)];
        let all = all.map(|(allocation, bytes, is_fixed)| reference(allocation, bytes, is_fixed));
        let sizes = Sizes::at_most(all.into_iter(), [(0, 20_000), (1, 120_000)].into_iter());
        let of = |origin: u32, bytes| sizes.of(Some(origin), bytes);
        assert_eq!([of(0, 10_000), of(1, 30_000)], [20_000, 120_000]);
        assert_eq!(of(2, 10_000), 20_000, "one of the same size doubled");
        assert_eq!([of(3, 70_000), of(4, 70_000)], [280_000, 70_000]);
        assert_eq!(of(3, 35_000), 140_000, "a part of it, as a change requests");
        assert_eq!(sizes.of(None, 100), 400);
    }
}
