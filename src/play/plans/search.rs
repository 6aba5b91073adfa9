//! Combinations of settings and changes, each played as a whole.

use super::moves::{Moves, checkpoint, fewer_pieces, sparser, trouble};
use super::repeat::Repeat;
use crate::allocator::{Placement, SizeRules};
use crate::model::{AllocatorSettings, SegmentType};
use crate::play::changes::HeldByCalls;
use crate::play::changes::{Change, Edited, Editor, Refusal};
use crate::play::{Outcome, Program, Setup, Testbed, play, possible_placements};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Plans with checkpointed calls that are kept of each set of other changes.
const EACH: usize = 2;

/// Functions that are checkpointed together with each other.
const TOGETHER: usize = 4;

/// Plans without several of the other changes beside which none with several are looked for.
const ENOUGH: usize = 2;

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every request is served on a device with this many bytes for the allocator.
    Device(u64),
    /// No more than this many bytes are allocated at once.
    Allocated(u64),
}

impl Goal {
    /// Its bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Device(bytes) | Self::Allocated(bytes) => bytes,
        }
    }
}

/// What a search is for, and what it may cost.
#[derive(Clone, Debug)]
pub(super) struct Sought {
    /// What is to be reached.
    pub goal: Goal,
    /// What follows the program where it ends before the recording does.
    pub repeat: Option<Repeat>,
    /// Steps that are played in all, about.
    pub steps: u64,
}

/// A program with changes, as far as there are any.
pub(super) struct Changed<'s> {
    pub program: Cow<'s, Program>,
    /// What is assumed, a sentence for each change.
    pub assumptions: Vec<String>,
    /// Why its figures may be far off.
    pub doubts: Vec<String>,
}

/// A combination that was played.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub changes: Vec<Change>,
    /// Which of [`Search::settings`].
    pub settings: usize,
    /// On the device where it fits, else on one without end.
    pub outcome: Outcome,
    pub fits: bool,
    /// Whether it fits, but would not with one segment more than is played: how segments come to lie is what a prediction
    /// knows least of.
    pub is_tight: bool,
    /// Whether its figures may be far off: see [`Edited::doubts`].
    pub is_doubtful: bool,
}

impl Tried {
    /// Bytes that it is short of, or has at its most.
    fn measure(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Device(_) => self.outcome.max_reserved,
            Goal::Allocated(_) => self.outcome.max_allocated,
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What fits; no plan has all changes of another.
    pub plans: Vec<Tried>,
    /// What has least at its most, where nothing fits.
    pub nearest: Option<Tried>,
    /// Changes that cannot be made by themselves.
    pub refused: Vec<Refusal>,
}

/// Plays combinations.
pub(super) struct Search<'s, 'd, 'a> {
    testbed: &'s Testbed,
    editor: &'s Editor<'d, 'a>,
    goal: Goal,
    repeat: Option<Repeat>,
    /// The recorded ones first.
    pub settings: Vec<AllocatorSettings>,
    left: AtomicU64,
    tried: AtomicU64,
}

impl<'s, 'd, 'a> Search<'s, 'd, 'a> {
    pub fn new(
        testbed: &'s Testbed,
        editor: &'s Editor<'d, 'a>,
        sought: Sought,
        settings: Vec<AllocatorSettings>,
    ) -> Self {
        let Sought { goal, repeat, steps } = sought;
        Self { testbed, editor, goal, repeat, settings, left: AtomicU64::new(steps), tried: AtomicU64::new(0) }
    }

    /// What is to be reached.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Combinations played so far.
    pub fn tried(&self) -> usize {
        usize::try_from(self.tried.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Whether the budget was spent.
    pub fn is_cut(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// A program with changes.
    pub fn program(&self, changes: &[Change]) -> Result<Changed<'s>, Refusal> {
        let recorded = &self.testbed.program;
        if changes.is_empty() {
            let program = match &self.repeat {
                Some(repeat) => Cow::Owned(repeat.apply_to_recorded(recorded)),
                None => Cow::Borrowed(recorded),
            };
            return Ok(Changed { program, assumptions: Vec::new(), doubts: Vec::new() });
        }
        let changed = self.editor.apply(recorded, changes)?;
        let Edited { program, assumptions, doubts, .. } = match &self.repeat {
            Some(repeat) => repeat.apply(changed),
            None => changed,
        };
        Ok(Changed { program: Cow::Owned(program), assumptions, doubts })
    }

    /// Plays some of the settings, one after the other, until one fits without a retry; the best of them. `None` where there
    /// are no settings.
    pub fn play(&self, changes: &[Change], settings: Range<usize>) -> Result<Option<Tried>, Refusal> {
        let Changed { program, doubts, .. } = self.program(changes)?;
        let mut best: Option<Tried> = None;
        for number in settings {
            self.tried.fetch_add(1, Ordering::Relaxed);
            let settings = &self.settings[number];
            let (outcome, fits) = self.outcome(&program, settings, self.goal);
            let is_predicted = self.repeat.is_some() || !changes.is_empty();
            let is_tight = fits && is_predicted && !self.leaves_room(&program, settings);
            let is_doubtful = !doubts.is_empty();
            let tried = Tried { changes: changes.to_vec(), settings: number, outcome, fits, is_tight, is_doubtful };
            let rank = |tried: &Tried| {
                let most = if tried.fits { tried.outcome.retries } else { tried.measure(self.goal) };
                (!tried.fits, tried.is_tight, most)
            };
            let is_enough = tried.fits && !tried.is_tight && tried.outcome.retries == 0;
            if best.as_ref().is_none_or(|best| rank(&tried) < rank(best)) {
                best = Some(tried);
            }
            if is_enough {
                break;
            }
        }
        Ok(best)
    }

    /// Whether a changed program would also fit with one segment more than is played.
    fn leaves_room(&self, program: &Program, settings: &AllocatorSettings) -> bool {
        let Goal::Device(bytes) = self.goal else { return true };
        let less = bytes.saturating_sub(SizeRules::device(settings).page_size(SegmentType::Large));
        self.outcome(program, settings, Goal::Device(less)).1
    }

    /// How a program goes, and whether that reaches a goal.
    fn outcome(&self, program: &Program, settings: &AllocatorSettings, goal: Goal) -> (Outcome, bool) {
        let placements = possible_placements(self.testbed.placement, settings);
        let on = |capacity: Option<u64>, placement: Placement| {
            let setup = Setup { placement, ..Setup::new(settings, capacity, self.testbed.context) };
            self.on(program, &setup)
        };
        let endless = on(None, placements[0]);
        let bytes = match goal {
            Goal::Allocated(bytes) => {
                let fits = endless.max_allocated <= bytes;
                return (endless, fits);
            }
            Goal::Device(bytes) => bytes,
        };
        let mut worst: Option<Outcome> = None;
        // It fits wherever the driver may put segments.
        for &placement in placements {
            let outcome = on(Some(bytes), placement);
            if outcome.failure().is_some() {
                return (endless, false);
            }
            if worst.as_ref().is_none_or(|worst| outcome.retries > worst.retries) {
                worst = Some(outcome);
            }
        }
        (worst.unwrap_or(endless), true)
    }

    fn on(&self, program: &Program, setup: &Setup) -> Outcome {
        let spent = program.len() as u64 + 1;
        // Where the budget is spent it stays so.
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(spent)));
        play(program, setup)
    }

    /// Plays what could be changed under the first of the settings, the least trouble first, until there are so many plans.
    pub fn run(&self, moves: &Moves, most: usize, settings: usize) -> Found {
        let settings = 0..settings;
        let mut found = Found::default();
        for set in moves.sets() {
            let roomy = found.roomy().count();
            let is_enough = roomy >= most || (set.len() > 1 && roomy >= ENOUGH);
            if is_enough || self.is_cut() {
                break;
            }
            let is_refused = |refusal: &Refusal| set.contains(&refusal.change);
            if found.has_part_of(&set) || found.refused.iter().any(is_refused) {
                continue;
            }
            match self.play(&set, settings.clone()) {
                Ok(tried) => found.add(tried, self.goal),
                Err(refusal) => {
                    // What does not go together may go alone.
                    found.refused.extend((set.len() == 1).then_some(refusal));
                    continue;
                }
            }
            if !found.has_part_of(&set) {
                self.checkpointing(&set, moves, settings.clone(), &mut found);
            }
        }
        found.plans.sort_by_key(|plan| {
            let sum = u32::from(plan.settings > 0) + plan.changes.iter().map(trouble).sum::<u32>();
            (plan.is_tight, plan.is_doubtful, sum, moves.time(&plan.changes).unwrap_or(i64::MAX))
        });
        found.plans.truncate(most);
        found.plans = found.plans.into_par_iter().map(|plan| self.fewest_pieces(plan, settings.clone())).collect();
        found
    }

    /// A set of changes and checkpointed functions: each alone, as few of its calls as will do, else two together.
    fn checkpointing(&self, set: &[Change], moves: &Moves, settings: Range<usize>, found: &mut Found) {
        let every_call = |function: &HeldByCalls| with(set, &[checkpoint(function, 1)]);
        let is_open = |function: &&HeldByCalls| !found.has_checkpointed(&function.label, set);
        let functions: Vec<&HeldByCalls> = moves.functions.iter().filter(is_open).collect();
        let tried: Vec<Result<Option<Tried>, Refusal>> =
            functions.par_iter().map(|function| self.play(&every_call(function), settings.clone())).collect();
        let pairs = pairs(&functions);
        let mut fitting = Vec::new();
        for (function, tried) in functions.into_iter().zip(tried) {
            match tried {
                Ok(Some(tried)) if tried.fits => fitting.push(self.sparsest(function, set, settings.clone(), tried)),
                Ok(tried) => found.add(tried, self.goal),
                // With others it may be these that are refused.
                Err(refusal) => found.refused.extend(set.is_empty().then_some(refusal)),
            }
        }
        if fitting.is_empty() {
            let both = |pair: &[&HeldByCalls; 2]| with(set, &pair.map(|function| checkpoint(function, 1)));
            let tried: Vec<_> = pairs.par_iter().map(|pair| self.play(&both(pair), settings.clone())).collect();
            for tried in tried.into_iter().flatten().flatten() {
                if tried.fits {
                    fitting.push(tried);
                } else {
                    found.keep_nearer(Some(tried), self.goal);
                }
            }
        }
        fitting.sort_by_key(|tried| (tried.is_tight, moves.time(&tried.changes), tried.outcome.retries));
        fitting.into_iter().take(EACH).for_each(|tried| found.add(Some(tried), self.goal));
    }

    /// The fewest calls of a function that do.
    fn sparsest(&self, function: &HeldByCalls, set: &[Change], settings: Range<usize>, every: Tried) -> Tried {
        let mut best = every;
        for every in sparser(function) {
            if self.is_cut() {
                break;
            }
            match self.play(&with(set, &[checkpoint(function, every)]), settings.clone()) {
                Ok(Some(tried)) if tried.fits && tried.is_tight <= best.is_tight => best = tried,
                _ => break,
            }
        }
        best
    }

    /// A plan with the loss in as few pieces as will do.
    fn fewest_pieces(&self, plan: Tried, settings: Range<usize>) -> Tried {
        let Some(place) = plan.changes.iter().position(|change| matches!(change, Change::ChunkLoss { .. })) else {
            return plan;
        };
        let Change::ChunkLoss { pieces } = plan.changes[place] else { return plan };
        for pieces in fewer_pieces(pieces) {
            let mut changes = plan.changes.clone();
            changes[place] = Change::ChunkLoss { pieces };
            match self.play(&changes, settings.clone()) {
                Ok(Some(tried)) if tried.fits && tried.is_tight <= plan.is_tight => return tried,
                _ => {}
            }
        }
        plan
    }
}

impl Found {
    fn roomy(&self) -> impl Iterator<Item = &Tried> {
        self.plans.iter().filter(|plan| !plan.is_tight && !plan.is_doubtful)
    }

    /// Whether a plan that leaves room has no changes but some of these.
    fn has_part_of(&self, set: &[Change]) -> bool {
        self.roomy().any(|plan| plan.changes.iter().all(|change| set.contains(change)))
    }

    /// Whether a plan that leaves room has no changes but checkpointed calls of a function and some of these.
    fn has_checkpointed(&self, label: &str, set: &[Change]) -> bool {
        let is_it = |change: &Change| matches!(change, Change::Checkpoint { site, .. } if site == label);
        self.roomy().any(|plan| plan.changes.iter().all(|change| is_it(change) || set.contains(change)))
    }

    /// Takes a plan that fits, or takes note of what does not.
    pub fn add(&mut self, tried: Option<Tried>, goal: Goal) {
        match tried {
            Some(tried) if tried.fits => {
                self.plans.push(tried);
                self.nearest = None;
            }
            tried => self.keep_nearer(tried, goal),
        }
    }

    /// Takes note of what does not fit, if nothing does and it comes nearer than all before.
    fn keep_nearer(&mut self, tried: Option<Tried>, goal: Goal) {
        let Some(tried) = tried.filter(|_| self.plans.is_empty()) else { return };
        if self.nearest.as_ref().is_none_or(|nearest| tried.measure(goal) < nearest.measure(goal)) {
            self.nearest = Some(tried);
        }
    }
}

/// Pairs of functions that are checkpointed together, of those that hold most.
fn pairs<'m>(functions: &[&'m HeldByCalls]) -> Vec<[&'m HeldByCalls; 2]> {
    let most = &functions[..functions.len().min(TOGETHER)];
    let behind = |index: usize| most[index + 1..].iter();
    most.iter().enumerate().flat_map(|(index, one)| behind(index).map(move |other| [*one, *other])).collect()
}

/// A set of changes and more.
fn with(set: &[Change], more: &[Change]) -> Vec<Change> {
    set.iter().chain(more).cloned().collect()
}
