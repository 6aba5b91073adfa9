//! Applies changes to the requests of a program: changes that people make so that it needs less memory.
//!
//! A [`Change`] names a change. An [`Editor`] knows what a recording shows about its program, and converts a [`Program`] into
//! the changed one, or says why it cannot. Whether a change helps is known only when the result is simulated: see
//! [`crate::simulation::play`].
//!
//! # Searching
//! An [`Editor`] is created once per device; it computes its data when a change first needs it, and stores it. A change to a
//! program of `n` steps takes a few passes over them, and so does a simulation, so hundreds of combinations can be tried in a
//! second for a recording of some thousand entries:
//!
//! ```text
//! let editor = Editor::new(device);
//! let program = Program::of(device.track)?;
//! for changes in combinations {
//!     let outcome = play(&editor.apply(&program, &changes)?.program, &setup);
//! }
//! ```
//!
//! Functions worth checkpointing come from [`crate::analysis::checkpoint::Candidate`]: its label is the site of the change.
//! Several changes take effect in the order of [`Change`]'s variants, regardless of the order in which they are given. A
//! changed program is at most predicted, never exact: its behavior is assumed, and [`Edited::assumptions`] lists the
//! assumptions.

mod accumulate;
mod autocast;
mod change;
mod checkpoint;
pub(crate) mod checkpointable;
mod chosen;
mod chunks;
pub(crate) mod functions;
mod inference;
mod lifetimes;
mod offload;
mod optimizer;
pub(crate) mod passes;
pub(crate) mod recompute;
mod release;
mod rewrite;
mod shard;
mod shard_parameters;
mod trained;

pub use change::Change;
pub(crate) use chosen::{Choice, Chosen, Release};
pub use chunks::LossFigures;
pub(crate) use chunks::{LogitsSizes, is_log_softmax, is_plain_loss};
pub use functions::{Checkpointed, CodeChange, HeldByCalls, chunked_loss};
pub(crate) use lifetimes::Lifetimes;
pub use optimizer::Optimizer;
pub use recompute::{Gap, Recompute};

use crate::facts::device::Device;
use crate::facts::training::{Calls, Category, Phase};
use crate::model::{FrameId, HOST_DEVICE};
use crate::simulation::Program;

use super::{Step, StepKind};
use crate::replay::{Allocation, History, Instant, Metric};
use checkpointable::Checkpointable;
pub(in crate::simulation) use rewrite::AllocationSet;
use rewrite::{Rewrite, is_free};
use shard::OtherGradients;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use trained::{MOST_STATES, Trained};

#[derive(Clone, Debug)]
pub struct Edited {
    pub program: Program,
    /// The recorded allocation that each of its allocations represents, as an index into
    /// [`crate::replay::History::allocations`]; `None` if no recorded allocation matches.
    pub origins: Vec<Option<u32>>,
    pub assumptions: Vec<String>,
    /// Why figures may be far off: a change depends on something that the recording does not show. Empty if nothing is known
    /// to be missing.
    pub doubts: Vec<String>,
    /// Allocations of the program that changes free elsewhere than recorded.
    pub(in crate::simulation) moved: AllocationSet,
}

impl Edited {
    pub(in crate::simulation) fn recorded(program: Program) -> Self {
        let origins = (0..program.allocations as u32).map(Some).collect();
        Self { program, origins, assumptions: Vec::new(), doubts: Vec::new(), moved: AllocationSet::default() }
    }

    /// The program with every moved free placed after the next request: a recording does not show whether Python
    /// releases a value right before or right after a request.
    pub(super) fn with_late_frees(&self) -> Program {
        let program = self.program.clone();
        let mut late = Vec::new();
        let mut steps = Vec::with_capacity(program.steps.len());
        for &step in program.steps.iter() {
            match step.kind {
                StepKind::Alloc => {
                    steps.push(step);
                    steps.append(&mut late);
                }
                kind if is_free(kind) && self.moved.contains(&step.allocation) => late.push(step),
                _ => steps.push(step),
            }
        }
        steps.append(&mut late);
        Program { steps: Arc::new(steps), ..program }.with_its_loop()
    }
}

/// The assumption of a change, and why its figures may be far off.
#[derive(Clone, Debug, Default)]
struct Assumed {
    assumption: String,
    doubt: Option<String>,
}

impl From<String> for Assumed {
    fn from(assumption: String) -> Self {
        Self { assumption, doubt: None }
    }
}

impl Edited {
    /// The recorded allocation that an allocation represents.
    pub(crate) fn origin(&self, allocation: u32) -> Option<u32> {
        self.origins.get(allocation as usize).copied().flatten()
    }

    /// The recorded instant right after a step; `None` for a step that was not recorded at this place, such as one of a
    /// call that runs again.
    pub(crate) fn recorded_instant(&self, step: &Step, history: &History) -> Option<Instant> {
        let instant = step.entry + 1;
        let is_there = |origin: u32| history.allocations.get(origin as usize);
        match step.kind {
            StepKind::Alloc => self.origin(step.allocation).and_then(is_there).is_some_and(|it| it.born == instant),
            kind if is_free(kind) => {
                self.origin(step.allocation).and_then(is_there).is_some_and(|it| it.freed == instant)
            }
            _ => true,
        }
        .then_some(instant)
    }
}

/// Why a program cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub change: Change,
    pub because: String,
}

#[derive(Debug)]
pub struct Editor<'d, 'a> {
    device: &'d Device<'a>,
    choice: OnceLock<Choice>,
    trained: OnceLock<Result<Trained, String>>,
    releases: OnceLock<Result<Vec<Release>, &'static str>>,
}

impl<'d, 'a> Editor<'d, 'a> {
    /// Creates an editor. It computes results only when they are needed.
    pub fn new(device: &'d Device<'a>) -> Self {
        Self { device, choice: OnceLock::new(), trained: OnceLock::new(), releases: OnceLock::new() }
    }

    /// A program with changes. The program is that of the device, or one with the same steps and other sizes.
    ///
    /// # Errors
    /// The first change that cannot be applied, with the reason.
    pub fn apply(&self, program: &Program, changes: &[Change]) -> Result<Edited, Refusal> {
        self.apply_with_lives(program, changes, &Lifetimes::default())
    }

    /// A program with changes, and then with changes to single blocks: blocks that a change duplicates stay as they are.
    pub(crate) fn apply_with_lives(
        &self,
        program: &Program,
        changes: &[Change],
        lives: &Lifetimes,
    ) -> Result<Edited, Refusal> {
        let mut changes = changes.to_vec();
        changes.sort();
        changes.dedup();
        if let Some(first) = changes.first()
            && let Some(because) = self.obstacle(program, &changes)
        {
            return Err(Refusal { change: first.clone(), because: because.to_owned() });
        }
        let mut rewrite = Rewrite::of(program);
        let (mut assumptions, mut doubts) = (Vec::new(), Vec::new());
        // Checkpointed calls may be nested: all of them are resolved together.
        let is_checkpoint = |change: &Change| matches!(change, Change::Checkpoint { .. });
        let (checkpoints, others): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(is_checkpoint);
        let whole = others.iter().find(|change| {
            matches!(change, Change::Inference | Change::OffloadActivations | Change::ShardParameters { .. })
        });
        if let (Some(first), Some(other)) = (checkpoints.first(), whole) {
            return Err(Refusal {
                change: first.clone(),
                because: format!("{other} cannot be combined with this change"),
            });
        }
        if !checkpoints.is_empty() {
            let pieces = others.iter().any(|change| matches!(change, Change::ChunkLoss { .. }));
            doubts.extend(pieces.then(|| {
                "the order in which chunks of the loss and checkpointed calls are recomputed is assumed".to_owned()
            }));
            let (assumed, doubted) = self.checkpoint(&mut rewrite, &checkpoints)?;
            assumptions.extend(assumed);
            doubts.extend(doubted);
        }
        for (index, change) in others.iter().enumerate() {
            let twice = others[..index].iter().find(|other| is_other_of(other, change));
            let assumed = match twice {
                Some(other) => Err(format!("{other} cannot be combined with this change")),
                None => self.change(&mut rewrite, change),
            };
            let assumed = assumed.map_err(|because| Refusal { change: change.clone(), because })?;
            assumptions.push(assumed.assumption);
            doubts.extend(assumed.doubt);
        }
        if !lives.is_empty() {
            let is_changed_twice = lives.changed().any(|allocation| rewrite.is_moved(allocation));
            doubts.extend(lives.doubt.map(str::to_owned));
            doubts.extend(is_changed_twice.then(|| "some blocks are affected by several of these changes".to_owned()));
            lifetimes::apply(&mut rewrite, self.device, lives);
        }
        let (program, origins, moved) = rewrite.finish();
        Ok(Edited { program, origins, assumptions, doubts, moved })
    }

    /// The functions that [`Change::Checkpoint`] can name and that a forward pass calls more than once; none if no training
    /// step is known.
    pub fn sites(&self) -> Vec<&str> {
        self.choice().repeated().collect()
    }

    /// Figures of the losses that [`Change::ChunkLoss`] would compute in chunks.
    ///
    /// # Errors
    /// What is unknown about them, in words.
    pub fn losses(&self, program: &Program) -> Result<LossFigures, String> {
        LossFigures::of(program, self.device)
    }

    /// Why a program cannot be changed at all.
    fn obstacle(&self, program: &Program, changes: &[Change]) -> Option<&'static str> {
        let is_checkpoint = |change: &Change| matches!(change, Change::Checkpoint { .. });
        // If the pass that contains the peak finishes, its frees are known, even if something fails elsewhere.
        let peak = self.device.history().maxima[Metric::Allocated as usize].instant;
        let is_finished = || Checkpointable::new(self.device, self.choice()).obstacle(peak).is_none();
        if self.device.id() <= HOST_DEVICE {
            Some("memviz can simulate changes only for GPU memory")
        } else if !(program.refusals.is_empty() || changes.iter().all(is_checkpoint) && is_finished()) {
            Some("the recorded program ran out of memory, so what would have followed is unknown")
        } else {
            None
        }
    }

    fn change(&self, rewrite: &mut Rewrite, change: &Change) -> Result<Assumed, String> {
        let history = self.device.history();
        match *change {
            Change::Checkpoint { .. } => Err("checkpointed calls are resolved together".to_owned()),
            Change::ShardParameters { ranks } => {
                shard_parameters::apply(rewrite, self.device, self.with_states()?, self.trained_choice()?, ranks)
            }
            Change::ShardGradients { ranks } => Ok(Assumed {
                assumption: shard::apply(rewrite, self.with_states()?, ranks, OtherGradients::Gone),
                doubt: Some("the buckets in which gradients are reduced are not simulated".to_owned()),
            }),
            Change::ShardOptimizer { ranks, keeps_gradients } => {
                let others = if keeps_gradients { OtherGradients::Stay } else { OtherGradients::AsRecorded };
                Ok(shard::apply(rewrite, self.with_states()?, ranks, others).into())
            }
            Change::Optimizer(optimizer) => optimizer::apply(rewrite, self.trained()?, history, optimizer),
            Change::OffloadOptimizer => Ok(optimizer::offload(rewrite, self.with_states()?).into()),
            Change::OffloadActivations => Ok(offload::activations(rewrite, self.device, self.releases()?)),
            Change::ChunkLoss { pieces } => chunks::apply(rewrite, self.device, u64::from(pieces)),
            Change::Accumulate { passes } => {
                accumulate::apply(rewrite, self.device, self.trained()?, passes).map(Assumed::from)
            }
            Change::Inference => Ok(inference::apply(rewrite, self.device, self.releases()?)),
        }
    }

    /// The assumptions, and why figures may be far off.
    fn checkpoint(&self, rewrite: &mut Rewrite, changes: &[Change]) -> Result<(Vec<String>, Vec<String>), Refusal> {
        let (mut functions, mut assumptions, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            let Change::Checkpoint { site, every } = change else { continue };
            let refused = |because: String| Refusal { change: change.clone(), because };
            let choice = self.choice();
            if choice.passes.entries.is_empty() {
                return Err(refused("no forward pass followed by a backward pass was found".to_owned()));
            }
            if choice.passes.is_open {
                let because = "no backward pass follows these forward passes, so what it would recompute is unknown";
                assumptions.push(because.to_owned());
            }
            match choice.find(site)[..] {
                [(function, label)] => {
                    functions.push((*function, *every));
                    doubts.extend(choice.is_shared(*function, self.device).then(|| {
                        format!("{label} is part of many modules, so what their callers keep alive is unknown")
                    }));
                    let which =
                        if *every == 1 { "every call".to_owned() } else { format!("one in every {every} calls") };
                    assumptions.push(format!("{which} to {label} runs under non-reentrant torch.utils.checkpoint"));
                }
                [] => {
                    let known: Vec<&str> = choice.repeated().collect();
                    let known = match known.as_slice() {
                        [] => "memviz found none that can be checkpointed".to_owned(),
                        known => format!("its functions are {}", known.join(", ")),
                    };
                    return Err(refused(format!("no function of the model matches {site:?}; {known}")));
                }
                ref several => {
                    let known: Vec<&str> = several.iter().map(|(_, label)| label.as_str()).collect();
                    return Err(refused(format!("several functions have this in their names: {}", known.join(", "))));
                }
            }
        }
        if let Some(first) = changes.first() {
            let all = self.choice().recompute(self.device, &functions);
            let chosen = rewrite.program.until.map_or_else(|| all.clone(), |until| all.until(until));
            if chosen.calls.is_empty() {
                let because = "its calls keep nothing for backward".to_owned();
                return Err(Refusal { change: first.clone(), because });
            }
            checkpoint::apply(rewrite, &chosen, self.device.history());
            doubts.extend(chosen.unevenness().filter(|_| functions.len() == 1).map(str::to_owned));
            doubts.extend(chosen.is_nested.then(|| {
                "checkpointed calls are nested: backward recomputes the outer call and frees some memory a second time, which is not simulated".to_owned()
            }));
        }
        Ok((assumptions, doubts))
    }

    pub(crate) fn choice(&self) -> &Choice {
        self.choice.get_or_init(|| Choice::of(self.device))
    }

    /// A program with checkpointed calls; `None` if none of them keeps anything for backward. If the program ends at an
    /// instant, only the calls before it are checkpointed.
    pub(crate) fn checkpoint_calls(&self, program: &Program, chosen: &Chosen) -> Option<Edited> {
        let before = program.until.map(|until| chosen.until(until));
        let chosen = before.as_ref().unwrap_or(chosen);
        if chosen.calls.is_empty() {
            return None;
        }
        let mut rewrite = Rewrite::of(program);
        checkpoint::apply(&mut rewrite, chosen, self.device.history());
        let (program, origins, moved) = rewrite.finish();
        Some(Edited { program, origins, assumptions: Vec::new(), doubts: Vec::new(), moved })
    }

    /// When the program would release some blocks if it had allocated them under `no_grad`: blocks that functions
    /// allocated in passes without a backward pass. The blocks are sorted by index.
    pub(crate) fn releases_without_backward(&self, passes: Vec<Range<u32>>, blocks: &[u32]) -> Vec<(u32, Instant)> {
        let device = self.device;
        let calls = Calls::of(device.track, device.phases(), device.sites(), device.roles());
        self.releases_in(calls, passes, blocks)
    }

    /// The same for a program without modules, whose model is these functions, given by their frames.
    pub(crate) fn releases_of_functions(
        &self,
        functions: &HashSet<FrameId>,
        passes: Vec<Range<u32>>,
        blocks: &[u32],
    ) -> Vec<(u32, Instant)> {
        let device = self.device;
        let calls = Calls::of_functions(device.track, device.phases(), device.sites(), device.roles(), functions);
        self.releases_in(calls, passes, blocks)
    }

    fn releases_in(&self, calls: Calls, passes: Vec<Range<u32>>, blocks: &[u32]) -> Vec<(u32, Instant)> {
        let choice = Choice::around(self.device, calls, passes);
        let releases = choice.releases(self.device, blocks).into_iter();
        releases.map(|release| (release.allocation, release.released)).collect()
    }

    /// When the program could release each tensor that forward keeps for backward.
    fn releases(&self) -> Result<&[Release], &'static str> {
        let releases = || {
            let choice = self.choice();
            if choice.passes.entries.is_empty() {
                return Err("no forward pass followed by a backward pass was found");
            }
            if choice.passes.is_open {
                let has_backward = self.device.phases().spans.iter().any(|span| span.phase == Phase::Backward);
                return Err(if has_backward {
                    "no backward pass follows the last forward pass, so it is unknown when its saved tensors would be needed"
                } else {
                    "no backward pass follows the forward passes, so it is unknown when the saved tensors would be needed"
                });
            }
            if self.device.history().completeness.has_baseline {
                return Err("the recording starts late, so whether backward needs the earlier tensors is unknown");
            }
            let (history, phases, categories) = (self.device.history(), self.device.phases(), self.device.categories());
            let is_kept = |&index: &u32| {
                let Allocation { born, freed, .. } = history.allocations[index as usize];
                categories.get(index as usize).category == Category::Activation
                    && phases.at(born) == Phase::Forward
                    && phases.at(freed) == Phase::Backward
            };
            let kept: Vec<u32> = (0..history.allocations.len() as u32).filter(is_kept).collect();
            Ok(choice.releases(self.device, &kept))
        };
        self.releases.get_or_init(releases).as_deref().map_err(|because| *because)
    }

    /// The functions of forward passes that are followed by a backward pass.
    fn trained_choice(&self) -> Result<&Choice, String> {
        let choice = self.choice();
        if choice.passes.is_open || choice.passes.entries.is_empty() {
            return Err("no forward pass followed by a backward pass was found".to_owned());
        }
        Ok(choice)
    }

    /// Whether the optimizer may be Adam: each parameter has two states, or how many it has is unknown.
    pub(crate) fn may_use_adam(&self) -> bool {
        self.trained().map_or(true, |trained| trained.per_parameter == Optimizer::AdamW.per_parameter())
    }

    fn trained(&self) -> Result<&Trained, String> {
        self.trained.get_or_init(|| Trained::of(self.device)).as_ref().map_err(Clone::clone)
    }

    fn with_states(&self) -> Result<&Trained, String> {
        let trained = self.trained()?;
        match trained.per_parameter {
            0 => Err("no optimizer state was found".to_owned()),
            1..=MOST_STATES => Ok(trained),
            _ => Err(trained.too_many()),
        }
    }
}

/// Whether two changes are mutually exclusive, such as two optimizers.
fn is_other_of(one: &Change, other: &Change) -> bool {
    use Change::{
        Accumulate, ChunkLoss, Inference, OffloadActivations, OffloadOptimizer, Optimizer, ShardGradients,
        ShardOptimizer, ShardParameters,
    };
    matches!(
        (one, other),
        (Inference | ShardParameters { .. }, _)
            | (_, Inference | ShardParameters { .. })
            | (OffloadActivations | ChunkLoss { .. }, ChunkLoss { .. })
            | (Accumulate { .. }, Accumulate { .. })
            | (Optimizer(_), Optimizer(_) | OffloadOptimizer)
            | (OffloadOptimizer, Optimizer(_))
            | (ShardGradients { .. } | ShardOptimizer { .. }, ShardGradients { .. } | ShardOptimizer { .. })
    )
}
