//! Plans that make a program fit a device: allocator settings, changes to the program, or both, the easiest first.
//!
//! `moves` lists possible changes, `search` combines them and simulates every combination as a whole, and `bench` holds what
//! two searches share. Every plan was simulated, since some well-known tricks have no effect on a given program.

mod bench;
mod failed;
mod moves;
mod need;
mod plan;
mod repeat;
mod search;
mod sizes;
mod unfinished;

pub(crate) use bench::Bench;
pub use failed::Failed;
pub(crate) use need::forward_before;
pub use need::{Above, Condition, Need, Rest, STATES, Verdict};
pub use plan::{Plan, PlannedChange};
pub use search::Goal;
pub(crate) use sizes::{Reference, Sizes};
pub use unfinished::Unfinished;

use crate::allocator::SizeRules;
use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices, ask_each};
use crate::model::bytes::Bytes;
use crate::model::{Action, DeviceId, HOST_DEVICE};
use crate::replay::{Anomalies, Completeness, Metric};
use crate::simulation::changes::{Change, Lifetimes, Refusal};
use crate::simulation::{Context, Difference, Generation, Simulator, Trust, program, recorded_settings, refuses};
use moves::Moves;
use search::{Found, Search, Sought, Tried};
use unfinished::complete_steps;

/// Approximate number of steps simulated in total: a few seconds of work.
const STEPS: u64 = 40_000_000;
/// The same for a line in another answer, which must appear at once; and how many simulations of a recording must fit
/// into them.
const STEPS_OF_A_LINE: u64 = 2_000_000;
const PLAYS_OF_A_LINE: u64 = 20;

/// Why there is no prediction if the simulation does not fail like the recording.
const FITS_REPEATED: &str = "in simulation, repeating the last complete step fits the device on which the program ran out of memory; how the failed step differs is unknown";

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct PlanOptions {
        /// Total capacity of the device in bytes, as in PyTorch's messages; needed unless a failed request shows it.
        pub capacity: Option<u64>,
        /// Bytes of the device that CUDA itself uses; if not given, the bytes that a failed request shows, or else
        /// [`crate::simulation::DEFAULT_CONTEXT`].
        pub context: Option<u64>,
        /// The selected devices; empty for all.
        pub devices: Vec<DeviceId>,
    }
}

#[allow(clippy::struct_excessive_bools, reason = "they answer independent questions")]
#[derive(Clone, Debug)]
pub struct DevicePlans {
    pub device: DeviceId,
    pub goal: Goal,
    /// Bytes that the allocator can use, if a device was given.
    pub capacity: Option<u64>,
    /// Additional bytes of the device that CUDA itself uses, if a device was given.
    pub context: Option<Context>,
    pub refused: Option<String>,
    /// The difference between a simulation with the recorded settings and the recording; `None` if nothing is
    /// simulated.
    pub difference: Option<Difference>,
    /// Why simulations are not exact even without a change; empty if they are.
    pub lacks: &'static str,
    /// The recorded settings, as `PYTORCH_CUDA_ALLOC_CONF` takes them.
    pub recorded_conf: String,
    /// The unchanged program under the recorded settings; `None` if nothing is simulated.
    pub as_it_is: Option<Plan>,
    /// Bytes of the free segments that the recording starts with and simulations do not: the device is too small for them.
    pub dropped_at_start: u64,
    /// Whether the unchanged program is simulated with them all the same: it needs a device that can hold them.
    pub unchanged_has_cache: bool,
    pub fits: bool,
    /// Number of other settings that were simulated with the unchanged program.
    pub settings_tried: usize,
    /// Plans that reach the goal, the easiest first; empty if the unchanged program does.
    pub plans: Vec<Plan>,
    /// Plans that an answer leaves out.
    pub left_out: usize,
    /// If no plan fits, the closest one; `None` if none is closer than the unchanged program.
    pub nearest: Option<Plan>,
    /// Changes that cannot be simulated from this recording, with the reason.
    pub not_played: Vec<Refusal>,
    /// Whether checkpointing was not tried although it may help: the recording does not contain the backward
    /// pass for which forward passes keep memory, so the peak with recomputation is unknown.
    pub checkpoints_untried: bool,
    pub tried: usize,
    /// Whether there are more combinations, which the budget did not allow.
    pub is_cut: bool,
    /// What is simulated instead, if the recording runs out of memory.
    pub unfinished: Option<Unfinished>,
    /// Another recording of the program, which ran out of memory on this device, if there is one.
    pub failed: Option<Failed>,
    /// What the program needs if it ran out of memory.
    pub need: Option<Need>,
    /// Whether the recording has no complete step, and starts late or ends because another device ran out of memory: figures
    /// cover only the recorded part.
    pub is_partial: bool,
    /// If a cache grows with every token, how far it can grow on the device, or why this is unknown.
    pub generation: Option<std::result::Result<Generation, &'static str>>,
    /// Mean time of a forward pass in microseconds, if the file has times.
    pub forward_us: Option<i64>,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

#[derive(Clone, Debug, Default)]
pub struct PlanReport {
    /// The selected devices, in order, without pinned host memory, which no device limits.
    pub devices: Vec<DevicePlans>,
}

impl PlanReport {
    /// Searches for plans that make the programs fit a device.
    /// Fails if a device is named that the recording does not have, or neither a capacity is given nor one is recorded.
    pub fn of(recording: &Devices<'_>, options: &PlanOptions) -> Result<Self> {
        let wanted = Self::wanted(recording, options)?;
        let devices = ask_each(&wanted, |device| DevicePlans::of(device, options))?.0;
        Ok(Self { devices })
    }

    /// The devices for which there are plans.
    /// Fails if a device is named that the recording does not have.
    pub(crate) fn wanted<'d, 'a>(recording: &'d Devices<'a>, options: &PlanOptions) -> Result<Vec<&'d Device<'a>>> {
        let mut wanted = recording.wanted(&options.devices)?;
        wanted.retain(|device| device.id() > HOST_DEVICE);
        Ok(wanted)
    }
}

impl DevicePlans {
    /// Searches for plans that make the program of one device fit.
    /// Fails if neither a capacity is given nor one is recorded.
    pub fn of(device: &Device<'_>, options: &PlanOptions) -> Result<Self> {
        Self::within(device, options, STEPS)
    }

    /// The same, with what a further search needs if there was one.
    pub(crate) fn with_bench<'d, 'a>(
        device: &'d Device<'a>,
        options: &PlanOptions,
    ) -> Result<(Self, Option<Bench<'d, 'a>>)> {
        Self::searched(device, options, None, STEPS)
    }

    /// The same as [`DevicePlans::of`] for the program with other sizes.
    pub(crate) fn resized(device: &Device<'_>, options: &PlanOptions, sizes: Option<Sizes>) -> Result<Self> {
        Ok(Self::searched(device, options, sizes, STEPS)?.0)
    }

    /// Searches for plans that would have made room for a failed request, for a line in other answers. `None` if no
    /// request failed, if the program needs no change, or if there is no prediction.
    pub fn of_failure(device: &Device<'_>) -> Option<Self> {
        let (plans, _) = Self::after_failure(device)?;
        plans.best().is_some_and(|best| !best.changes.is_empty()).then_some(plans)
    }

    /// The same with what it needs, and what further simulations of a completed program need. `None` if no request failed, or the
    /// recording is too long for a line in other answers.
    pub(crate) fn after_failure<'d, 'a>(device: &'d Device<'a>) -> Option<(Self, Option<Bench<'d, 'a>>)> {
        let has_failed = device.track.count_of(Action::Oom) > 0;
        let is_short = u64::from(device.history().entries()) * PLAYS_OF_A_LINE <= STEPS_OF_A_LINE;
        if device.id() <= HOST_DEVICE || !has_failed || !is_short {
            return None;
        }
        Self::searched(device, &PlanOptions::default(), None, STEPS_OF_A_LINE).ok()
    }

    /// Like [`DevicePlans::of`], within this many steps.
    fn within(device: &Device<'_>, options: &PlanOptions, steps: u64) -> Result<Self> {
        Ok(Self::searched(device, options, None, steps)?.0)
    }

    fn searched<'d, 'a>(
        device: &'d Device<'a>,
        options: &PlanOptions,
        sizes: Option<Sizes>,
        steps: u64,
    ) -> Result<(Self, Option<Bench<'d, 'a>>)> {
        let program = match program(device) {
            Ok(program) => program,
            Err(reason) => return Ok((Self::refused(device, reason), None)),
        };
        let mut simulator = Simulator::new(device.track, program, options.capacity, options.context);
        let Some(capacity) = simulator.capacity else {
            let missing = "expected --capacity or --gpu, such as --capacity 24GiB: the recording has no failed request that shows the memory of its device";
            return Err(Error::Request(missing.to_owned()));
        };
        let goal = Goal::Device(capacity);
        let (mut unfinished, mut repeat, mut failing) = (None, None, None);
        if !simulator.program.refusals.is_empty() {
            let (before, found, again) = match complete_steps(device, &simulator) {
                Ok(found) => found,
                Err(reason) => {
                    let need = Need::of(device, &simulator, false);
                    let context = options.capacity.map(|total| simulator.context.within(total));
                    let refused =
                        Self { goal, need, capacity: Some(capacity), context, ..Self::refused(device, reason) };
                    return Ok((refused, None));
                }
            };
            failing = Some(std::mem::replace(&mut simulator.program, before));
            unfinished = Some(found);
            repeat = Some(again);
        }
        let reserved_at_start = simulator.program.reserved_at_start();
        let without_cache = simulator.program.without_cache().filter(|_| reserved_at_start > goal.bytes());
        let with_cache = without_cache.map(|without_cache| std::mem::replace(&mut simulator.program, without_cache));
        let dropped_at_start = reserved_at_start - simulator.program.reserved_at_start();
        let live_at_start = simulator.program.live_bytes_to(0, &SizeRules::device(&simulator.settings));
        if live_at_start > goal.bytes() {
            let allocated = u64::try_from(device.history().start.allocated).unwrap_or(live_at_start);
            let reason = match goal.bytes() {
                0 if options.capacity.is_some_and(|total| live_at_start <= total) && simulator.context.is_assumed => {
                    format!(
                        "nothing is left for the allocator: memviz assumes that CUDA itself uses {}; --context sets that amount",
                        Bytes(simulator.context.bytes)
                    )
                }
                0 if options.capacity.is_none_or(|total| live_at_start <= total) => {
                    "nothing is left for the allocator: all of the device is used outside it".to_owned()
                }
                available => {
                    let room = match available {
                        0 => format!("{} of the device", Bytes(options.capacity.unwrap_or(0))),
                        _ => format!("{} available", Bytes(available)),
                    };
                    format!(
                        "the recording starts with {} allocated, more than the {room}; start recording before the model is built",
                        Bytes(allocated)
                    )
                }
            };
            return Ok((Self::refused(device, reason), None));
        }
        let sought = Sought { goal, repeat, sizes, steps, lives: Lifetimes::default(), below: None };
        let context = options.capacity.map(|total| simulator.context.within(total));
        let generation = Generation::of(device, &simulator);
        let is_full_device = simulator.is_full_device;
        let mut bench = Bench::new(device, simulator, sought);
        bench.with_cache = with_cache;
        let searched = Self::reaching(device, &mut bench);
        let high = searched.as_it_is.as_ref().map(|plan| searched.measure(plan));
        let need = failing.as_ref().zip(unfinished).and_then(|(program, unfinished)| {
            Need::between(program, &bench.simulator, (bench.live_bytes(), high), Above::Step(unfinished))
        });
        let plans =
            Self { unfinished, need, generation, capacity: Some(capacity), context, dropped_at_start, ..searched };
        if plans.fits && unfinished.is_some() && is_full_device {
            // The step that failed differs from the last complete one: what it can still need bounds it all the same.
            let simulator = failing.map(|program| Simulator { program, ..bench.simulator.clone() });
            let rest =
                simulator.and_then(|simulator| Need::of(device, &simulator, true)).filter(|need| need.high.is_some());
            let open = need.map(|need| Need { high: None, above: Above::Nothing(FITS_REPEATED), ..need });
            let refused = Self::refused(device, FITS_REPEATED);
            let need = rest.or(open);
            return Ok((Self { need, goal, capacity: Some(capacity), context, ..refused }, None));
        }
        Ok((plans, Some(bench)))
    }

    /// Searches for plans that reach a goal.
    fn reaching(device: &Device<'_>, bench: &mut Bench<'_, '_>) -> Self {
        let Bench { simulator, editor, sought, settings, holders, .. } = &*bench;
        let goal = sought.goal;
        let mut plans = Self { goal, forward_us: holders.forward_us, ..Self::none(device) };
        plans.difference = Some(simulator.difference.clone());
        plans.lacks = simulator.lacks;
        if settings.is_empty() || refuses(&simulator.settings, simulator.capacity.is_some()).is_some() {
            plans.refused = refuses(&simulator.settings, simulator.capacity.is_some()).map(str::to_owned);
            return plans;
        }
        let search = Search::new(simulator, editor, sought.clone(), settings);
        // Without changes, there are no refusals.
        let as_it_is = search.simulate(&[], 0..1).ok().flatten();
        plans.fits = as_it_is.as_ref().is_some_and(|tried| tried.fits);
        let peak = as_it_is.as_ref().map_or(0, |tried| tried.outcome.max_allocated);
        plans.as_it_is =
            as_it_is.and_then(|tried| Plan::of(simulator, &search, &Moves::checkpoints(Vec::new()), tried));
        if plans.fits {
            return plans;
        }
        if let (Some(program), Some(unchanged)) = (&bench.with_cache, &mut plans.as_it_is) {
            plans.unchanged_has_cache = bench.needs_with_cache(program, unchanged);
        }
        let mut loss = None;
        let moves = match goal {
            Goal::Device(_) => {
                let figures = editor.losses(&simulator.program);
                let refusal =
                    |because: &String| Refusal { change: Change::ChunkLoss { pieces: 4 }, because: because.clone() };
                plans.not_played.extend(figures.as_ref().err().map(refusal));
                plans.checkpoints_untried = holders.lack_backward;
                loss = figures.ok();
                Moves::all(holders.functions.clone(), loss, peak, editor.may_use_adam())
            }
            Goal::Allocated(_) => Moves::checkpoints(holders.functions.clone()),
        };
        let told = |tried: Tried| Plan::of(simulator, &search, &moves, tried);
        plans.settings_tried = settings.len() - 1;
        let mut found = search.settings_or_changes(&moves, Found::default());
        plans.not_played.append(&mut found.refused);
        plans.plans = found.plans.into_iter().filter_map(told).collect();
        let least = plans.as_it_is.as_ref().map(|plan| plans.measure(plan));
        let nearest = found.nearest.and_then(told);
        plans.nearest = nearest.filter(|plan| least.is_none_or(|least| plans.measure(plan) < least));
        (plans.tried, plans.is_cut) = (search.tried(), search.is_cut());
        let spent = sought.steps - search.left();
        (bench.loss, bench.spent) = (loss, spent);
        plans
    }

    /// An empty result.
    fn none(device: &Device<'_>) -> Self {
        let history = device.history();
        Self {
            device: device.id(),
            goal: Goal::Device(0),
            capacity: None,
            context: None,
            refused: None,
            difference: None,
            lacks: "",
            recorded_conf: recorded_settings(device.track).alloc_conf,
            as_it_is: None,
            dropped_at_start: 0,
            unchanged_has_cache: false,
            fits: false,
            settings_tried: 0,
            plans: Vec::new(),
            left_out: 0,
            nearest: None,
            not_played: Vec::new(),
            checkpoints_untried: false,
            tried: 0,
            is_cut: false,
            unfinished: None,
            failed: None,
            need: None,
            is_partial: (history.completeness.has_baseline || another_failed(device))
                && device.steps().map_or(true, |steps| steps.ends.is_empty()),
            generation: None,
            forward_us: None,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        }
    }

    fn refused(device: &Device<'_>, reason: impl Into<String>) -> Self {
        Self { refused: Some(reason.into()), ..Self::none(device) }
    }

    /// The figure of a plan that the goal limits: the bytes that it needs, or has allocated.
    pub fn measure(&self, plan: &Plan) -> u64 {
        match self.goal {
            // A plan that works on a device may fail on slightly larger ones; the memory that it reserved there then decides.
            Goal::Device(bytes) if plan.outcome.failure().is_none() && plan.outcome.max_reserved <= bytes => {
                plan.needs.filter(|&needs| needs <= bytes).unwrap_or(plan.outcome.max_reserved)
            }
            Goal::Device(_) => plan.needs.unwrap_or(plan.outcome.max_reserved),
            Goal::Allocated(_) => plan.outcome.max_allocated,
        }
    }

    pub fn trust(&self, plan: &Plan) -> Trust {
        let is_sure = self.lacks.is_empty()
            && self.difference.as_ref().is_some_and(Difference::keeps_order)
            && self.unfinished.is_none();
        let is_resized =
            self.unfinished.is_some_and(|step| step.is_resized) || self.failed.is_some_and(|failed| failed.is_resized);
        if !plan.doubts.is_empty() || plan.is_tight || is_resized {
            Trust::Uncertain
        } else if !plan.is_changed && plan.is_placed && is_sure {
            Trust::Exact
        } else {
            Trust::Predicted
        }
    }

    /// The best plan, or otherwise the closest one.
    pub fn best(&self) -> Option<&Plan> {
        self.plans.first()
    }
}

/// Whether requests failed on other devices of the recording only.
fn another_failed(device: &Device<'_>) -> bool {
    device.track.count_of(Action::Oom) == 0 && device.snapshot().entries.actions().contains(&Action::Oom)
}

/// The cheapest calls whose checkpointing keeps allocated memory at or below this many bytes.
pub(crate) fn checkpointed_below(device: &Device<'_>, bytes: u64) -> DevicePlans {
    let plans = simulated_below(device, bytes);
    match plans.refused {
        // A peak that is known needs no simulation.
        Some(_) if never_exceeds(device, bytes) => {
            DevicePlans { goal: plans.goal, fits: true, ..DevicePlans::none(device) }
        }
        _ => plans,
    }
}

/// Whether a complete recording without a failed request shows that allocated memory never exceeds this many bytes.
fn never_exceeds(device: &Device<'_>, bytes: u64) -> bool {
    let peak = device.history().maxima[Metric::Allocated as usize].bytes;
    device.history().completeness.is_complete()
        && device.track.count_of(Action::Oom) == 0
        && u64::try_from(peak).is_ok_and(|peak| peak <= bytes)
}

fn simulated_below(device: &Device<'_>, bytes: u64) -> DevicePlans {
    let goal = Goal::Allocated(bytes);
    let refused = |reason: &str| DevicePlans { goal, ..DevicePlans::refused(device, reason) };
    let program = match program(device) {
        Ok(program) if program.refusals.is_empty() => program,
        Ok(_) => return refused("the recorded program runs out of memory, so what would have followed is unknown"),
        Err(reason) => return refused(reason),
    };
    let simulator = Simulator::new(device.track, program, None, None);
    let sought = Sought { goal, repeat: None, sizes: None, steps: STEPS, lives: Lifetimes::default(), below: None };
    DevicePlans::reaching(device, &mut Bench::new(device, simulator, sought))
}
