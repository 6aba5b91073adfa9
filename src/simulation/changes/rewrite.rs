//! A program that is being changed.
//!
//! Every step keeps its recorded entry, so that changes find their places by entries. Every allocation, including those that
//! a change adds, represents a recorded one, so that the facts about the recorded one apply to it, too.

use crate::model::PoolId;
use crate::simulation::{Program, Step, StepKind};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Allocations by number.
pub(in crate::simulation) type AllocationSet = HashSet<u32, RandomState>;

/// Represents no recorded allocation.
const NOBODY: u32 = u32::MAX;

/// A program while it is changed.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    pub program: Program,
    origins: Vec<u32>,
    moved: AllocationSet,
    /// Whether the program no longer makes the recorded requests in their order, or started with blocks.
    has_other_requests: bool,
}

/// The edits that one change makes to a program. They take effect together: places refer to the program before the
/// change.
#[derive(Clone, Debug, Default)]
pub(super) struct Patch {
    /// New steps, each with the step that it precedes, an index into [`Program::steps`]. Those for one place come in
    /// the order in which they were added.
    inserted: Vec<(usize, Step)>,
    gone: Vec<u32>,
    kept: Vec<u32>,
    replacements: HashMap<u32, u32, RandomState>,
    sizes: HashMap<u32, u64, RandomState>,
    /// Allocations that are freed at places without a recorded free.
    moved: AllocationSet,
}

impl Patch {
    pub fn insert(&mut self, place: usize, step: Step) {
        self.inserted.push((place, step));
    }

    pub fn remove(&mut self, allocation: u32) {
        self.gone.push(allocation);
    }

    /// Frees an allocation before a step instead of at its recorded place.
    pub fn free_at(&mut self, place: usize, allocation: u32, entry: u32) {
        self.kept.push(allocation);
        self.moved.insert(allocation);
        self.insert(place, free(allocation, entry));
    }

    pub fn keep(&mut self, allocation: u32) {
        self.kept.push(allocation);
    }

    /// Frees the replacement at the recorded free of an allocation.
    pub fn inherit(&mut self, allocation: u32, replacement: u32) {
        self.replacements.insert(allocation, replacement);
    }

    pub fn resize(&mut self, allocation: u32, bytes: u64) {
        self.sizes.insert(allocation, bytes);
    }
}

pub(super) fn free(allocation: u32, entry: u32) -> Step {
    Step { kind: StepKind::Free, pool: 0, allocation, entry, bytes: 0 }
}

/// For each of `count` allocations, whether it is among these.
fn marked(allocations: &[u32], count: usize) -> Vec<bool> {
    let mut marks = vec![false; count];
    for &allocation in allocations {
        if let Some(mark) = marks.get_mut(allocation as usize) {
            *mark = true;
        }
    }
    marks
}

pub(super) fn is_free(kind: StepKind) -> bool {
    matches!(kind, StepKind::Free | StepKind::RequestFree | StepKind::CompleteFree)
}

impl Rewrite {
    pub fn of(program: &Program) -> Self {
        let origins = (0..program.allocations as u32).collect();
        let has_other_requests = !program.start.pieces.is_empty();
        Self { origins, program: program.clone(), moved: AllocationSet::default(), has_other_requests }
    }

    pub fn is_moved(&self, allocation: u32) -> bool {
        self.moved.contains(&allocation)
    }

    /// The number of a new allocation, which represents a recorded one.
    pub fn add(&mut self, origin: u32) -> u32 {
        self.has_other_requests = true;
        self.origins.push(origin);
        self.origins.len() as u32 - 1
    }

    /// The number of a new allocation that represents no recorded one.
    pub fn add_nameless(&mut self) -> u32 {
        self.add(NOBODY)
    }

    /// The recorded allocation that an allocation represents, as an index into [`crate::replay::History::allocations`].
    pub fn origin(&self, allocation: u32) -> Option<u32> {
        self.origins.get(allocation as usize).copied().filter(|&origin| origin != NOBODY)
    }

    /// For each entry up to and including `entries`, the first step at that entry or later.
    pub fn places(&self, entries: u32) -> Vec<usize> {
        let mut places = Vec::with_capacity(entries as usize + 1);
        for (index, step) in self.program.steps.iter().enumerate() {
            // Frees that are detected late are recorded after later entries.
            while places.len() <= step.entry.min(entries) as usize {
                places.push(index);
            }
        }
        places.resize(entries as usize + 1, self.program.steps.len());
        places
    }

    pub fn apply(&mut self, patch: Patch) {
        let Patch { mut inserted, gone, kept, replacements, sizes, moved } = patch;
        inserted.sort_rows_by_key(|&(place, _)| place);
        self.moved.extend(moved);
        self.has_other_requests |= !gone.is_empty();
        let is_gone = marked(&gone, self.origins.len());
        let is_kept = marked(&kept, self.origins.len());
        let has = |marks: &[bool], allocation: u32| marks.get(allocation as usize).copied().unwrap_or(false);
        // Changes a step, and returns whether it remains.
        let edit = |step: &mut Step| {
            match step.kind {
                kind if is_free(kind) => match replacements.get(&step.allocation) {
                    Some(&replacement) => step.allocation = replacement,
                    None => return !has(&is_kept, step.allocation) && !has(&is_gone, step.allocation),
                },
                StepKind::Alloc if has(&is_gone, step.allocation) => return false,
                StepKind::Alloc => step.bytes = sizes.get(&step.allocation).copied().unwrap_or(step.bytes),
                _ => {}
            }
            true
        };
        if inserted.is_empty() {
            Arc::make_mut(&mut self.program.steps).retain_mut(edit);
            return;
        }
        let steps = &self.program.steps;
        let mut changed = Vec::with_capacity(steps.len() + inserted.len());
        let mut inserted = inserted.into_iter().peekable();
        let end = steps.len();
        for (place, &(mut step)) in steps.iter().enumerate() {
            while let Some((_, step)) = inserted.next_if(|&(at, _)| at <= place) {
                changed.push(step);
            }
            if edit(&mut step) {
                changed.push(step);
            }
        }
        changed.extend(inserted.filter(|&(at, _)| at <= end).map(|(_, step)| step));
        self.program.steps = Arc::new(changed);
    }

    /// Turns the blocks that are live before the first step into requests, in the order of their addresses, so that
    /// changes can edit them. This drops the free memory that the recording starts with.
    pub fn request_start(&mut self) {
        let start = std::mem::take(&mut self.program.start);
        let requested: HashMap<usize, u64> = self.program.start_requested.drain(..).collect();
        let mut steps = Vec::with_capacity(requested.len() + self.program.steps.len());
        for segment in &start.segments {
            let pool = self.pool((segment.stream.unwrap_or(0), segment.pool));
            for piece in start.pieces_of(segment) {
                let Some(index) = piece.allocation else { continue };
                let bytes = requested.get(&index).copied().unwrap_or(piece.size);
                steps.push(Step { kind: StepKind::Alloc, pool, allocation: index as u32, entry: 0, bytes });
            }
        }
        steps.extend_from_slice(&self.program.steps);
        self.program.steps = Arc::new(steps);
    }

    fn pool(&mut self, (stream, private): (u64, Option<PoolId>)) -> u16 {
        let wanted = (stream, private.filter(|&pool| pool != PoolId::default()));
        let known = self.program.pools.iter().position(|&pool| pool == wanted);
        known.map_or_else(
            || {
                self.program.pools.push(wanted);
                self.program.pools.len() as u16 - 1
            },
            |known| known as u16,
        )
    }

    /// Whether blocks with one of these numbers are live before the first step.
    pub fn starts_with(&self, wanted: impl Fn(u32) -> bool) -> bool {
        self.program.start_requested.iter().any(|&(index, _)| wanted(index as u32))
    }

    /// The changed program, the recorded allocation that each of its allocations represents, and the allocations whose frees
    /// were moved.
    pub fn finish(self) -> (Program, Vec<Option<u32>>, AllocationSet) {
        let Self { mut program, origins, moved, has_other_requests } = self;
        if !has_other_requests {
            return (program.with_its_loop(), origins.into_iter().map(Some).collect(), moved);
        }
        // Rounds of a loop are recognized by the order of numbers, so allocations are renumbered.
        let mut numbers = vec![NOBODY; origins.len()];
        let mut renumbered = Vec::with_capacity(origins.len());
        let mut number = |allocation: u32| match numbers.get_mut(allocation as usize) {
            Some(known) => {
                if *known == NOBODY {
                    *known = renumbered.len() as u32;
                    let origin = origins[allocation as usize];
                    renumbered.push((origin != NOBODY).then_some(origin));
                }
                *known
            }
            None => allocation,
        };
        for piece in &mut program.start.pieces {
            piece.allocation = piece.allocation.map(|index| number(index as u32) as usize);
        }
        for (index, _) in &mut program.start_requested {
            *index = number(*index as u32) as usize;
        }
        for step in Arc::make_mut(&mut program.steps) {
            step.allocation = number(step.allocation);
        }
        program.allocations = renumbered.len();
        let moved = moved.iter().filter_map(|&allocation| numbers.get(allocation as usize).copied()).collect();
        (program.with_its_loop(), renumbered, moved)
    }
}
