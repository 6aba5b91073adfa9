//! A program whose last step is repeated.

use super::sizes::Sizes;
use crate::simulation::changes::Edited;
use crate::simulation::{Program, Step, StepKind};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Number of repetitions of a step: what the first one leaves behind affects the second.
const TIMES: usize = 2;

/// The last step of a program, which the simulation repeats. Allocations are those of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// Entries of the step, at which the program ends.
    pub entries: Range<u32>,
    /// Allocations that the step leaves behind and the next step frees, each with the entry of the step before which
    /// the next step frees it.
    pub frees: Vec<(u32, u32)>,
    /// Allocations that the step makes once for all following steps, such as optimizer states.
    pub once: HashSet<u32>,
    /// The sizes with which it is repeated, if they differ.
    pub sizes: Option<Sizes>,
}

impl Repeat {
    /// A program, changed or not, with its last step repeated.
    pub fn apply(&self, changed: Edited) -> Edited {
        let Edited { mut program, mut origins, assumptions, doubts, moved } = changed;
        let first =
            program.steps.iter().position(|step| self.entries.contains(&step.entry)).unwrap_or(program.steps.len());
        let step: Vec<Step> = program.steps[first..].to_vec();
        // The current allocation for each recorded allocation of the step.
        let mut now: HashMap<u32, u32> = HashMap::new();
        let mut left: Vec<u32> = Vec::new();
        for it in &step {
            match it.kind {
                StepKind::Alloc => {
                    now.insert(it.allocation, it.allocation);
                    left.push(it.allocation);
                }
                StepKind::Free | StepKind::CompleteFree => {
                    now.remove(&it.allocation);
                }
                _ => {}
            }
        }
        let made: HashSet<u32> = left.iter().copied().collect();
        left.retain(|allocation| now.contains_key(allocation));
        let freed: HashSet<u32> = self.frees.iter().map(|&(_, origin)| origin).collect();
        let origin_of = |origins: &[Option<u32>], allocation: u32| origins.get(allocation as usize).copied().flatten();
        let mut of_origin: HashMap<u32, Vec<u32>> = HashMap::new();
        for &allocation in &left {
            of_origin.entry(origin_of(&origins, allocation).unwrap_or(u32::MAX)).or_default().push(allocation);
        }
        let once: HashSet<u32> = left
            .iter()
            .copied()
            .filter(|&allocation| {
                let origin = origin_of(&origins, allocation);
                // An allocation without a recorded counterpart comes from a change, and stays.
                origin.is_none_or(|origin| self.once.contains(&origin) && !freed.contains(&origin))
            })
            .collect();
        let frees_at: HashMap<u32, u32> = self.frees.iter().map(|&(at, origin)| (origin, at)).collect();
        let steps = Arc::make_mut(&mut program.steps);
        for _ in 0..TIMES {
            let mut frees = self.frees.iter().peekable();
            // Values that have successors, but are freed only later in the step.
            let mut replaced: HashMap<u32, u32> = HashMap::new();
            for it in &step {
                while let Some(&(_, origin)) = frees.next_if(|&&(at, _)| at <= it.entry) {
                    for allocation in of_origin.get(&origin).into_iter().flatten() {
                        let last = replaced.remove(allocation).or_else(|| now.remove(allocation));
                        steps.extend(last.map(|last| free(last, it.entry)));
                    }
                }
                match it.kind {
                    StepKind::Alloc if once.contains(&it.allocation) => {}
                    StepKind::Alloc => {
                        let new = origins.len() as u32;
                        let origin = origin_of(&origins, it.allocation);
                        origins.push(origin);
                        let bytes = self.sizes.as_ref().map_or(it.bytes, |sizes| sizes.of(origin, it.bytes));
                        steps.push(Step { allocation: new, bytes, ..*it });
                        // A variable receives its next value and releases the previous one.
                        let last = now.insert(it.allocation, new);
                        let at = origin.and_then(|origin| frees_at.get(&origin));
                        if at.is_some_and(|&at| it.entry < at && at < self.entries.end) {
                            replaced.extend(last.map(|last| (it.allocation, last)));
                        } else {
                            steps.extend(last.map(|last| free(last, it.entry)));
                        }
                    }
                    StepKind::Free | StepKind::CompleteFree | StepKind::RequestFree
                        if made.contains(&it.allocation) =>
                    {
                        let is_gone = it.kind != StepKind::RequestFree;
                        let there = now.get(&it.allocation).copied();
                        if is_gone {
                            now.remove(&it.allocation);
                        }
                        steps.extend(there.map(|allocation| Step { allocation, ..*it }));
                    }
                    // Blocks that an earlier step left behind are already freed.
                    StepKind::Free | StepKind::CompleteFree | StepKind::RequestFree => {}
                    _ => steps.push(*it),
                }
            }
        }
        program.allocations = origins.len();
        Edited { program: program.with_its_loop(), origins, assumptions, doubts, moved }
    }

    pub fn apply_to_recorded(&self, program: &Program) -> Program {
        self.apply(Edited::recorded(program.clone())).program
    }
}

fn free(allocation: u32, entry: u32) -> Step {
    Step { kind: StepKind::Free, pool: 0, allocation, entry, bytes: 0 }
}
