//! A device's program, with the settings and capacity that every simulation needs.

use super::capacity::{Capacities, Search};
use super::placement::{placements_of, relevant};
use super::program::Program;
use super::recorded::{Difference, compare};
use super::{Context, Run, Trust};
use crate::allocator::Placement;
use crate::facts::device::Device;
use crate::model::bytes::Bytes;
use crate::model::{AllocatorSettings, HOST_DEVICE};
use crate::parallel;
use crate::replay::{Completeness, Metric, Track};
use crate::simulation::changes::{Change, Edited};
use crate::simulation::player::{Outcome, Setup, recorded_settings, simulate};
use std::borrow::Cow;

/// Maximum number of simulations of the whole program in [`Simulator::new`].
pub(super) const RUNS_TO_PREPARE: u64 = 4;

/// Contexts use some hundred MiB, and more if libraries such as NCCL are loaded.
const LARGEST_CONTEXT: u64 = 2 << 30;

/// Tolerated difference between two orders of frees, in thousandths: allocated, reserved.
const MOST_OFF: [u64; 2] = [20, 30];

#[derive(Clone)]
pub(crate) struct Simulator {
    pub program: Program,
    pub settings: AllocatorSettings,
    /// Bytes that the allocator can use, if they are known or given.
    pub capacity: Option<u64>,
    /// Whether it is the device on which requests failed.
    pub is_full_device: bool,
    /// Bytes of the device that CUDA itself uses.
    pub context: Context,
    /// The difference between a simulation with the recorded settings and the recording.
    pub difference: Difference,
    /// Where the driver may put segments, the most likely first; never empty. There is one if the recording shows it.
    pub placements: Vec<Placement>,
    /// What the recording lacks, in words; empty if it is complete.
    pub lacks: &'static str,
}

/// Why a simulation that starts without the recorded cache is uncertain.
const STARTS_WITHOUT_CACHE: &str =
    "it works only without the free segments that the recording starts with, which a smaller device might not have";

/// Why a simulation that fails without the recorded cache is uncertain.
const FAILS_WITHOUT_CACHE: &str = "the recording starts with more free segments than the simulated device has room for; it is simulated \
                          without them";

/// More bytes than any device has: sums of sizes stay far below what 64 bits can represent.
const MOST_RESERVED: u64 = 1 << 50;

/// Why simulations are not exact if the one that should equal the recording does not.
pub(crate) const NOT_REPRODUCED: &str = "the simulation does not reproduce the recording exactly";

/// Why simulations are not exact if other placements of segments are possible.
pub(crate) const UNPLACED: &str = "the driver's placement of segments is unknown";

/// Why the final state and the last entry alone are not simulated.
const IDLE: &str = "nothing was allocated or freed while recording, as far as entries were kept";
const SINGLE: &str = "only one entry was kept, so the peak of the program is unknown";

/// Why a recording is not simulated whose entries cannot have been served from its segments.
const OUTSIDE: &str = "the recording says that more memory is allocated than reserved, which is impossible";

/// The program of a device, or why it cannot be simulated.
pub(crate) fn program(device: &Device<'_>) -> Result<Program, &'static str> {
    if let Some(reason) = refusal(device) {
        return Err(reason);
    }
    let program = Program::of(device.track).ok_or("the recording has more streams and pools than can be simulated")?;
    let is_possible = program.reserved_at_start() <= MOST_RESERVED;
    is_possible.then_some(program).ok_or("it starts with more memory than any device has")
}

/// Why settings cannot be simulated, given whether the size of the device is known.
pub(crate) fn refuses(settings: &AllocatorSettings, is_known_device: bool) -> Option<&'static str> {
    let has_fraction = settings.memory_fraction.is_some_and(|fraction| fraction < 1.0);
    if settings.other_backend {
        Some("the settings select another allocator, which follows the driver's rules")
    } else if settings.record_stream_reuse {
        Some("memory is reused in the order of captured graphs, which is not recorded")
    } else if has_fraction && !is_known_device {
        Some("the limit is a fraction of the device, whose memory is unknown: set --capacity")
    } else {
        None
    }
}

/// Why a device's program cannot be simulated.
pub(crate) fn refusal(device: &Device<'_>) -> Option<&'static str> {
    let (snapshot, history) = (device.track.snapshot, device.history());
    let maximum = |metric: Metric| history.maxima[metric as usize].bytes;
    if !snapshot.notes.format.has_segments() {
        Some("only snapshots record the requests to the allocator")
    } else if device.id() < HOST_DEVICE {
        Some("only memory of PyTorch's caching allocators can be simulated")
    } else if history.entries() == 0 {
        Some("no history was recorded")
    } else if history.completeness.truncated {
        Some("the file ends inside the history")
    } else if device.track.has_only_markers() {
        Some(IDLE)
    } else if history.entries() == 1 && history.completeness.has_baseline {
        Some(SINGLE)
    } else if maximum(Metric::Active) > maximum(Metric::Reserved) {
        Some(OUTSIDE)
    } else {
        None
    }
}

/// Why simulations of a recording are not exact; empty if they are.
pub(crate) fn lacks(completeness: Completeness, anomalies: u64) -> &'static str {
    if anomalies > 0 {
        "the recording contradicts itself"
    } else if completeness.has_baseline {
        "the recording starts late, so its initial state is reconstructed"
    } else if !completeness.is_complete() {
        "the recording is not complete"
    } else {
        ""
    }
}

/// Bytes of a device that CUDA uses, given the bytes available to the process; `None` if these must belong to another
/// device.
fn shown_context(capacity: u64, told: u64) -> Option<u64> {
    capacity.checked_sub(told).filter(|&context| context <= LARGEST_CONTEXT)
}

/// Bytes that the device of a recording had for the process, if a failed request shows it; the minimum is safe to assume.
fn told(program: &Program) -> Option<u64> {
    program.refusals.iter().map(|&(_, bytes)| bytes).min()
}

/// Bytes of a device for the allocator, if they are known, and those that CUDA uses: see [`Simulator::new`].
fn of_device(told: Option<u64>, capacity: Option<u64>, context: Option<u64>) -> (Option<u64>, Context) {
    let context = Context::of(context.or_else(|| shown_context(capacity?, told?)));
    (capacity.map(|total| total.saturating_sub(context.bytes)).or(told), context)
}

/// Why a recording is not simulated on a device that is too small for its start.
const STARTS_ABOVE: &str = "the recording starts with more memory in segments than the simulated device has";

/// Simulates a program. If it fails, or starts with more than the device has, but works without the free segments that
/// it starts with, it is simulated without them: a device that is too small for them would not have held them. The
/// second value tells whether it starts without them. `None` if the segments with blocks in use exceed the device.
fn simulate_or_without_cache(
    program: &Program,
    without_cache: Option<&Program>,
    setup: &Setup,
) -> Option<(Outcome, bool)> {
    let works = |outcome: &Outcome| outcome.failure().is_none();
    let starts = |program: &Program| program.reserved_at_start() <= setup.limits.capacity.limit();
    let outcome = starts(program).then(|| simulate(program, setup));
    if outcome.as_ref().is_some_and(works) {
        return outcome.map(|outcome| (outcome, false));
    }
    let without_cache =
        without_cache.filter(|without_cache| starts(without_cache)).map(|without_cache| simulate(without_cache, setup));
    let without_cache = without_cache.filter(|without_cache| outcome.is_none() || works(without_cache));
    without_cache.map(|without_cache| (without_cache, true)).or(outcome.map(|outcome| (outcome, false)))
}

/// The largest of some numbers; `None` if one of them is unknown.
fn most(mut all: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    all.try_fold(0, |most, it| it.map(|it| most.max(it)))
}

impl Simulator {
    /// Simulates the recorded settings, which shows how far simulations of this program can be trusted. `capacity` is
    /// the total of the device and `context` the bytes that CUDA uses, if given.
    pub fn new(track: Track<'_>, program: Program, capacity: Option<u64>, context: Option<u64>) -> Self {
        let settings = recorded_settings(track);
        let told = told(&program);
        let (usable, context) = of_device(told, capacity, context);

        let ((_, difference), placements) = parallel::join(
            || compare(track, &program, &Setup::as_recorded(track, &program)),
            || placements_of(track, &program, &settings),
        );
        let history = track.history;
        Self {
            settings,
            capacity: usable,
            is_full_device: told.is_some() && usable == told,
            context,
            difference,
            placements,
            lacks: lacks(history.completeness, history.anomalies.total()),
            program,
        }
    }

    /// The same on a device with `capacity` bytes in total; if none is given, on the recorded device, as far as it is known.
    pub fn on_device(&self, capacity: Option<u64>) -> Self {
        let (usable, context) = self.device(capacity);
        let is_full_device = usable.is_some() && usable == told(&self.program);
        Self { capacity: usable, is_full_device, context, ..self.clone() }
    }

    /// Bytes of such a device for the allocator, if they are known, and those that CUDA uses.
    pub fn device(&self, capacity: Option<u64>) -> (Option<u64>, Context) {
        of_device(told(&self.program), capacity, None)
    }

    /// Where the driver may place segments with some settings, the most likely first; never empty.
    pub fn placements(&self, settings: &AllocatorSettings) -> &[Placement] {
        relevant(&self.placements, settings)
    }

    /// Whether it is known where the driver places segments with some settings, or makes no difference.
    pub(super) fn is_placed(&self, settings: &AllocatorSettings) -> bool {
        self.placements(settings).len() == 1
    }

    pub fn setup(&self, settings: &AllocatorSettings) -> Setup {
        let setup = Setup::new(settings, self.capacity, self.context.bytes);
        Setup { placement: self.placements(settings)[0], ..setup }
    }

    /// The program to simulate: without the free segments that it starts with if the device is too small for them. `None` if
    /// the segments with active blocks exceed the device.
    pub fn as_simulated<'p>(&self, program: &'p Program, settings: &AllocatorSettings) -> Option<Cow<'p, Program>> {
        let Some(without_cache) = program.without_cache() else { return Some(Cow::Borrowed(program)) };
        let (_, starts_without_cache) =
            simulate_or_without_cache(program, Some(&without_cache), &self.setup(settings))?;
        Some(if starts_without_cache { Cow::Owned(without_cache) } else { Cow::Borrowed(program) })
    }

    /// Simulates some settings; searches the capacities on which they work in `budget` steps.
    pub fn run(&self, settings: &AllocatorSettings, is_recorded: bool, budget: u64) -> Run {
        self.run_program(&self.program, settings, is_recorded, budget)
    }

    /// Simulates some settings with a changed program; `changes` are the names of the changes.
    pub fn run_changed(
        &self,
        edited: &Edited,
        changes: &[Change],
        settings: &AllocatorSettings,
        is_recorded: bool,
        budget: u64,
    ) -> Run {
        let mut run = self.run_program(&edited.program, settings, is_recorded, budget);
        run.changes = changes.iter().map(ToString::to_string).collect();
        run.assumptions.clone_from(&edited.assumptions);
        if run.trust == Trust::Exact {
            run.trust = Trust::Predicted;
            let each = if changes.len() > 1 { "each" } else { "the" };
            run.because = format!("the effect of {each} change is assumed");
        }
        if run.trust == Trust::Predicted {
            let order = run.outcome.as_ref().and_then(|outcome| self.depends_on_order(edited, outcome, settings));
            let doubts: Vec<String> = edited.doubts.iter().cloned().chain(order).collect();
            if !doubts.is_empty() {
                run.trust = Trust::Uncertain;
                run.because = doubts.join("; ");
            }
        }
        run
    }

    /// Whether the figures differ if the changes free their blocks one request later.
    pub(super) fn depends_on_order(
        &self,
        edited: &Edited,
        outcome: &Outcome,
        settings: &AllocatorSettings,
    ) -> Option<String> {
        if edited.moved.is_empty() {
            return None;
        }
        let late = simulate(&edited.with_late_frees(), &self.setup(settings));
        let is_off =
            |one: u64, other: u64, most: u64| one.abs_diff(other).saturating_mul(1000) > one.saturating_mul(most);
        let figures = [
            ("allocates", outcome.max_allocated, late.max_allocated, MOST_OFF[0]),
            ("reserves", outcome.max_reserved, late.max_reserved, MOST_OFF[1]),
        ];
        let differ = figures.into_iter().filter(|&(_, early, late, most)| is_off(early, late, most));
        let differ: Vec<String> = differ.map(|(verb, _, late, _)| format!("{verb} {}", Bytes(late))).collect();
        let then = differ.join(" and ");
        (!differ.is_empty())
            .then(|| format!("if the changed program frees its blocks one request later than simulated, it {then}"))
    }

    fn run_program(&self, program: &Program, settings: &AllocatorSettings, is_recorded: bool, budget: u64) -> Run {
        let refusal = refuses(settings, self.capacity.is_some());
        let mut run = Run::refused(settings, is_recorded, refusal.unwrap_or_default());
        if refusal.is_some() {
            return run;
        }
        let setup = self.setup(settings);
        let without_cache = program.without_cache();
        let simulated = simulate_or_without_cache(program, without_cache.as_ref(), &setup);
        let others = &self.placements(settings)[1..];
        if let Some((outcome, starts_without_cache)) = simulated.as_ref().filter(|_| !others.is_empty()) {
            let program = without_cache.as_ref().filter(|_| *starts_without_cache).unwrap_or(program);
            let others = others.iter().map(|&placement| simulate(program, &Setup { placement, ..setup.clone() }));
            let all: Vec<u64> = others.map(|other| other.max_reserved).chain([outcome.max_reserved]).collect();
            let (least, most) = all.iter().fold((u64::MAX, 0), |(least, most), &it| (least.min(it), most.max(it)));
            run.reserved_range = (least < most).then_some((least, most));
            format!("{UNPLACED}; four placements were simulated").clone_into(&mut run.because);
        }
        if !self.lacks.is_empty() {
            self.lacks.clone_into(&mut run.because);
        } else if !self.difference.is_none() {
            NOT_REPRODUCED.clone_into(&mut run.because);
        }
        run.trust = if run.because.is_empty() { Trust::Exact } else { Trust::Predicted };
        match &simulated {
            None => {
                run.trust = Trust::Refused;
                STARTS_ABOVE.clone_into(&mut run.because);
            }
            Some((outcome, true)) => {
                run.trust = Trust::Uncertain;
                let because = if outcome.failure().is_some() { FAILS_WITHOUT_CACHE } else { STARTS_WITHOUT_CACHE };
                because.clone_into(&mut run.because);
            }
            Some((_, false)) => {}
        }
        // Without a budget, the search finds nothing.
        if budget > 0 {
            let program = self.searched(program, settings, budget);
            let searches = || self.searches(&program, settings, budget);
            run.capacities = Capacities::in_all(searches().map(|search| search.run()));
            if program.goes_on {
                let least = program.reserved_at_start();
                run.as_it_went =
                    most(searches().map(|search| Search { refusals_fail: false, least, ..search }.enough()));
            }
        }
        run.outcome = simulated.map(|(outcome, _)| outcome);
        run
    }

    /// The smallest device on which a program always works, in bytes that the allocator can use; a larger one if the budget runs out.
    pub fn enough(&self, program: &Program, settings: &AllocatorSettings, budget: u64) -> Option<u64> {
        self.enough_with_cache(program, settings, budget).0
    }

    /// The same, and whether the program starts there with all free segments that it starts with.
    pub(super) fn enough_with_cache(
        &self,
        program: &Program,
        settings: &AllocatorSettings,
        budget: u64,
    ) -> (Option<u64>, bool) {
        let program = self.searched(program, settings, budget);
        let enough = most(self.searches(&program, settings, budget).map(|search| search.enough()));
        (enough, matches!(program, Cow::Borrowed(_)))
    }

    /// The program to search capacities for. If it starts with free segments and works on all devices that can hold
    /// them, it may also work on smaller ones, which would not have held them: then it starts without them.
    fn searched<'p>(&self, program: &'p Program, settings: &AllocatorSettings, budget: u64) -> Cow<'p, Program> {
        let without_cache = program.without_cache();
        let without_cache = without_cache.filter(|_| {
            let enough = most(self.searches(program, settings, budget).map(|search| search.enough()));
            enough.is_none_or(|enough| enough <= program.reserved_at_start())
        });
        without_cache.map_or(Cow::Borrowed(program), Cow::Owned)
    }

    /// A search for each possible placement of segments, which share the budget.
    fn searches<'s>(
        &'s self,
        program: &'s Program,
        settings: &'s AllocatorSettings,
        budget: u64,
    ) -> impl Iterator<Item = Search<'s>> {
        let placements = self.placements(settings);
        let least = program.live_bytes(&self.setup(settings).rules).max(program.reserved_at_start());
        placements.iter().map(move |&placement| Search {
            program,
            settings,
            placement,
            context: self.context.bytes,
            least,
            refusals_fail: true,
            budget: budget / placements.len() as u64,
        })
    }
}
