//! What the searches for plans of one device share, and the search for the program without known mistakes.

use super::DevicePlans;
use super::moves::Moves;
use super::plan::{Plan, STEPS_OF_NEEDS};
use super::search::{Found, Goal, Search, Sought, Tried};
use crate::allocator::SizeRules;
use crate::facts::device::Device;
use crate::model::AllocatorSettings;
use crate::simulation::changes::checkpointable::{Checkpointable, Holders};
use crate::simulation::changes::{Change, Edited, Editor, Lifetimes, LossFigures};
use crate::simulation::{Program, Simulator, advisable, refuses, simulate};
use crate::sorting::SortRows;
use std::borrow::Cow;

/// A second search, for the program without known mistakes, takes 1/N of the steps of the first; less if it is unlikely
/// to find a plan.
const FIXED_PART: u64 = 2;
const UNLIKELY_PART: u64 = 5;

pub(crate) struct Bench<'d, 'a> {
    pub(super) simulator: Simulator,
    pub(super) editor: Editor<'d, 'a>,
    pub(super) sought: Sought,
    /// The settings to simulate, the recorded ones first.
    pub(super) settings: Vec<AllocatorSettings>,
    pub(super) holders: Holders,
    /// The program with the free segments that it starts with, if it is simulated without them.
    pub(super) with_cache: Option<Program>,
    pub(super) loss: Option<LossFigures>,
    /// Steps that the first search simulated.
    pub(super) spent: u64,
}

impl<'d, 'a> Bench<'d, 'a> {
    pub(super) fn new(device: &'d Device<'a>, simulator: Simulator, sought: Sought) -> Self {
        let editor = Editor::new(device);
        let holders = Checkpointable::new(device, editor.choice()).for_search(matches!(sought.goal, Goal::Device(_)));
        let mut settings = vec![simulator.settings.clone()];
        if matches!(sought.goal, Goal::Device(_)) {
            settings.extend(advisable(&simulator.settings));
            // Changes to the program are simulated under the recorded settings and these.
            settings[1..].sort_rows_by_key(|settings| !settings.expandable_segments);
            settings.retain(|settings| refuses(settings, simulator.capacity.is_some()).is_none());
        }
        Self { simulator, editor, sought, settings, holders, with_cache: None, loss: None, spent: 0 }
    }

    /// Searches for a plan for the program with changes to single blocks, and returns whether it fits: the easiest
    /// plan, if it is easier than all `plans` for the unchanged program; if there are none, otherwise the closest one,
    /// if it is closer.
    pub fn with_lives(&self, plans: &DevicePlans, lives: &Lifetimes) -> Option<(Plan, bool)> {
        let Self { simulator, editor, settings, holders, .. } = self;
        let best = plans.best().map(Plan::rank);
        let below = match best {
            // Nothing is easier than other settings alone.
            Some((false, false, ..=1)) => return None,
            Some((false, false, trouble)) => trouble,
            // A plan that may be wrong is worse than any that is not.
            _ => u32::MAX,
        };
        let search = |steps: u64| {
            let sought = Sought { steps, lives: lives.clone(), below: Some(below), ..self.sought.clone() };
            Search::new(simulator, editor, sought, settings)
        };
        // The search may be cut before it reaches this plan.
        let closest = plans.nearest.as_ref().filter(|_| plans.plans.is_empty()).and_then(|nearest| {
            let place = self.place_of(nearest);
            search(0).simulate(&nearest.bare_changes(), place..place + 1).ok().flatten()
        });
        let is_unlikely = plans.plans.is_empty() && closest.as_ref().is_none_or(|closest| !closest.fits);
        let search = search(self.spent / if is_unlikely { UNLIKELY_PART } else { FIXED_PART });
        let unchanged = search.simulate(&[], 0..1).ok().flatten()?;
        let moves =
            Moves::all(holders.functions.clone(), self.loss, unchanged.outcome.max_allocated, editor.may_use_adam());
        let told = |tried: Tried| Plan::of(simulator, &search, &moves, tried);
        let mut known = Found::default();
        known.add(closest.clone(), search.goal());
        let found = search.settings_or_changes(&moves, known);
        let (mut plan, fits) = if let Some(tried) = found.plans.into_iter().next() {
            (told(tried)?, true)
        } else {
            let is_other = |it: &Tried| found.nearest.as_ref().is_none_or(|own| !own.is_same_combination(it));
            let closest = closest.filter(is_other);
            let both = found.nearest.into_iter().chain(closest).filter_map(told);
            (both.min_by_key(|plan| plans.measure(plan))?, false)
        };
        if plan.alloc_conf.is_none() && plan.changes.is_empty() {
            return None;
        }
        plan.doubts.extend(self.depends_on_order(&plan, lives, fits));
        let is_better = match (best, plans.nearest.as_ref().or(plans.as_it_is.as_ref())) {
            (Some(best), _) => fits && plan.rank() < best,
            (None, Some(nearest)) => fits || plans.measure(&plan) < plans.measure(nearest),
            (None, None) => fits,
        };
        is_better.then_some((plan, fits))
    }

    /// Bytes that the program needs with these changes, as [`Plan::needs`]; `None` if they cannot be applied.
    pub fn needs_with(&self, changes: &[Change], lives: &Lifetimes) -> Option<u64> {
        let sought = Sought { lives: lives.clone(), ..self.sought.clone() };
        let search = Search::new(&self.simulator, &self.editor, sought, &self.settings);
        let program = search.program(changes).ok()?.program;
        self.simulator.enough(&program, &self.simulator.settings, STEPS_OF_NEEDS)
    }

    /// The same for the unchanged program under other settings.
    pub fn needs_under(&self, settings: &AllocatorSettings) -> Option<u64> {
        let search = Search::new(&self.simulator, &self.editor, self.sought.clone(), &self.settings);
        let program = search.program(&[]).ok()?.program;
        self.simulator.enough(&program, settings, STEPS_OF_NEEDS)
    }

    /// The most in use at once if the last complete step is repeated.
    pub(super) fn live_bytes(&self) -> Option<u64> {
        let Self { simulator, sought, .. } = self;
        let repeated = sought.repeat.as_ref()?.apply_to_recorded(&simulator.program);
        Some(repeated.live_bytes(&SizeRules::device(&simulator.settings)))
    }

    /// Completes the row of the unchanged program, which does not fit: a device that is large enough for it may also hold the
    /// free segments that the recorded `program` starts with. Then it needs what [`Simulator::run`] says. Returns whether it
    /// does.
    pub(super) fn needs_with_cache(&self, program: &Program, unchanged: &mut Plan) -> bool {
        let Self { simulator, sought, .. } = self;
        let program = match (&sought.repeat, &sought.sizes) {
            (Some(repeat), _) => Cow::Owned(repeat.apply_to_recorded(program)),
            (None, Some(sizes)) => Cow::Owned(sizes.apply(Edited::recorded(program.clone())).program),
            (None, None) => Cow::Borrowed(program),
        };
        let (needs, has_cache) = simulator.enough_with_cache(&program, &simulator.settings, STEPS_OF_NEEDS);
        unchanged.needs = needs;
        if has_cache {
            let without_limit = Simulator { capacity: None, ..simulator.clone() };
            unchanged.outcome = simulate(&program, &without_limit.setup(&simulator.settings));
        }
        has_cache
    }

    fn place_of(&self, plan: &Plan) -> usize {
        let is_own = |own: &AllocatorSettings| plan.alloc_conf.as_ref() == Some(&own.alloc_conf);
        self.settings.iter().skip(1).position(is_own).map_or(0, |place| place + 1)
    }

    /// Why the figures of a plan that frees blocks at other times are uncertain.
    fn depends_on_order(&self, plan: &Plan, lives: &Lifetimes, fits: bool) -> Option<String> {
        let edited = self.editor.apply_with_lives(&self.simulator.program, &plan.bare_changes(), lives).ok()?;
        let settings = self.settings.get(self.place_of(plan))?;
        let capacity = self.simulator.capacity.filter(|_| fits);
        Simulator { capacity, ..self.simulator.clone() }.depends_on_order(&edited, &plan.outcome, settings)
    }
}
