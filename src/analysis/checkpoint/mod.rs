//! What activation checkpointing would save.
//!
//! `torch.utils.checkpoint` trades time for memory: what a forward function saves for backward is freed when the
//! function returns, and backward recomputes the function. A recording of a run without checkpointing shows which
//! functions are worth it: [`crate::simulation::changes`] computes how each call would change, and each candidate is
//! simulated as a whole, as with `simulate --checkpoint`.

mod candidate;
mod curve;
mod obstacle;
mod optimizer;
pub(in crate::analysis) mod overlay;
mod remaining_peak;

pub use candidate::{Candidate, EveryNth};
pub use obstacle::NoCandidates;
pub use optimizer::OptimizerPeak;
pub use overlay::CurveOptions;
pub use remaining_peak::RemainingPeak;

use crate::analysis::advice::Rescue;
use crate::analysis::diff::DeviceOverlay;
use crate::error::Result;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::time::moment::Moment;
use crate::facts::training::{Category, Phase};
use crate::model::{DeviceId, Format, Frame, StackId};
use crate::replay::{Anomalies, Completeness, Counters, Instant, Metric};
use crate::simulation::changes::Checkpointed;
use crate::simulation::changes::Editor;
use crate::simulation::changes::checkpointable::{Checkpointable, PassObstacle};
use crate::simulation::plans::{DevicePlans, checkpointed_below};
use candidate::Workbench;
use std::collections::HashMap;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct CheckpointOptions {
        pub top: Option<usize>,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// Whether to sample memory over time, and how.
        pub curves: Option<CurveOptions>,
        /// Limit on allocated bytes: finds the cheapest calls that meet it.
        pub fit: Option<u64>,
        /// Whether only the best candidate is shown in full: sparser calls of the others are then not simulated.
        pub best_only: bool,
        /// Whether only the savings of the best candidate are needed: then no sparser calls are simulated, and the other
        /// candidates are not counted.
        pub(crate) in_brief: bool,
    }
}

impl CheckpointOptions {
    pub(crate) fn best_in_brief(devices: Vec<DeviceId>) -> Self {
        Self::default().top(Some(1)).best_only(true).in_brief(true).devices(devices)
    }

    /// Number of candidates that are shown in full.
    fn in_full(&self) -> usize {
        if self.best_only { 1 } else { usize::MAX }
    }
}

#[derive(Clone, Debug)]
pub struct DeviceCheckpoint {
    pub device: DeviceId,
    pub entries: u32,
    /// The recorded peak of allocated memory.
    pub peak: Moment,
    pub phase: Phase,
    pub peak_bytes: i64,
    /// Of these, the bytes that forward allocated and backward will free; without a following backward pass, those that
    /// outlive their forward pass.
    pub activation_bytes: u64,
    /// Bytes at the peak in the activations category.
    pub kept_bytes: u64,
    pub kept_at_end_bytes: u64,
    /// Of these, the bytes that `torch.compile` programs allocated.
    pub compiled_bytes: u64,
    /// Number of forward passes followed by a backward pass, or otherwise of those that keep what one would need.
    pub passes: usize,
    pub without_backward: bool,
    /// Whether several stretches of forward entries before the same backward pass count as one of these passes.
    pub joins_passes: bool,
    /// Whether forward passes that are not counted follow the last backward pass.
    pub has_other_passes: bool,
    /// The memory at the peak, if it is in the optimizer and no candidate would lower it.
    pub optimizer: Option<OptimizerPeak>,
    /// Mean time of a forward pass in microseconds, if the file has times.
    pub forward_us: Option<i64>,
    pub checkpointed: Vec<Checkpointed>,
    /// Functions worth checkpointing, the lowest new peak first.
    pub candidates: Vec<Candidate>,
    /// Candidates that `top` left out.
    pub left_out: usize,
    /// Functions that were not tried, because there are too many; they hold less at the peak than the tried ones.
    pub untried: usize,
    pub none: Option<NoCandidates>,
    /// What checkpointing does for the failed request that interrupts the step at the peak, if one does and that is known.
    pub at_failure: Option<Rescue>,
    /// Memory as recorded and with the best candidate checkpointed, if there is one and curves were requested.
    pub curves: Option<DeviceOverlay>,
    /// The cheapest calls with which allocated memory meets the requested limit.
    pub fit: Option<DevicePlans>,
    pub baseline: Counters,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    pub devices: Vec<DeviceCheckpoint>,
}

impl CheckpointReport {
    /// Predicts the peak with each repeatedly called function checkpointed.
    ///
    /// # Errors
    /// If a device is named that the recording does not have.
    pub fn of(recording: &Devices<'_>, options: &CheckpointOptions) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        Ok(Self { devices: ask_each(&wanted, |device| Ok(DeviceCheckpoint::of(device, options)))?.0 })
    }
}

impl DeviceCheckpoint {
    fn of(device: &Device<'_>, options: &CheckpointOptions) -> Self {
        let (track, history, phases) = (device.track, device.history(), device.phases());
        let editor = Editor::new(device);
        let peak = history.maxima[Metric::Allocated as usize];
        let functions = Checkpointable::new(device, editor.choice());
        let (kept_bytes, compiled_bytes) = activations(device, peak.instant);
        let kept_at_end_bytes = activations(device, history.entries()).0;
        // Passes without a backward pass may also keep other memory, such as a KV cache.
        let has_passes = functions.passes() > 0 && (!functions.is_open() || kept_bytes > 0 || kept_at_end_bytes > 0);
        let none = if history.entries() == 0 {
            Some(NoCandidates::NoHistory)
        } else if history.allocations.is_empty() {
            Some(NoCandidates::NoForward)
        } else if !editor.choice().has_functions() && !has_python(device) {
            Some(NoCandidates::NoStacks)
        } else if phases.spans.iter().all(|span| !matches!(span.phase, Phase::Forward | Phase::Backward)) {
            Some(NoCandidates::NoForward)
        } else if track.snapshot.notes.format != Format::CudaSnapshot {
            Some(NoCandidates::NoLines)
        } else if !has_passes {
            Some(NoCandidates::NoTrainingStep)
        } else {
            functions.obstacle(peak.instant).map(|obstacle| match obstacle {
                PassObstacle::Unfinished => NoCandidates::Unfinished,
                PassObstacle::NoBackward => NoCandidates::NoBackward,
            })
        };
        let bench = none.is_none().then(|| Workbench::new(device, &editor, &functions)).flatten();
        let top = options.top.unwrap_or(usize::MAX);
        let (candidates, left_out, untried) = match &bench {
            None => (Vec::new(), 0, 0),
            Some(bench) if options.in_brief => {
                let (best, untried) = bench.best();
                (best.into_iter().collect(), 0, untried)
            }
            Some(bench) => bench.candidates(top, options.in_full()),
        };
        let nothing = || match phases.at(peak.instant) {
            Phase::Optimizer => NoCandidates::PeakInOptimizer,
            _ if bench.is_some() && functions.promising(peak.instant).0.is_empty() => NoCandidates::NothingRepeats,
            _ if bench.as_ref().is_some_and(Workbench::is_bounded_by_unfinished) => NoCandidates::LaterUnfinished,
            _ => NoCandidates::NothingSaves,
        };
        let none = none.or((candidates.is_empty() && left_out == 0).then(nothing));
        let is_interrupted = none == Some(NoCandidates::Unfinished) && !options.in_brief;
        let at_failure = if is_interrupted { Rescue::of_checkpointing(device) } else { None };
        let in_optimizer = none == Some(NoCandidates::PeakInOptimizer);
        let best = candidates.first().zip(options.curves).zip(bench.as_ref());
        let curves = best.and_then(|((best, options), bench)| bench.curves(best, options));
        Self {
            device: device.id(),
            entries: history.entries(),
            peak: Moment::of(track, device.annotations(), peak.instant),
            phase: phases.at(peak.instant),
            peak_bytes: peak.bytes,
            activation_bytes: functions.activation_bytes(peak.instant),
            kept_bytes,
            kept_at_end_bytes,
            compiled_bytes,
            passes: if has_passes { functions.passes() } else { 0 },
            without_backward: has_passes && functions.is_open(),
            joins_passes: has_passes && !functions.is_open() && functions.forward_spans() > functions.passes(),
            has_other_passes: !functions.is_open()
                && functions.forward_spans() < phases.spans.iter().filter(|span| span.phase == Phase::Forward).count(),
            optimizer: in_optimizer
                .then(|| OptimizerPeak::of(device, peak.instant, functions.held_in_forward(peak.instant))),
            forward_us: functions.forward_us(),
            checkpointed: functions.checkpointed(),
            candidates,
            left_out,
            untried,
            none,
            at_failure,
            curves,
            fit: options.fit.map(|bytes| checkpointed_below(device, bytes)),
            baseline: history.start,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        }
    }
}

/// Whether any stack has Python frames: of an entry, or of a block that is older than the first.
fn has_python(device: &Device<'_>) -> bool {
    let older = device.history().baseline.iter().map(|origin| origin.stack);
    device.track.stacks().iter().copied().chain(older).any(|stack| device.roles().has_python(stack))
}

/// Bytes of activations live at an instant, and those of them that compiled programs allocate.
fn activations(device: &Device<'_>, instant: Instant) -> (u64, u64) {
    let (track, snapshot) = (device.track, device.snapshot());
    let mut known: HashMap<StackId, bool> = HashMap::new();
    let of_aot = |frame: &Frame| snapshot.strings.get(frame.filename).contains("torch/_functorch/_aot_autograd/");
    let mut is_compiled =
        |stack: StackId| *known.entry(stack).or_insert_with(|| snapshot.stacks.frames(stack).any(of_aot));
    let blocks = device.history().allocations.iter().enumerate();
    let activations = blocks.filter(|&(index, block)| {
        block.allocated_at(instant) && device.categories().get(index).category == Category::Activation
    });
    activations.fold((0, 0), |(all, compiled), (index, block)| {
        let of_compiled = if is_compiled(track.stack_of(index)) { block.size } else { 0 };
        (all + block.size, compiled + of_compiled)
    })
}
