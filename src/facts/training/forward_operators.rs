//! The forward pass as a list of operators, in the order in which they ran.

use crate::model::StackId;
use crate::replay::History;

/// Consecutive allocations with the same stack: those of one operator, or of a few operators on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operator {
    /// The stack they share.
    pub stack: StackId,
    /// Index of the first allocation in the history.
    first: u32,
    /// Index after the last one.
    end: u32,
}

/// The most allocations of one operator. If a line repeats more often, the allocations count as several operators, so that
/// processing one operator stays cheap.
const MOST_ALLOCATIONS: u32 = 32;

/// The operators that backward can refer to: those of forward, and those that activation checkpointing recomputes right
/// before their backward. Python code around them (the inputs, the loss) counts as well, since it allocates tensors that
/// backward needs, too.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardOperators {
    operators: Vec<Operator>,
    /// For each allocation of the history, the number of operators that had started before it, as
    /// [`ForwardOperators::len_at`] returns it: every free of backward needs it, and a search each time took longer than
    /// everything else here.
    begun: Vec<u32>,
}

impl ForwardOperators {
    /// No operators yet, of a device with this many allocations.
    pub fn for_allocations(count: usize) -> Self {
        // Before all entries, no operator has started.
        Self { operators: Vec::new(), begun: vec![0; count] }
    }

    /// Reads the next allocation that an entry records. Those of operators have `belongs` set.
    #[inline]
    pub fn read(&mut self, allocation: u32, stack: StackId, belongs: bool) {
        let Some(begun) = self.begun.get_mut(allocation as usize) else { return };
        *begun = self.operators.len() as u32;
        if !belongs {
            return;
        }
        let goes_on = |last: &&mut Operator| {
            last.stack == stack && last.end == allocation && last.end - last.first < MOST_ALLOCATIONS
        };
        match self.operators.last_mut().filter(goes_on) {
            Some(last) => last.end = allocation + 1,
            None => self.operators.push(Operator { stack, first: allocation, end: allocation + 1 }),
        }
    }

    /// Whether nothing ran.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }

    /// The operator with this index.
    pub fn get(&self, operator: usize) -> Option<&Operator> {
        self.operators.get(operator)
    }

    /// The operator of the allocation with this index.
    pub fn maker(&self, allocation: u32) -> Option<usize> {
        let operator = self.len_at(allocation + 1).checked_sub(1)?;
        (allocation < self.operators[operator].end).then_some(operator)
    }

    /// Number of operators that had started before the allocation with this index.
    pub fn len_at(&self, allocation: u32) -> usize {
        self.begun.get(allocation as usize).map_or(self.operators.len(), |&begun| begun as usize)
    }

    /// Number of blocks that an operator allocated.
    pub fn blocks(&self, operator: usize) -> usize {
        self.get(operator).map_or(0, |operator| (operator.end - operator.first) as usize)
    }

    /// Whether an operator allocated a block of this many bytes.
    pub fn makes(&self, history: &History, operator: usize, bytes: u64) -> bool {
        let made = self.get(operator).and_then(|made| history.allocations.get(made.first as usize..made.end as usize));
        made.unwrap_or_default().iter().any(|allocation| allocation.requested == bytes)
    }
}
