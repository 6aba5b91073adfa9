//! What the categories of earlier allocations say about later ones.

use super::Judge;
use crate::facts::training::category::Category;
use crate::facts::training::periods::Period;
use crate::facts::training::phases::Phase;
use crate::facts::training::role::Role;
use crate::model::{Action, StackId};

/// The categories of earlier allocations.
pub(super) struct Memory {
    /// Categories of each stack, as bits.
    by_stack: Vec<u16>,
    /// Requested bytes and category of each allocation in the last backward period, and in the previous one.
    backward: Vec<(u64, Category)>,
    backward_before: Vec<(u64, Category)>,
    /// The period of [`Memory::backward`].
    number: usize,
    /// The first entry after the latest recomputation.
    recomputation_end: u32,
}

impl Memory {
    pub fn new(stacks: usize) -> Self {
        Self {
            by_stack: vec![0; stacks],
            backward: Vec::new(),
            backward_before: Vec::new(),
            number: usize::MAX,
            recomputation_end: 0,
        }
    }

    pub fn note(&mut self, stack: StackId, number: usize, period: Period, requested: u64, category: Category) {
        if let Some(seen) = self.by_stack.get_mut(stack.index()) {
            *seen |= 1 << category as u16;
        }
        if period.phase == Phase::Backward {
            if self.number != number {
                self.number = number;
                self.backward_before = std::mem::take(&mut self.backward);
            }
            self.backward.push((requested, category));
        }
    }

    pub fn made(&self, stack: StackId, category: Category) -> bool {
        self.by_stack.get(stack.index()).is_some_and(|seen| seen & (1 << category as u16) != 0)
    }

    pub fn made_only(&self, stack: StackId, category: Category) -> bool {
        self.by_stack.get(stack.index()) == Some(&(1 << category as u16))
    }

    /// The category of the allocation at the same position in the previous backward period, if it had the same size.
    pub fn backward_before(&self, number: usize, requested: u64) -> Option<Category> {
        let (before, place) =
            if self.number == number { (&self.backward_before, self.backward.len()) } else { (&self.backward, 0) };
        before.get(place).filter(|(bytes, _)| *bytes == requested).map(|&(_, category)| category)
    }

    /// The first entry after the recomputation that contains an allocation born at an instant: the next allocation, or free
    /// with a meaningful stack, of anything else.
    pub fn recomputation_end(&mut self, judge: &Judge<'_>, born: u32) -> u32 {
        if born <= self.recomputation_end {
            return self.recomputation_end;
        }
        let &Judge { track, phases, roles, .. } = judge;
        let goes_on = |&entry: &u32| {
            let counts = match track.action(entry) {
                Some(Action::Alloc) => true,
                Some(Action::FreeRequested) => phases.frees_tell,
                _ => false,
            };
            !counts || roles.role(track.stack(entry)) == Role::Recompute
        };
        let length = (born..track.entries()).take_while(goes_on).count();
        self.recomputation_end = born + length as u32;
        self.recomputation_end
    }
}
