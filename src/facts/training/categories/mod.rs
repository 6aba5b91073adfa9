//! The category of each allocation of a device.
//!
//! Labels in the file take precedence, then stacks (`origin`), then lifetimes relative to phases, and sizes
//! (`parameters`). Without evidence the category is [`Category::Unknown`].

mod memory;

use super::caches::Caches;
use super::category::{Category, Evidence};
use super::forwards::Forwards;
use super::older::{self, States};
use super::origin::{Origin, Origins};
use super::own_lines::OwnLines;
use super::parameters::Parameters;
use super::periods::{Cursor, Period, Periods};
use super::phases::{Phase, Phases};
use super::replacements::{Replaced, Replacements};
use super::role::{Role, Roles};
use super::workspace::{self, Workspaces};
use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::facts::held::Held;
use crate::model::holders::HolderKind;
use crate::model::{Action, ContextId, StackId};
use crate::replay::{Allocation, History, Instant, NEVER, Track};
use foldhash::fast::RandomState;
use memory::Memory;
use std::cell::OnceCell;
use std::collections::HashMap;

/// A category, and the evidence for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decision {
    pub category: Category,
    pub evidence: Evidence,
}

/// The categories of all allocations of one device.
#[derive(Clone, Debug, Default)]
pub struct Categories {
    of_allocation: Vec<Decision>,
}

impl Categories {
    /// Finds the category of every allocation in a history.
    pub(crate) fn of(
        track: Track<'_>,
        phases: &Phases,
        roles: &Roles,
        sites: &Sites<'_>,
        held: Option<&Held<'_>>,
    ) -> Self {
        let Track { snapshot, history } = track;
        let periods = Periods::of(track, phases);
        let origins = Origins::of(sites, roles);
        let mut lines = OwnLines::new(sites);
        let replacements = Replacements::of(track, phases, &periods, roles, &mut lines);
        let has_backward = periods.from(Phase::Backward, 0).is_some();
        let trains = has_backward || roles.trains();
        let parameters = Parameters::of(track, &periods, &origins, roles, &replacements);
        let forwards = Forwards::of(track, sites, &periods, roles, phases.frees_tell);
        let caches =
            if has_backward { Caches::default() } else { Caches::of(track, &periods, &forwards, roles, &mut lines) };
        let workspaces = Workspaces::of(track, &periods, roles);
        let innermost = |stack: StackId| {
            snapshot.stacks.frame_ids(stack).iter().copied().find(|&frame| sites.kind(frame).is_python())
        };
        let is_backward = |stack: StackId| roles.is_engine(stack) || roles.role(stack) == Role::Backward;
        let states = older::states(track, &origins, innermost, |frame| sites.kind(frame) == FrameKind::Torch);
        let judge = Judge {
            track,
            phases,
            roles,
            periods: &periods,
            parameters: &parameters,
            replacements: &replacements,
            forwards: &forwards,
            caches: &caches,
            last_born: OnceCell::new(),
            workspaces,
            states,
            trains,
        };
        let labels = labels(track);
        let mut memory = Memory::new(snapshot.stacks.len());
        let mut cursor = Cursor::new(&periods);
        let mut of_allocation = Vec::with_capacity(history.allocations.len());
        for (index, &allocation, stack) in track.allocations() {
            let index = index as usize;
            if index == history.baseline.len() {
                older::settle(track, &mut of_allocation, trains, innermost, is_backward);
            }
            let entry = History::entry_before(allocation.born);
            let place = entry.and_then(|entry| cursor.find(entry));
            let block = Block { index, allocation, stack, origin: origins.get(stack) };
            let said = labels.get(&(index as u32)).map(|&category| (category, Evidence::Metadata));
            let said = said.or_else(|| Some((category(held?.first(index)?.kind)?, Evidence::Held)));
            let (category, evidence) = said
                .or_else(|| judge.by_stack(&block))
                .or_else(|| judge.by_name(&block, place.map(|(_, period)| period)))
                .or_else(|| judge.by_ancestor(&block, &of_allocation))
                .or_else(|| {
                    let (number, period) = place?;
                    Some(judge.by_lifetime(&block, number, period, &mut memory))
                })
                .unwrap_or_else(|| judge.baseline(&block));
            let (category, evidence) = judge.or_model_state(&block, place, (category, evidence));
            if let Some((number, period)) = place {
                memory.note(stack, number, period, allocation.requested, category);
            }
            of_allocation.push(Decision { category, evidence });
        }
        if history.allocations.len() == history.baseline.len() {
            older::settle(track, &mut of_allocation, trains, innermost, is_backward);
        }
        Self { of_allocation }
    }

    /// The category of the allocation with this index.
    pub fn get(&self, allocation: usize) -> Decision {
        self.of_allocation.get(allocation).copied().unwrap_or_default()
    }

    /// The allocations of a category, by index, in order.
    pub(crate) fn all_of(&self, category: Category) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.of_allocation).filter(move |(_, made)| made.category == category).map(|(index, _)| index)
    }
}

/// Categories named in `user_metadata`: that of the allocation's entry, or of an `annotate` entry for it.
fn labels(track: Track<'_>) -> HashMap<u32, Category, RandomState> {
    let Track { snapshot, history } = track;
    let named = |context: u32| {
        let context = snapshot.contexts.get(ContextId(context));
        let texts = [context.user_metadata, context.internal_metadata];
        texts.into_iter().find_map(|text| Category::of_label(snapshot.strings.get(text)))
    };
    let named: Vec<Option<Category>> = (0..snapshot.contexts.len() as u32).map(named).collect();
    if named.iter().all(Option::is_none) {
        return HashMap::default();
    }
    let entries = history.rows.clone().zip(track.actions()).zip(&history.links);
    let said = entries.filter_map(|((row, action), &link)| {
        let category = named.get(snapshot.entries.context(row).0 as usize).copied().flatten()?;
        matches!(action, Action::Alloc | Action::Annotate).then_some((link, category))
    });
    // A later entry overrides earlier ones.
    said.collect()
}

/// The category of what is held like this, if that tells.
fn category(kind: HolderKind) -> Option<Category> {
    match kind {
        HolderKind::Parameter => Some(Category::Parameter),
        HolderKind::Buffer => Some(Category::Buffer),
        HolderKind::Gradient => Some(Category::Gradient),
        HolderKind::OptimizerState => Some(Category::OptimizerState),
        HolderKind::Saved => Some(Category::Activation),
        HolderKind::Variable | HolderKind::Unreachable => None,
    }
}

/// The allocation to categorize.
struct Block {
    index: usize,
    allocation: Allocation,
    stack: StackId,
    origin: Origin,
}

type Decided = (Category, Evidence);

const UNDECIDED: Decided = (Category::Unknown, Evidence::Undecided);
const GONE: Decided = (Category::Temporary, Evidence::GoneInPhase);

struct Judge<'a> {
    track: Track<'a>,
    phases: &'a Phases,
    roles: &'a Roles,
    periods: &'a Periods,
    parameters: &'a Parameters,
    replacements: &'a Replacements,
    forwards: &'a Forwards,
    caches: &'a Caches,
    /// The instant of the last allocation of each stack, once it is needed.
    last_born: OnceCell<Vec<Instant>>,
    workspaces: Workspaces,
    /// Lines of optimizers that allocated states before the kept history.
    states: States,
    /// Whether any stack is part of a backward pass or an optimizer.
    trains: bool,
}

impl Judge<'_> {
    /// The category from the stack alone, and from counts of sizes.
    fn by_stack(&self, block: &Block) -> Option<Decided> {
        if let Some(verdict) = self.parameters.verdict(block.index) {
            return Some(verdict);
        }
        if let Some(evidence) = self.caches.evidence(block.index) {
            return Some((Category::KvCache, evidence));
        }
        match block.origin {
            Origin::Timeline(category) => Some((category, Evidence::Timeline)),
            Origin::Moved(Some(category)) => Some((category, Evidence::ModuleApply)),
            Origin::Constructed(Category::Buffer) if block.allocation.freed == NEVER => {
                Some((Category::Buffer, Evidence::Constructor))
            }
            Origin::State => Some((Category::OptimizerState, Evidence::StateStack)),
            Origin::Replica(category) => Some((category, Evidence::Replica)),
            Origin::Communication => Some((Category::Communication, Evidence::CommunicationStack)),
            Origin::Workspace => Some((Category::Workspace, Evidence::WorkspaceStack)),
            Origin::LossGradient => Some((Category::Temporary, Evidence::LossGradient)),
            _ => None,
        }
    }

    /// The category, by the name of a function on the stack, of a block that outlives the period that allocated it.
    fn by_name(&self, block: &Block, place: Option<Period>) -> Option<Decided> {
        let stays = || place.is_none_or(|period| period.outlived_by(block.allocation.freed));
        match block.origin {
            Origin::Gathered => Some((Category::Parameter, Evidence::Gathered)),
            Origin::Named(category) if stays() => Some((category, Evidence::Named)),
            Origin::Cache if !self.trains && stays() => Some((Category::KvCache, Evidence::Named)),
            _ => None,
        }
    }

    /// The category of a block that replaces other blocks.
    fn by_ancestor(&self, block: &Block, decided: &[Decision]) -> Option<Decided> {
        let known = |&index: &u32| decided.get(index as usize).map_or(Category::Unknown, |decision| decision.category);
        let category = match self.replacements.replaced(block.index)? {
            Replaced::One(index) => known(&index),
            Replaced::OneOf(pool) => {
                let first = pool.first().map(known)?;
                if pool.iter().all(|index| known(index) == first) { first } else { Category::ModelState }
            }
            Replaced::Unclear => Category::ModelState,
        };
        Some(match category {
            Category::Parameter | Category::Buffer | Category::Gradient | Category::OptimizerState => {
                (category, Evidence::TakesPlace)
            }
            _ => (Category::ModelState, Evidence::TakesPlace),
        })
    }

    /// [`Category::ModelState`] for a block without other evidence that has the size of parameters and stays live.
    fn or_model_state(&self, block: &Block, place: Option<(usize, Period)>, verdict: Decided) -> Decided {
        let stays = || {
            let forward = place.and_then(|(number, _)| self.periods.next(Phase::Forward, number));
            forward.is_some_and(|(_, forward)| forward.outlived_by(block.allocation.freed))
        };
        match verdict.0 {
            Category::Unknown | Category::BeforeRecording if self.parameters.is_open(block.index) => {
                (Category::ModelState, Evidence::ParameterSize)
            }
            Category::Unknown if block.origin == Origin::ModuleBuilt && stays() => {
                (Category::ModelState, Evidence::ModuleConstructor)
            }
            _ => verdict,
        }
    }

    /// The category of a block by the times of its allocation and its free.
    fn by_lifetime(&self, block: &Block, number: usize, period: Period, memory: &mut Memory) -> Decided {
        if block.origin == Origin::Optimizer {
            return self.made_by_optimizer(block, number, period, memory);
        }
        match period.phase {
            Phase::Forward => self.made_in_forward(block, number, period, memory),
            Phase::Backward => self.made_in_backward(block, number, period, memory),
            // In a recording without phases, no phase ends after which a block would be freed.
            Phase::Other if self.periods.get(1).is_none() => UNDECIDED,
            _ if !period.outlived_by(block.allocation.freed) => GONE,
            Phase::Optimizer => self.made_in_optimizer(block, number),
            Phase::Data => self.made_in_data(block, number),
            Phase::Other => UNDECIDED,
        }
    }

    fn made_in_forward(&self, block: &Block, number: usize, period: Period, memory: &Memory) -> Decided {
        let Allocation { born, freed, .. } = block.allocation;
        let backward = self.periods.next(Phase::Backward, number);
        let Some((next, _)) = backward.filter(|(_, backward)| backward.begins_before(freed)) else {
            return self.never_reaches_backward(block, period, backward.is_some(), memory);
        };
        let outlives = self.periods.next(Phase::Backward, next).is_some_and(|(_, later)| later.begins_before(freed));
        match self.workspaces.has(block.stack, &block.allocation, outlives) {
            Some(true) => return (Category::Workspace, Evidence::WorkspaceSize),
            None => return UNDECIDED,
            Some(false) => {}
        }
        if outlives && !self.allocates_after(block.stack, period.end.max(born)) {
            // Allocated once and kept over steps: some kind of cache.
            UNDECIDED
        } else {
            (Category::Activation, Evidence::HeldForBackward)
        }
    }

    /// Whether a stack allocates again after an instant.
    fn allocates_after(&self, stack: StackId, instant: Instant) -> bool {
        let last_born = self.last_born.get_or_init(|| {
            let mut last_born = vec![0; self.track.snapshot.stacks.len()];
            for (_, allocation, stack) in self.track.allocations() {
                if let Some(last) = last_born.get_mut(stack.index()) {
                    *last = allocation.born;
                }
            }
            last_born
        });
        last_born.get(stack.index()).is_some_and(|&last| last > instant)
    }

    /// The category of a forward block that is freed before the next backward pass starts, or that no backward pass follows.
    fn never_reaches_backward(&self, block: &Block, period: Period, followed: bool, memory: &Memory) -> Decided {
        let Allocation { born, freed, .. } = block.allocation;
        if let Some(oom) = self.periods.oom_between(born, period.end)
            && freed > oom + 1
        {
            let only_temporary = memory.made_only(block.stack, Category::Temporary);
            let as_before = (Category::Temporary, Evidence::AsBefore);
            return if only_temporary { as_before } else { (Category::Activation, Evidence::ForwardCutShort) };
        }
        if !followed && self.forwards.keeps(born, freed) {
            match self.workspaces.has(block.stack, &block.allocation, false) {
                Some(true) => (Category::Workspace, Evidence::WorkspaceSize),
                None => UNDECIDED,
                Some(false) => (Category::Activation, Evidence::KeptByForward),
            }
        } else if followed || !period.outlived_by(freed) {
            GONE
        } else if self.workspaces.has(block.stack, &block.allocation, false) == Some(true) {
            (Category::Workspace, Evidence::WorkspaceSize)
        } else if memory.made_only(block.stack, Category::Activation) {
            (Category::Activation, Evidence::AsBefore)
        } else {
            UNDECIDED
        }
    }

    fn made_in_backward(&self, block: &Block, number: usize, period: Period, memory: &mut Memory) -> Decided {
        let Allocation { born, freed, requested, .. } = block.allocation;
        if self.roles.role(block.stack) == Role::Recompute {
            let end = memory.recomputation_end(self, born);
            return if freed <= end {
                GONE
            } else if self.workspaces.has(block.stack, &block.allocation, period.outlived_by(freed)) == Some(true) {
                (Category::Workspace, Evidence::WorkspaceSize)
            } else {
                (Category::Activation, Evidence::Recomputed)
            };
        }
        if !period.outlived_by(freed) {
            return GONE;
        }
        let mirrors = self.parameters.of_size(requested) > 0;
        let cut_short = self.periods.is_last(period) && self.periods.oom_between(born, period.end).is_some();
        if cut_short {
            return match memory.backward_before(number, requested) {
                Some(category @ (Category::Gradient | Category::Temporary)) => (category, Evidence::AsBackwardBefore),
                _ if mirrors => (Category::Gradient, Evidence::MirrorsInCutBackward),
                _ if workspace::is_workspace_size(requested) => UNDECIDED,
                _ => (Category::Temporary, Evidence::BackwardCutShort),
            };
        }
        if workspace::is_workspace_size(requested) {
            match self.workspaces.has_in_backward(number, &block.allocation, self.parameters.of_size(requested)) {
                Some(true) => (Category::Workspace, Evidence::WorkspaceSize),
                Some(false) if mirrors => (Category::Gradient, Evidence::MirrorsParameter),
                _ => UNDECIDED,
            }
        } else if mirrors {
            (Category::Gradient, Evidence::MirrorsParameter)
        } else {
            UNDECIDED
        }
    }

    fn made_by_optimizer(&self, block: &Block, number: usize, period: Period, memory: &Memory) -> Decided {
        let freed = block.allocation.freed;
        let reaches = match self.periods.next(Phase::Forward, number) {
            Some((_, forward)) => forward.begins_before(freed),
            None => period.outlived_by(freed),
        };
        if !reaches {
            GONE
        } else if self.periods.is_last(period) && memory.made(block.stack, Category::Temporary) {
            // The recording ends within the step, so blocks that are live may still be freed.
            (Category::Temporary, Evidence::AsBefore)
        } else if self.periods.oom_between(block.allocation.born, period.end).is_some() {
            UNDECIDED
        } else {
            (Category::OptimizerState, Evidence::OutlivesOptimizer)
        }
    }

    /// The category of a block that outlives an optimizer phase and was not allocated by a known optimizer.
    fn made_in_optimizer(&self, block: &Block, number: usize) -> Decided {
        let Allocation { freed, requested, .. } = block.allocation;
        let later = self.periods.next(Phase::Backward, number);
        let stays = later.is_some_and(|(_, backward)| backward.outlived_by(freed));
        if stays && block.origin != Origin::GradientTool && self.parameters.of_size(requested) > 0 {
            return (Category::OptimizerState, Evidence::MirrorsInOptimizer);
        }
        UNDECIDED
    }

    fn made_in_data(&self, block: &Block, number: usize) -> Decided {
        let Allocation { born, freed, .. } = block.allocation;
        let Some((first, forward)) = self.periods.next(Phase::Forward, number) else { return UNDECIDED };
        if !forward.begins_before(freed) {
            return GONE;
        }
        let span = History::entry_before(born).and_then(|entry| self.phases.span(entry));
        if self.roles.role(block.stack) == Role::Data || span.is_some_and(|span| span.recorded) {
            return (Category::Input, Evidence::ReachesForward);
        }
        // A batch is freed when forward receives the next one. A block that stays may be anything.
        let stays = self.periods.next(Phase::Forward, first).is_some_and(|(_, next)| next.begins_before(freed));
        if stays || block.origin == Origin::Function { UNDECIDED } else { (Category::Input, Evidence::ReachesForward) }
    }

    /// The category of a block from before the recording.
    fn baseline(&self, block: &Block) -> Decided {
        let Allocation { freed, requested, .. } = block.allocation;
        let end = History::entry_before(freed).filter(|_| freed <= self.track.history.entries());
        let by_zero_grad = end.is_some_and(|entry| {
            let stack = self.track.stack(entry);
            self.phases.frees_tell && self.roles.role(stack) == Role::ZeroGrad
        });
        let first_step = self.periods.from(Phase::Optimizer, 0);
        let outlives_step = first_step.is_some_and(|(_, step)| step.outlived_by(freed));
        match block.origin {
            Origin::Constructed(Category::Buffer) => (Category::Buffer, Evidence::Constructor),
            Origin::Optimizer if outlives_step => (Category::OptimizerState, Evidence::OutlivesOptimizer),
            Origin::Optimizer if freed == NEVER && self.states.has(block.stack) => {
                (Category::OptimizerState, Evidence::HeldByOptimizer)
            }
            _ if by_zero_grad && self.parameters.of_size(requested) > 0 => {
                (Category::Gradient, Evidence::DroppedByZeroGrad)
            }
            _ if freed == NEVER
                && workspace::is_distinct_size(requested)
                && self.parameters.of_size(requested) == 0 =>
            {
                (Category::Workspace, Evidence::WorkspaceSize)
            }
            _ if self.is_freed_by_first_backward(freed) => (Category::Activation, Evidence::FreedByBackward),
            _ if block.stack != StackId::EMPTY => self.older(block),
            _ if self.track.history.completeness.no_entries => (Category::Unknown, Evidence::NoHistory),
            _ => (Category::BeforeRecording, Evidence::BeforeRecording),
        }
    }

    /// The category, from its stack, of a block that is older than the kept history.
    fn older(&self, block: &Block) -> Decided {
        let freed = block.allocation.freed;
        let begins_in = self.periods.get(0).filter(|first| !first.outlived_by(freed)).map(|first| first.phase);
        let mirrors = self.parameters.of_size(block.allocation.requested) > 0;
        match self.roles.role(block.stack) {
            Role::Module if begins_in == Some(Phase::Forward) => GONE,
            Role::Module => (Category::Activation, Evidence::HeldSinceForward),
            Role::Backward if begins_in == Some(Phase::Backward) => GONE,
            Role::Backward if mirrors && freed == NEVER => (Category::Gradient, Evidence::OlderMirrors),
            _ if block.origin == Origin::ModuleBuilt && freed == NEVER => {
                (Category::ModelState, Evidence::HeldSinceConstructor)
            }
            _ => (Category::Unknown, Evidence::Older),
        }
    }
}

impl Judge<'_> {
    /// Whether a block from before the recording was allocated by the forward pass in which the recording starts.
    fn is_freed_by_first_backward(&self, freed: Instant) -> bool {
        let starts = self.periods.get(0).is_some_and(|first| matches!(first.phase, Phase::Forward));
        let backward = self.periods.from(Phase::Backward, 0).map(|(_, backward)| backward);
        starts && backward.is_some_and(|backward| backward.begins_before(freed) && !backward.outlived_by(freed))
    }
}
