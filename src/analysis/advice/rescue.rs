//! What lets a failed request succeed, and whether the whole step then fits: fixes of known mistakes, checkpointing, settings, and
//! plans for programs whose failed step repeats a complete one.

use super::trial::Trial;
use super::{Advice, Edit, Saving, Simulate, found};
use crate::allocator::SizeRules;
use crate::facts::device::Device;
use crate::facts::training::{Calls, Phase};
use crate::model::AllocatorSettings;
use crate::simulation::changes::checkpointable::Checkpointable;
use crate::simulation::changes::{Change, Choice, HeldByCalls, Lifetimes};
use crate::simulation::plans::{Above, Bench, DevicePlans, Need, Plan, Verdict, forward_before};
use crate::simulation::{Outcome, Program, Setup, Simulator, Trust, simulate_to_refusal};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::ops::Range;

/// Functions of which checkpointing is tried: those whose calls hold the most.
const CHECKPOINTED: usize = 3;
/// Fixes that are combined.
const COMBINED: usize = 4;

/// What helps a program that ran out of memory.
#[derive(Clone, Debug)]
pub struct Rescue {
    /// Bytes that the allocator could use when the request failed.
    pub capacity: u64,
    /// What the program needs as it is.
    pub need: Need,
    /// What helps on its own, in order: what lets the request succeed first, then by the bytes saved.
    pub ways: Vec<Way>,
    /// The fewest of the first fixes, by their places in `ways`, with which the whole step fits, if it does with none alone;
    /// otherwise those that let the request succeed together, if none does alone.
    pub together: Option<(Vec<usize>, Effect)>,
}

/// Something that helps.
#[derive(Clone, Debug)]
pub struct Way {
    pub change: Measure,
    pub effect: Effect,
}

/// What to change.
#[derive(Clone, Debug)]
pub enum Measure {
    /// A fix, by its place in the list of [`Advice`].
    Fix(usize),
    /// To checkpoint the calls of a function, which held this much when the request failed.
    Checkpoint(HeldByCalls),
    /// Other allocator settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
    Settings(String),
    /// A plan for the whole step.
    Plan(Box<Plan>),
}

/// What a change does for a failed request and the step around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Bytes that are saved when the request fails; 0 if unknown.
    pub saves: u64,
    /// Bytes reserved once the request has succeeded; `None` if it fails all the same, or if that is unknown.
    pub served: Option<u64>,
    /// Whether it is known that the request fails all the same.
    pub fails: bool,
    /// At least this much is needed with the change.
    pub low: u64,
    /// The whole step needs at most this much; `None` if nothing bounds it.
    pub high: Option<u64>,
    /// Whether the simulation may be far off.
    pub is_uncertain: bool,
}

impl Rescue {
    /// What helps a device whose request failed, with its list of fixes. `None` if none failed, or the recording is too long to be
    /// simulated at once.
    pub fn of(device: &Device<'_>, simulate: Simulate) -> Option<(Vec<Advice>, Self)> {
        let (plans, bench) = DevicePlans::after_failure(device)?;
        let (need, capacity) = (plans.need?, plans.capacity?);
        let (trial, list) = found(device, simulate, |_| true).unwrap_or_else(|| (simulate.trial(device), Vec::new()));
        let scene = Scene { device, trial: &trial, plans: &plans, bench: bench.as_ref(), need, capacity };
        let (advice, ways, together) = scene.ways(list)?;
        Some((advice, Self { capacity, need, ways, together }))
    }

    /// Only what checkpointing does.
    pub fn of_checkpointing(device: &Device<'_>) -> Option<Self> {
        let (_, mut rescue) = Self::of(device, Simulate::Quick)?;
        rescue.ways.retain(|way| matches!(way.change, Measure::Checkpoint(_)));
        rescue.together = None;
        (!rescue.ways.is_empty()).then_some(rescue)
    }

    /// Whether the whole step fits with a change.
    pub fn verdict(&self, effect: &Effect) -> Verdict {
        if effect.fails {
            return Verdict::CannotFit;
        }
        Need { low: effect.low.max(1), high: effect.high, ..self.need }.verdict(self.capacity)
    }

    /// The first way with which the whole step fits.
    pub fn sure(&self) -> Option<&Way> {
        let is_sure = |way: &&Way| self.verdict(&way.effect) == Verdict::Fits && !way.effect.is_uncertain;
        self.ways.iter().find(is_sure)
    }
}

/// What the effect of a change depends on.
struct Scene<'s, 'd, 'a> {
    device: &'d Device<'a>,
    trial: &'s Trial<'d, 'a>,
    plans: &'s DevicePlans,
    bench: Option<&'s Bench<'d, 'a>>,
    need: Need,
    capacity: u64,
}

impl Scene<'_, '_, '_> {
    #[allow(clippy::type_complexity, reason = "the parts of a rescue")]
    fn ways(&self, list: Vec<(Advice, Edit)>) -> Option<(Vec<Advice>, Vec<Way>, Option<(Vec<usize>, Effect)>)> {
        let simulator = self.trial.simulator()?;
        // Without a failure in simulation, something that is not simulated made the request fail.
        let is_reproduced = self.of_program(simulator, &simulator.program, &simulator.settings, 0).fails;
        if !is_reproduced {
            let fix = |place| Way { change: Measure::Fix(place), effect: Effect::default() };
            let ways = (0..list.len()).map(fix).collect();
            return Some((list.into_iter().map(|(advice, _)| advice).collect(), ways, None));
        }
        let mut ways = Vec::new();
        let mut advice = Vec::new();
        let mut edits = Vec::new();
        for (fix, edit) in list {
            let effect = self.of_edit(simulator, &edit, &fix.saving);
            if effect.is_none_or(|effect| raises(&fix.saving) && effect.served.is_none()) && !is_unknown(&fix.saving) {
                continue;
            }
            ways.push(Way { change: Measure::Fix(advice.len()), effect: effect.unwrap_or_default() });
            advice.push(fix);
            edits.push(edit);
        }
        ways.extend(self.settings(simulator));
        ways.extend(self.checkpoints(simulator));
        let plan = self.plans.plans.iter().chain(&self.plans.nearest).next();
        ways.extend(plan.filter(|plan| !plan.changes.is_empty()).map(|plan| self.of_plan(plan)));
        let rank = |way: &Way| (way.effect.served.is_none(), Reverse(way.effect.saves));
        ways.sort_rows_by_key(rank);
        let together = self.together(simulator, &ways, &edits);
        Some((advice, ways, together))
    }

    /// The effect of a fix; `None` if it cannot be simulated.
    fn of_edit(&self, simulator: &Simulator, edit: &Edit, saving: &Saving) -> Option<Effect> {
        let is_uncertain = matches!(saving, Saving::Simulated { trust: Trust::Uncertain, at_least: false, .. });
        let whole = || {
            let bench = self.bench.filter(|_| edit.unsimulated.is_none() && edit.settings.is_none())?;
            bench.needs_with(&edit.changes, &edit.lives)
        };
        let Ok((_, edited, settings)) = self.trial.changed(edit) else {
            // The fix of a program that can be completed is simulated there.
            let high = whole()?;
            let is_enough = high <= self.capacity;
            return Some(Effect {
                served: is_enough.then_some(high),
                high: Some(high),
                is_uncertain,
                ..Effect::default()
            });
        };
        let mut effect = self.of_program(simulator, &edited.program, &settings, 0);
        effect.is_uncertain |= is_uncertain || !edited.doubts.is_empty();
        if matches!(self.need.above, Above::Step(_)) {
            effect.high = whole().map(|high| high.max(effect.low));
        }
        Some(effect)
    }

    /// The effect of a changed program, which needs so many bytes more than simulated for calls that run again.
    fn of_program(&self, simulator: &Simulator, program: &Program, settings: &AllocatorSettings, again: u64) -> Effect {
        let Some(&(refused, _)) = program.refusals.first() else { return Effect::default() };
        let rules = SizeRules::device(settings);
        let low = program.live_bytes_to(program.steps_to_refusal(refused), &rules);
        let on = |capacity: Option<u64>| {
            let setup = Setup::new(settings, capacity, simulator.context.bytes);
            let placements = simulator.placements(settings).iter();
            let simulated = placements
                .map(|&placement| simulate_to_refusal(program, &Setup { placement, ..setup.clone() }, refused));
            simulated.collect::<Vec<_>>()
        };
        let least = self.capacity.saturating_sub(again);
        let limited = on(Some(least));
        let is_served = limited
            .iter()
            .all(|(outcome, _)| outcome.fails_at.is_none() && outcome.refusals.first() == Some(&(refused, true)));
        let reserved = |all: &[(Outcome, u64)]| all.iter().map(|(_, reserved)| *reserved).max();
        let served = if is_served { reserved(&limited) } else { None };
        let saves = self.need.live.saturating_sub(low.saturating_add(again));
        let high = match self.need.above {
            Above::Rest(rest) => {
                let reserved = served.or_else(|| reserved(&on(None))).unwrap_or(self.capacity);
                Some(reserved.saturating_add(rest.beside_request(saves)).saturating_add(again))
            }
            _ => None,
        };
        Effect {
            saves,
            served: served.map(|reserved| reserved.saturating_add(again)),
            fails: !is_served && again == 0,
            low,
            high,
            is_uncertain: false,
        }
    }

    /// Expandable segments, if they let the request succeed.
    fn settings(&self, simulator: &Simulator) -> Option<Way> {
        let recorded = &simulator.settings;
        if recorded.expandable_segments || recorded.max_split_size.is_some() || self.need.live > self.capacity {
            return None;
        }
        let settings = AllocatorSettings {
            expandable_segments: true,
            alloc_conf: "expandable_segments:True".to_owned(),
            ..recorded.clone()
        };
        let mut effect = self.of_program(simulator, &simulator.program, &settings, 0);
        effect.high = match (self.need.above, self.bench) {
            (Above::Step(_), Some(bench)) => bench.needs_under(&settings),
            _ => effect.high,
        };
        effect.served.is_some().then_some(Way { change: Measure::Settings(settings.alloc_conf), effect })
    }

    /// Checkpointing the functions whose calls hold the most when the request fails.
    fn checkpoints(&self, simulator: &Simulator) -> Vec<Way> {
        let device = self.device;
        let Some(&(refused, _)) = simulator.program.refusals.first() else { return Vec::new() };
        let Some((pass, is_backward)) = pass_of(device, refused) else { return Vec::new() };
        let calls = Calls::of(device.track, device.phases(), device.sites(), device.roles());
        let choice = Choice::around(device, calls, vec![pass.clone()]);
        let functions = Checkpointable::new(device, &choice).held_when(refused + 1);
        let way = |held: HeldByCalls| {
            let (id, _) = *choice.find(&held.label).first().copied()?;
            let chosen = choice.recompute(device, &[(id, 1)]);
            let edited = self.trial.checkpointed(&chosen)?;
            let made = |call: &Range<u32>| made_in(device, call);
            let again =
                if is_backward { chosen.calls.iter().map(|call| made(&call.born)).max().unwrap_or(0) } else { 0 };
            let mut effect = self.of_program(simulator, &edited, &simulator.settings, again);
            if let (Above::Step(_), Some(bench)) = (self.need.above, self.bench) {
                let change = Change::Checkpoint { site: held.label.clone(), every: 1 };
                effect.high = bench.needs_with(&[change], &Lifetimes::default()).map(|high| high.max(effect.low));
            }
            (effect.saves > 0).then_some(Way { change: Measure::Checkpoint(held), effect })
        };
        let mut ways: Vec<Way> = functions.into_iter().take(CHECKPOINTED).filter_map(way).collect();
        ways.sort_rows_by_key(|way| (way.effect.served.is_none(), Reverse(way.effect.saves)));
        ways.truncate(1);
        ways
    }

    /// A plan for the whole step.
    fn of_plan(&self, plan: &Plan) -> Way {
        let high = self.plans.measure(plan);
        let unchanged = self.need.high.unwrap_or(high);
        let is_enough = high <= self.capacity;
        let effect = Effect {
            saves: unchanged.saturating_sub(high),
            served: is_enough.then_some(high),
            fails: !is_enough,
            low: 0,
            high: Some(high),
            is_uncertain: self.plans.trust(plan) == Trust::Uncertain,
        };
        Way { change: Measure::Plan(Box::new(plan.clone())), effect }
    }

    /// The fewest of the first fixes with which the whole step fits, if it does with none alone; otherwise those that let the request
    /// succeed together, if none does alone.
    fn together(&self, simulator: &Simulator, ways: &[Way], edits: &[Edit]) -> Option<(Vec<usize>, Effect)> {
        let fixes = ways.iter().enumerate().filter_map(|(place, way)| match way.change {
            Measure::Fix(fix) => Some((place, edits.get(fix)?.only_lives()?)),
            _ => None,
        });
        let fixes: Vec<(usize, &Lifetimes)> = fixes.take(COMBINED).collect();
        let sets = (2..=fixes.len()).filter_map(|number| {
            let lives = Lifetimes::merged(fixes[..number].iter().map(|&(_, lives)| lives));
            let edit = Edit { lives, ..Edit::default() };
            let effect =
                self.of_edit(simulator, &edit, &Saving::NotSimulated { because: String::new(), at_most: 0 })?;
            Some((fixes[..number].iter().map(|&(place, _)| place).collect::<Vec<usize>>(), effect))
        });
        let fits = |effect: &Effect| effect.served.is_some() && effect.high.is_some_and(|high| high <= self.capacity);
        let is_any = |is_it: &dyn Fn(&Effect) -> bool| ways.iter().any(|way| is_it(&way.effect));
        if is_any(&fits) {
            return None;
        }
        let sets: Vec<(Vec<usize>, Effect)> = sets.collect();
        let whole = sets.iter().find(|(_, effect)| fits(effect));
        let is_served = |effect: &Effect| effect.served.is_some();
        let request = sets.iter().find(|(_, effect)| is_served(effect)).filter(|_| !is_any(&is_served));
        whole.or(request).cloned()
    }
}

/// The forward pass of the step that fails, up to the failure, and whether it has ended.
fn pass_of(device: &Device<'_>, refused: u32) -> Option<(Range<u32>, bool)> {
    let spans = &device.phases().spans;
    let at = spans.partition_point(|span| span.end <= refused);
    match spans.get(at)?.phase {
        Phase::Forward => {
            Some((forward_before(device, at).map_or(spans[at].start, |before| before.start)..refused, false))
        }
        Phase::Backward => Some((forward_before(device, at)?, true)),
        _ => None,
    }
}

/// Bytes of these allocations.
fn made_in(device: &Device<'_>, born: &Range<u32>) -> u64 {
    let made = device.history().allocations.get(born.start as usize..born.end as usize).unwrap_or_default();
    made.iter().map(|made| made.size).fold(0, u64::saturating_add)
}

/// Whether a fix raises one of the peaks.
fn raises(saving: &Saving) -> bool {
    matches!(saving, Saving::Simulated { allocated, reserved, .. } if allocated.adds() > 0 || reserved.adds() > 0)
}

fn is_unknown(saving: &Saving) -> bool {
    matches!(saving, Saving::NotSimulated { .. })
}
