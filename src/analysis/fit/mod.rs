//! Predicts the memory of a program at another batch size, and the largest batch that fits a device.
//!
//! `align` matches the requests of two runs, `growth` determines how the size of a request grows with the number that
//! the runs differ in, and `scaling` builds the program at another number. The result is simulated: see
//! [`super::simulate`].

mod align;
mod completed;
mod fixed;
mod growth;
mod largest;
mod over_time;
mod prediction;
mod proportion;
mod scaling;
mod staged;
mod sums;

pub use completed::{plans_beside, ran_out};
pub use fixed::{FIRST, FitFix, FitPlans, FitTogether};
pub use largest::Largest;
pub use over_time::PredictedOverTime;
pub use prediction::{Doubt, Prediction};
pub use scaling::Matching;

use crate::allocator::Limits;
use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::grouping::attribution::Attribution;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Inference};
use crate::model::gpu::Threads;
use crate::model::{AllocatorSettings, DeviceId, HOST_DEVICE};
use crate::replay::Metric;
use crate::simulation::changes::{Change, Editor};
use crate::simulation::{
    self, Context, Program, Setup, StepKind, blocks_at_peak, placements_of, recorded_settings, simulate,
};
use crate::sorting::SortRows;
use prediction::{FAR, Predictor};
use scaling::Scaling;

/// Percentage of requests that two runs must have in common: below it, they are runs of two programs, or of one that makes
/// more and more requests, such as a loop over a batch.
const LEAST_MATCHED: u64 = 75;
/// Numbers beyond the recorded ones that a table shows if none is requested: this many times the largest.
const MULTIPLES: [u64; 2] = [2, 4];
/// The largest number that is tried.
const LARGEST: u64 = 1 << 32;

options! {
    /// Options of a prediction.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct FitOptions {
        /// Changes to the program, applied to the predictions.
        pub changes: Vec<Change>,
        /// Numbers to predict.
        pub at: Vec<u64>,
        /// Bytes of the device, the total capacity in PyTorch's messages: requests the largest number that fits.
        pub capacity: Option<u64>,
        /// Bytes of it that CUDA itself uses; [`simulation::DEFAULT_CONTEXT`] if `None`.
        pub context: Option<u64>,
        /// How many threads the device runs at once, if it is given; the recordings may show a different number.
        pub threads: Option<Threads>,
        /// Allocator settings; those of the recordings if `None`.
        pub settings: Option<AllocatorSettings>,
        /// Tokens in a growing cache: requests the largest number of requests that a device can serve up to this many tokens.
        pub tokens: Option<u64>,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// Rows of the attribution; the rest are summed into one.
        pub top: Option<usize>,
    }
}

/// A recording, and its number.
#[derive(Clone, Copy, Debug)]
pub struct FitInput<'a> {
    /// The number, such as the batch size.
    pub value: u64,
    /// The recording.
    pub devices: &'a Devices<'a>,
}

/// A recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Its number.
    pub value: u64,
    /// `max_memory_allocated()`.
    pub max_allocated: i64,
    /// `max_memory_reserved()`.
    pub max_reserved: i64,
    /// Entries of the device.
    pub entries: u32,
}

/// The largest recorded number, predicted from the smaller ones.
#[derive(Clone, Debug)]
pub struct Check {
    /// The predicted value.
    pub predicted: Prediction,
    /// The recorded value.
    pub measured: Measured,
}

/// Where two runs first differ, if they do not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The numbers of both.
    pub values: (u64, u64),
    /// How well they match.
    pub matching: Matching,
    /// The entry of each at which they differ first, its bytes and its line.
    pub first: Option<[(u32, u64, String); 2]>,
}

/// Why nothing is predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A recording, given by its number, cannot be simulated.
    NotSimulated(u64, &'static str),
    /// In a recording, given by its number, requests were refused: what would have followed is unknown.
    OutOfMemory(u64),
    /// A recording, by its number, does not have the device.
    NoDevice(u64),
    /// They have too little in common.
    Differ(Box<Mismatch>),
    /// The requested settings cannot be simulated.
    Settings(&'static str),
    /// A change of the program cannot be made: its name, and why not.
    Change(String, String),
    /// Serving the requests of a growing cache cannot be simulated.
    Tokens(&'static str),
}

#[derive(Clone, Debug)]
pub struct DeviceFit {
    pub device: DeviceId,
    /// The recorded runs, ascending by number.
    pub points: Vec<Measured>,
    /// Bytes that the allocator can use, if a device was named.
    pub capacity: Option<u64>,
    /// Further bytes of the device that CUDA itself uses, if a device was named.
    pub context: Option<Context>,
    /// The simulated settings, as a string.
    pub alloc_conf: String,
    /// Whether these are the settings of the recording.
    pub is_recorded: bool,
    /// Whether the recording has no settings, so that PyTorch's defaults are assumed.
    pub is_default_assumed: bool,
    /// Changes to the program, by name: predictions include them, the recorded runs do not.
    pub changes: Vec<String>,
    /// Their assumptions, a sentence each.
    pub assumptions: Vec<String>,
    /// Why nothing is predicted.
    pub refused: Option<Refusal>,
    /// How well each run matches the next.
    pub matching: Vec<Matching>,
    /// Doubts that apply to all predictions.
    pub doubts: Vec<Doubt>,
    /// With three recordings, the last one predicted from the others.
    pub check: Option<Check>,
    /// Recorded numbers and predicted ones, ascending.
    pub predictions: Vec<Prediction>,
    /// Tokens in the cache for which the largest number was requested.
    pub tokens: Option<u64>,
    /// The largest number that fits, if a device was named.
    pub largest: Option<Largest>,
    /// The memory at the peak, by group, at the requested number or at the largest that fits.
    pub peak: Option<(u64, Attribution)>,
}

impl DeviceFit {
    /// Whether a number is so far beyond the recorded ones that no recording supports it.
    pub fn is_far(&self, value: u64) -> bool {
        self.points.iter().all(|point| value / FAR >= point.value)
    }
}

/// Runs of a device whose requests belong together.
struct Aligned<'i> {
    devices: Vec<&'i Device<'i>>,
    scaling: Scaling,
    editors: Vec<Editor<'i, 'i>>,
}

/// All devices.
#[derive(Clone, Debug, Default)]
pub struct FitReport {
    /// The name of the number.
    pub parameter: String,
    /// The selected devices, in order.
    pub devices: Vec<DeviceFit>,
}

impl FitReport {
    /// Predicts what a program needs at other numbers than it was recorded with.
    ///
    /// # Errors
    /// If there are not two or three recordings with numbers that differ, or a device is named that they do not have.
    pub fn of(parameter: &str, inputs: &[FitInput<'_>], options: &FitOptions) -> Result<Self> {
        let inputs = sorted(parameter, inputs)?;
        // The largest recording probably defines the order of requests: its devices count.
        let wanted = inputs[inputs.len() - 1].devices.wanted(&options.devices)?;
        let devices = ask_each(&wanted, |device| Ok(DeviceFit::of(device, &inputs, options)))?.0;
        Ok(Self { parameter: parameter.to_owned(), devices })
    }
}

impl DeviceFit {
    fn of(device: &Device<'_>, inputs: &[FitInput<'_>], options: &FitOptions) -> Self {
        let recorded = recorded_settings(device.track);
        let settings = options.settings.as_ref().unwrap_or(&recorded);
        let context = options.context.unwrap_or(simulation::DEFAULT_CONTEXT);
        let mut fit = Self::nothing(device, options);
        match fit.predict(device, inputs, (settings, context), options) {
            Ok(()) => {}
            Err(refusal) => fit.refused = Some(refusal),
        }
        fit
    }

    /// No predictions yet.
    fn nothing(device: &Device<'_>, options: &FitOptions) -> Self {
        let context = Context::of(options.context);
        let settings = options.settings.clone().unwrap_or_else(|| recorded_settings(device.track));
        Self {
            device: device.id(),
            points: Vec::new(),
            capacity: options.capacity.map(|total| total.saturating_sub(context.bytes)),
            context: options.capacity.map(|total| context.within(total)),
            alloc_conf: settings.alloc_conf,
            is_recorded: options.settings.is_none(),
            is_default_assumed: options.settings.is_none() && !settings.recorded,
            changes: options.changes.iter().map(ToString::to_string).collect(),
            assumptions: Vec::new(),
            refused: None,
            matching: Vec::new(),
            doubts: Vec::new(),
            check: None,
            predictions: Vec::new(),
            tokens: options.tokens,
            largest: None,
            peak: None,
        }
    }

    /// Aligns the runs. Without a refusal, numbers can be predicted.
    fn aligned<'i>(
        &mut self,
        device: &Device<'_>,
        inputs: &[FitInput<'i>],
        settings: &AllocatorSettings,
        options: &FitOptions,
    ) -> std::result::Result<Aligned<'i>, Refusal> {
        let mut runs = Vec::new();
        let mut devices = Vec::new();
        for input in inputs {
            let same = same_device(device, input.devices).ok_or(Refusal::NoDevice(input.value))?;
            let program = program(same).map_err(|because| Refusal::NotSimulated(input.value, because))?;
            let maxima = same.history().maxima.map(|maximum| maximum.bytes);
            self.points.push(Measured {
                value: input.value,
                max_allocated: maxima[Metric::Allocated as usize],
                max_reserved: maxima[Metric::Reserved as usize],
                entries: same.history().entries(),
            });
            if !program.refusals.is_empty() {
                return Err(Refusal::OutOfMemory(input.value));
            }
            runs.push((input.value, same.track, program));
            devices.push(same);
        }
        if let Some(because) = simulation::refuses(settings, self.capacity.is_some()) {
            return Err(Refusal::Settings(because));
        }
        let scaling = Scaling::of(runs, options.threads);
        for (first, pair) in devices.windows(2).enumerate() {
            let matching = scaling.matching(first, first + 1);
            if matching.matched * 100 < matching.longest() * LEAST_MATCHED {
                return Err(Refusal::Differ(Box::new(mismatch(&scaling, first, matching, pair))));
            }
            self.matching.push(matching);
        }
        let editors: Vec<Editor<'_, '_>> = devices.iter().map(|device| Editor::new(device)).collect();
        for (editor, run) in editors.iter().zip(scaling.runs()).filter(|_| !options.changes.is_empty()) {
            let edited = editor.apply(&run.program, &options.changes);
            let edited = edited.map_err(|refusal| Refusal::Change(refusal.change.to_string(), refusal.because))?;
            self.assumptions = edited.assumptions;
        }
        self.doubts = Doubt::of(&devices, &scaling);
        Ok(Aligned { devices, scaling, editors })
    }

    /// The predictor for these settings, and the bytes of the device that CUDA uses.
    fn predictor<'p, 'i>(
        &self,
        Aligned { devices, scaling, editors }: &'p Aligned<'i>,
        (settings, context): (&'p AllocatorSettings, u64),
        options: &'p FitOptions,
    ) -> Predictor<'p, 'i> {
        let last = devices.len() - 1;
        let program = &scaling.runs()[last].program;
        Predictor {
            scaling,
            editors,
            changes: &options.changes,
            settings,
            is_recorded: self.is_recorded,
            capacity: self.capacity,
            context,
            placements: placements_of(devices[last].track, program, &recorded_settings(devices[last].track)),
            is_sure: self.doubts.is_empty(),
        }
    }

    fn predict(
        &mut self,
        device: &Device<'_>,
        inputs: &[FitInput<'_>],
        (settings, context): (&AllocatorSettings, u64),
        options: &FitOptions,
    ) -> std::result::Result<(), Refusal> {
        let aligned = self.aligned(device, inputs, settings, options)?;
        let predictor = self.predictor(&aligned, (settings, context), options);
        let Aligned { devices, scaling, .. } = &aligned;
        let last = devices.len() - 1;
        if let [.., measured] = self.points[..]
            && self.points.len() > 2
            && self.is_recorded
        {
            let unchanged = Predictor { changes: &[], ..predictor.clone() };
            self.check = unchanged.predict_from(measured.value, last).map(|predicted| Check { predicted, measured });
        }
        let start = scaling.runs()[last].value;
        self.largest = match (self.capacity, options.tokens) {
            (None, _) => None,
            (Some(_), None) => Some(Largest::search(start, |value| predictor.fits(value))),
            (Some(_), Some(tokens)) => {
                predictor.serves(devices, start, tokens).map_err(Refusal::Tokens)?;
                Some(Largest::search(start, |value| predictor.serves(devices, value, tokens) == Ok(true)))
            }
        };
        let values = self.values(&options.at);
        self.predictions = values.into_iter().filter_map(|value| predictor.predict(value)).collect();
        if self.is_recorded {
            self.restore_measured();
        }
        let subject = options.at.last().copied().or_else(|| self.largest.and_then(Largest::value));
        // Forward lines at the peak are not determined for changed programs.
        let subject = subject.filter(|_| options.changes.is_empty() && options.tokens.is_none());
        self.peak = subject.map(|value| (value, peak(&predictor, devices, value, options.top)));
        Ok(())
    }

    /// Replaces what was simulated for the recorded numbers with the recorded maxima: if the driver's placement of segments is
    /// unknown, a simulation may differ from them.
    fn restore_measured(&mut self) {
        for prediction in self.predictions.iter_mut().filter(|prediction| prediction.is_recorded) {
            let Some(point) = self.points.iter().find(|point| point.value == prediction.value) else { continue };
            let outcome = &mut prediction.outcome;
            outcome.max_allocated = u64::try_from(point.max_allocated).unwrap_or(outcome.max_allocated);
            outcome.max_reserved = u64::try_from(point.max_reserved).unwrap_or(outcome.max_reserved);
        }
    }

    /// The numbers that the table shows.
    fn values(&self, at: &[u64]) -> Vec<u64> {
        let recorded: Vec<u64> = self.points.iter().map(|point| point.value).collect();
        let largest = recorded.last().copied().unwrap_or(1);
        let mut values = recorded;
        let beyond = MULTIPLES.iter().filter_map(|&times| largest.checked_mul(times));
        match self.largest {
            // The table is about the recorded tokens.
            _ if self.tokens.is_some() && at.is_empty() => {}
            _ if !at.is_empty() => values.extend(at.iter().filter(|&&value| value > 0)),
            Some(Largest::UpTo { value, fails }) => {
                values.extend(beyond.filter(|&multiple| multiple < value));
                values.extend([value, fails]);
            }
            Some(Largest::None { fails }) => values.push(fails),
            Some(Largest::Unlimited { .. }) | None => values.extend(beyond),
        }
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// The recordings, ascending by number.
fn sorted<'i>(parameter: &str, inputs: &[FitInput<'i>]) -> Result<Vec<FitInput<'i>>> {
    let mut inputs = inputs.to_vec();
    inputs.sort_rows_by_key(|input| input.value);
    let values: Vec<u64> = inputs.iter().map(|input| input.value).collect();
    if !(2..=3).contains(&values.len()) {
        return Err(Error::Request(format!("expected two or three recordings, found {}", values.len())));
    }
    if values[0] == 0 || values.windows(2).any(|pair| pair[0] == pair[1]) || values[values.len() - 1] > LARGEST {
        let found = values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        return Err(Error::Request(format!(
            "expected a different {parameter} from 1 to {LARGEST} for each recording, found {found}"
        )));
    }
    Ok(inputs)
}

/// The device of another recording that is this one: the one with its number, or the only one on both sides.
fn same_device<'d, 'a>(device: &Device<'_>, devices: &'d Devices<'a>) -> Option<&'d Device<'a>> {
    let only = || match devices.all() {
        [only] => Some(only),
        _ => None,
    };
    devices.get(device.id()).or_else(only)
}

fn program(device: &Device<'_>) -> std::result::Result<Program, &'static str> {
    if device.id() == HOST_DEVICE {
        return Err("pinned host memory cannot be simulated");
    }
    if let Some(because) = simulation::refusal(device) {
        return Err(because);
    }
    let program = Program::of(device.track).ok_or("the recording has more streams and pools than can be simulated")?;
    if program.steps.iter().all(|step| step.kind != StepKind::Alloc) {
        return Err("the recording contains no allocations; record a few steps");
    }
    Ok(program)
}

/// The first difference between two runs that do not match.
fn mismatch(scaling: &Scaling, first: usize, matching: Matching, pair: &[&Device<'_>]) -> Mismatch {
    let runs = scaling.runs();
    let place = |device: &Device<'_>, entry: u32| {
        let bytes = device.track.entry(entry).map_or(0, |entry| entry.size);
        (entry, bytes, device.sites().site(device.track.stack(entry)))
    };
    let places = matching.first.map(|(a, b)| [place(pair[0], a), place(pair[1], b)]);
    Mismatch { values: (runs[first].value, runs[first + 1].value), matching, first: places }
}

/// Memory by group at the point where the program allocates the most, at a number.
fn peak(predictor: &Predictor<'_, '_>, devices: &[&Device<'_>], value: u64, top: Option<usize>) -> Attribution {
    let scaled = predictor.scaling.at(value, &predictor.setup().rules);
    let device = devices[scaled.template];
    let filter = Filter::default();
    let grouper = Grouper::new(device, device.sites(), &filter, GroupBy::Site).inferring(
        device,
        Inference::On,
        Metric::Allocated,
    );
    let (program, origins) = scaled.whole();
    let setup = predictor.setup();
    let outcome = simulate(&program, &setup);
    // On a device that is too small, the program has no peak.
    let (setup, outcome) = if outcome.failure().is_none() {
        (setup, outcome)
    } else {
        let unlimited = Setup { limits: Limits::default(), ..setup };
        let outcome = simulate(&program, &unlimited);
        (unlimited, outcome)
    };
    let blocks = blocks_at_peak(&program, &setup, outcome.max_allocated).blocks.into_iter();
    let blocks = blocks.filter_map(|(allocation, bytes)| Some((*origins.get(allocation)?.as_ref()?, bytes)));
    let mut attribution = Attribution::of_blocks(&grouper, Metric::Allocated, blocks);
    attribution.keep_top(top.unwrap_or(usize::MAX));
    attribution
}
