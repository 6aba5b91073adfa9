//! Adds, removes and resizes the buffers of sums in a program.

use super::sums::Staging;
use crate::simulation::{Program, Step, StepKind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The missing and superfluous buffers of a program. Requests are identified by their recorded entry.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    /// Buffers to add after the result of a sum, by entry.
    pub added: HashMap<u32, Staging>,
    /// Requests to leave out.
    pub gone: HashSet<u32>,
}

impl Staged {
    /// The program with missing buffers added and unneeded ones removed, and the previous number of each of its allocations.
    pub fn apply(&self, program: Program) -> (Program, Vec<Option<usize>>) {
        if self.added.is_empty() && self.gone.is_empty() {
            let same = (0..program.allocations).map(Some).collect();
            return (program.with_its_loop(), same);
        }
        let mut made = Numbers { known: vec![None; program.allocations], origins: Vec::new() };
        let mut program = program;
        for piece in &mut program.start.pieces {
            piece.allocation = piece.allocation.map(|allocation| made.number(allocation));
        }
        for (allocation, _) in &mut program.start_requested {
            *allocation = made.number(*allocation);
        }
        let mut gone = HashSet::new();
        let mut steps = Vec::with_capacity(program.steps.len() + 4 * self.added.len());
        for &(mut step) in program.steps.iter() {
            let is_request = step.kind == StepKind::Alloc;
            if is_request && self.gone.contains(&step.entry) {
                gone.insert(step.allocation);
            }
            if gone.contains(&step.allocation) {
                continue;
            }
            if (step.allocation as usize) < made.known.len() {
                step.allocation = made.number(step.allocation as usize) as u32;
            }
            steps.push(step);
            if let Some(&staging) = self.added.get(&step.entry).filter(|_| is_request) {
                steps.extend(made.staging(&step, staging));
            }
        }
        program.steps = Arc::new(steps);
        program.allocations = made.origins.len();
        (program.with_its_loop(), made.origins)
    }
}

/// Numbers of allocations: rounds of a loop are recognized by their order, so they are renumbered.
struct Numbers {
    known: Vec<Option<usize>>,
    origins: Vec<Option<usize>>,
}

impl Numbers {
    fn number(&mut self, before: usize) -> usize {
        let Some(known) = self.known.get_mut(before) else { return before };
        *known.get_or_insert_with(|| {
            self.origins.push(Some(before));
            self.origins.len() - 1
        })
    }

    /// The steps by which a sum is staged.
    fn staging(&mut self, output: &Step, Staging { buffer, counters }: Staging) -> [Step; 4] {
        let first = self.origins.len() as u32;
        self.origins.extend([None, None]);
        let step = |kind, allocation, bytes| Step { kind, allocation, bytes, ..*output };
        [
            step(StepKind::Alloc, first, buffer),
            step(StepKind::Alloc, first + 1, counters),
            step(StepKind::Free, first + 1, 0),
            step(StepKind::Free, first, 0),
        ]
    }
}
