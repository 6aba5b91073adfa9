//! Searches combinations of settings and changes, and simulates each one as a whole.

use super::moves::{CHECKPOINT, Moves, checkpoint, fewer_pieces, sparser, trouble_of};
use super::repeat::Repeat;
use super::sizes::Sizes;
use crate::allocator::{Placement, SizeRules};
use crate::model::{AllocatorSettings, SegmentType};
use crate::parallel;
use crate::simulation::changes::HeldByCalls;
use crate::simulation::changes::{Change, Edited, Editor, Lifetimes, Refusal};
use crate::simulation::{Outcome, Program, Setup, Simulator, simulate};
use crate::sorting::SortRows;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const MOST_PLANS: usize = 5;

/// Plans with checkpointed calls to keep for each set of other changes.
const EACH: usize = 2;

/// Functions that are checkpointed together with each other.
const TOGETHER: usize = 4;

/// With this many plans that have at most one of the other changes, the search does not combine several.
const ENOUGH: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every request is served on a device with this many bytes for the allocator.
    Device(u64),
    /// At most this many bytes are allocated at once.
    Allocated(u64),
}

impl Goal {
    pub fn bytes(self) -> u64 {
        match self {
            Self::Device(bytes) | Self::Allocated(bytes) => bytes,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Sought {
    pub goal: Goal,
    /// The step to repeat after the program, if it ends before the recording does.
    pub repeat: Option<Repeat>,
    /// The sizes of its requests, if they differ from those of the recording.
    pub sizes: Option<Sizes>,
    pub steps: u64,
    /// Changes to single blocks that every combination includes.
    pub lives: Lifetimes,
    /// If set, only the easiest plan is sought, and only if its difficulty is below this: see [`trouble_of`].
    pub below: Option<u32>,
}

pub(super) struct Changed<'s> {
    pub program: Cow<'s, Program>,
    pub assumptions: Vec<String>,
    /// Why its figures may be far off.
    pub doubts: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub changes: Vec<Change>,
    /// Which of [`Search::settings`].
    pub settings: usize,
    /// The result on the device if it fits, otherwise on an unlimited one.
    pub outcome: Outcome,
    pub fits: bool,
    /// Whether it fits, but would not with one more segment than simulated: the placement of segments is the least
    /// certain part of a prediction.
    pub is_tight: bool,
    /// Whether its figures may be far off: see [`Edited::doubts`].
    pub is_doubtful: bool,
}

impl Tried {
    /// Its difficulty: other settings are a line to export.
    fn trouble(&self) -> u32 {
        trouble_of(self.settings > 0, &self.changes)
    }

    pub fn is_same_combination(&self, other: &Self) -> bool {
        self.settings == other.settings && self.changes == other.changes
    }

    /// Bytes that it lacks on the device, or its maximum of allocated bytes.
    fn measure(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Device(_) => self.outcome.max_reserved,
            Goal::Allocated(_) => self.outcome.max_allocated,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Found {
    /// Plans that fit; no plan contains all changes of another one.
    pub plans: Vec<Tried>,
    pub nearest: Option<Tried>,
    /// Changes that cannot be simulated on their own.
    pub refused: Vec<Refusal>,
}

pub(super) struct Search<'s, 'd, 'a> {
    simulator: &'s Simulator,
    editor: &'s Editor<'d, 'a>,
    goal: Goal,
    repeat: Option<Repeat>,
    sizes: Option<Sizes>,
    lives: Lifetimes,
    below: Option<u32>,
    /// The recorded ones first.
    pub settings: &'s [AllocatorSettings],
    left: AtomicU64,
    tried: AtomicU64,
}

impl<'s, 'd, 'a> Search<'s, 'd, 'a> {
    pub fn new(
        simulator: &'s Simulator,
        editor: &'s Editor<'d, 'a>,
        sought: Sought,
        settings: &'s [AllocatorSettings],
    ) -> Self {
        let Sought { goal, repeat, sizes, steps, lives, below } = sought;
        let (left, tried) = (AtomicU64::new(steps), AtomicU64::new(0));
        Self { simulator, editor, goal, repeat, sizes, lives, below, settings, left, tried }
    }

    /// Settings alone, or else changes to the program, with what is known before.
    pub fn settings_or_changes(&self, moves: &Moves, known: Found) -> Found {
        let by_settings = self.simulate(&[], 1..self.settings.len()).ok().flatten();
        match by_settings {
            Some(tried) if tried.fits && !tried.is_tight => Found { plans: vec![tried], ..Found::default() },
            by_settings => {
                let usual = self.settings.iter().skip(1).take_while(|settings| settings.expandable_segments).count();
                let mut found = self.run(moves, MOST_PLANS - 1, 1 + usual.min(1), known);
                found.add(by_settings, self.goal());
                found
            }
        }
    }

    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Whether every combination includes changes to single blocks.
    pub fn changes_blocks(&self) -> bool {
        !self.lives.is_empty()
    }

    pub fn tried(&self) -> usize {
        usize::try_from(self.tried.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub fn is_cut(&self) -> bool {
        self.left() == 0
    }

    pub fn program(&self, changes: &[Change]) -> Result<Changed<'s>, Refusal> {
        let recorded = &self.simulator.program;
        if changes.is_empty() && !self.changes_blocks() {
            let program = match (&self.repeat, &self.sizes) {
                (Some(repeat), _) => Cow::Owned(repeat.apply_to_recorded(recorded)),
                (None, Some(sizes)) => Cow::Owned(sizes.apply(Edited::recorded(recorded.clone())).program),
                (None, None) => Cow::Borrowed(recorded),
            };
            return Ok(Changed { program, assumptions: Vec::new(), doubts: Vec::new() });
        }
        let changed = self.editor.apply_with_lives(recorded, changes, &self.lives)?;
        let Edited { program, assumptions, doubts, .. } = match (&self.repeat, &self.sizes) {
            (Some(repeat), _) => repeat.apply(changed),
            (None, Some(sizes)) => sizes.apply(changed),
            (None, None) => changed,
        };
        Ok(Changed { program: Cow::Owned(program), assumptions, doubts })
    }

    /// Simulates some of the settings, one after the other, until one fits without a retry, and returns the best.
    /// `None` without settings.
    pub fn simulate(&self, changes: &[Change], settings: Range<usize>) -> Result<Option<Tried>, Refusal> {
        let Changed { program, doubts, .. } = self.program(changes)?;
        if self.changes_blocks() {
            // Changes to thousands of blocks take about as long as a simulation.
            self.spend(&program);
        }
        let mut best: Option<Tried> = None;
        for number in settings {
            self.tried.fetch_add(1, Ordering::Relaxed);
            let settings = &self.settings[number];
            let (outcome, fits) = self.outcome(&program, settings, self.goal);
            let is_predicted =
                self.repeat.is_some() || self.sizes.is_some() || !changes.is_empty() || self.changes_blocks();
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

    /// Whether a changed program would also fit with one more segment than simulated.
    fn leaves_room(&self, program: &Program, settings: &AllocatorSettings) -> bool {
        let Goal::Device(bytes) = self.goal else { return true };
        let less = bytes.saturating_sub(SizeRules::device(settings).page_size(SegmentType::Large));
        self.outcome(program, settings, Goal::Device(less)).1
    }

    fn outcome(&self, program: &Program, settings: &AllocatorSettings, goal: Goal) -> (Outcome, bool) {
        let placements = self.simulator.placements(settings);
        let on = |capacity: Option<u64>, placement: Placement| {
            let setup = Setup { placement, ..Setup::new(settings, capacity, self.simulator.context.bytes) };
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
        // A program that starts with more than the device has may run without a failed request, but not there.
        if program.reserved_at_start() > bytes {
            return (endless, false);
        }
        // It must fit for every placement of segments.
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
        self.spend(program);
        simulate(program, setup)
    }

    /// Spends as much as a simulation of a program. A spent budget stays spent.
    fn spend(&self, program: &Program) {
        let spent = program.len() as u64 + 1;
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(spent)));
    }

    /// How much more difficult a plan with a set of changes may be, if only the easiest is sought.
    fn room_below(&self, set: &[Change], found: &Found) -> u32 {
        let Some(below) = self.below else { return u32::MAX };
        let easiest = found.roomy().map(Tried::trouble).fold(below, u32::min);
        easiest.saturating_sub(trouble_of(false, set))
    }

    /// Simulates the changes under the first of the settings, the easiest first, until there are `most` plans.
    /// Plans that were `found` before count.
    pub fn run(&self, moves: &Moves, most: usize, settings: usize, mut found: Found) -> Found {
        let settings = 0..settings;
        for set in moves.sets() {
            let roomy = found.roomy().count();
            let is_enough = roomy >= most || (set.len() > 1 && roomy >= ENOUGH);
            let room = self.room_below(&set, &found);
            if is_enough || self.is_cut() || room == 0 {
                break;
            }
            let is_refused = |refusal: &Refusal| set.contains(&refusal.change);
            if found.has_part_of(&set) || found.refused.iter().any(is_refused) {
                continue;
            }
            match self.simulate(&set, settings.clone()) {
                Ok(tried) => found.add(tried, self.goal),
                Err(refusal) => {
                    // Changes that cannot be combined may work on their own.
                    found.refused.extend((set.len() == 1).then_some(refusal));
                    continue;
                }
            }
            if !found.has_part_of(&set) && room > CHECKPOINT {
                self.checkpointing(&set, moves, settings.clone(), &mut found);
            }
        }
        found.plans.sort_rows_by_key(|plan| {
            (plan.is_tight, plan.is_doubtful, plan.trouble(), moves.time(&plan.changes).unwrap_or(i64::MAX))
        });
        found.plans.truncate(most);
        found.plans = parallel::map(found.plans, |plan| self.fewest_pieces(plan, settings.clone()));
        found
    }

    /// Tries a set of changes with checkpointed functions: each alone with as few calls as possible, otherwise two together.
    fn checkpointing(&self, set: &[Change], moves: &Moves, settings: Range<usize>, found: &mut Found) {
        let every_call = |function: &HeldByCalls| with(set, &[checkpoint(function, 1)]);
        let is_open = |function: &&HeldByCalls| !found.has_checkpointed(&function.label, set);
        let functions: Vec<&HeldByCalls> = moves.functions.iter().filter(is_open).collect();
        let tried: Vec<Result<Option<Tried>, Refusal>> =
            parallel::map(&functions, |function| self.simulate(&every_call(function), settings.clone()));
        let has_room_for_two = self.room_below(set, found) > 2 * CHECKPOINT;
        let pairs = if has_room_for_two { pairs(&functions) } else { Vec::new() };
        let mut fitting = Vec::new();
        for (function, tried) in functions.into_iter().zip(tried) {
            match tried {
                Ok(Some(tried)) if tried.fits => fitting.push(self.sparsest(function, set, settings.clone(), tried)),
                Ok(tried) => found.add(tried, self.goal),
                // With other changes, it may be these that are refused.
                Err(refusal) => found.refused.extend(set.is_empty().then_some(refusal)),
            }
        }
        if fitting.is_empty() {
            let both = |pair: &[&HeldByCalls; 2]| with(set, &pair.map(|function| checkpoint(function, 1)));
            let tried = parallel::map(&pairs, |pair| self.simulate(&both(pair), settings.clone()));
            for tried in tried.into_iter().flatten().flatten() {
                if tried.fits {
                    fitting.push(tried);
                } else {
                    found.keep_nearer(Some(tried), self.goal);
                }
            }
        }
        fitting.sort_rows_by_key(|tried| (tried.is_tight, moves.time(&tried.changes), tried.outcome.retries));
        fitting.into_iter().take(EACH).for_each(|tried| found.add(Some(tried), self.goal));
    }

    /// The fewest checkpointed calls of a function that are enough.
    fn sparsest(&self, function: &HeldByCalls, set: &[Change], settings: Range<usize>, every: Tried) -> Tried {
        let mut best = every;
        for every in sparser(function) {
            if self.is_cut() {
                break;
            }
            match self.simulate(&with(set, &[checkpoint(function, every)]), settings.clone()) {
                Ok(Some(tried)) if tried.fits && tried.is_tight <= best.is_tight => best = tried,
                _ => break,
            }
        }
        best
    }

    fn fewest_pieces(&self, plan: Tried, settings: Range<usize>) -> Tried {
        let Some(place) = plan.changes.iter().position(|change| matches!(change, Change::ChunkLoss { .. })) else {
            return plan;
        };
        let Change::ChunkLoss { pieces } = plan.changes[place] else { return plan };
        for pieces in fewer_pieces(pieces) {
            let mut changes = plan.changes.clone();
            changes[place] = Change::ChunkLoss { pieces };
            match self.simulate(&changes, settings.clone()) {
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

    /// Whether a plan that leaves room consists of only some of these changes.
    fn has_part_of(&self, set: &[Change]) -> bool {
        self.roomy().any(|plan| plan.changes.iter().all(|change| set.contains(change)))
    }

    /// Whether a plan that leaves room consists of only checkpointed calls of a function and some of these changes.
    fn has_checkpointed(&self, label: &str, set: &[Change]) -> bool {
        let is_it = |change: &Change| matches!(change, Change::Checkpoint { site, .. } if site == label);
        self.roomy().any(|plan| plan.changes.iter().all(|change| is_it(change) || set.contains(change)))
    }

    /// Adds a plan that fits, or updates the closest one that does not.
    pub fn add(&mut self, tried: Option<Tried>, goal: Goal) {
        match tried {
            Some(tried) if tried.fits => {
                self.plans.push(tried);
                self.nearest = None;
            }
            tried => self.keep_nearer(tried, goal),
        }
    }

    /// Keeps a combination that does not fit, if no plan fits and it is closer than all before.
    fn keep_nearer(&mut self, tried: Option<Tried>, goal: Goal) {
        let Some(tried) = tried.filter(|_| self.plans.is_empty()) else { return };
        if self.nearest.as_ref().is_none_or(|nearest| tried.measure(goal) < nearest.measure(goal)) {
            self.nearest = Some(tried);
        }
    }
}

/// Pairs of functions that are checkpointed together, among those that hold the most.
fn pairs<'m>(functions: &[&'m HeldByCalls]) -> Vec<[&'m HeldByCalls; 2]> {
    let most = &functions[..functions.len().min(TOGETHER)];
    let behind = |index: usize| most[index + 1..].iter();
    most.iter().enumerate().flat_map(|(index, one)| behind(index).map(move |other| [*one, *other])).collect()
}

/// A set of changes, extended with more changes.
fn with(set: &[Change], more: &[Change]) -> Vec<Change> {
    set.iter().chain(more).cloned().collect()
}
