//! Memory by stack and labels: held at an instant, and allocated in a part of the history.

use super::code::Code;
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::code::sites::Place;
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder};
use crate::facts::training::steps::StepSource;
use crate::parallel;
use crate::replay::{History, Instant};
use foldhash::fast::RandomState;
use indexmap::IndexMap;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct SamplesOptions {
        /// The instant, window, counter, filters and devices, as for a peak; `by` and `top` have no meaning here.
        pub peak: PeakOptions,
        /// Whether to keep frames that only pass calls on, such as `_call_impl` of modules, C++ frames next to Python
        /// frames, and frames of the allocator, the dispatcher and the interpreter.
        pub all_frames: bool,
    }
}

#[derive(Clone, Debug, Default)]
pub struct SamplesReport {
    pub devices: Vec<DeviceSamples>,
    /// Devices without the requested instant or window, each with the reason.
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DeviceSamples {
    /// The instant at which samples are held, and the window in which they were allocated.
    pub peak: DevicePeak,
    /// Places in code, to which stacks refer.
    pub places: Vec<Place>,
    pub stacks: Vec<Vec<u32>>,
    /// Values of labels, to which samples refer, for each kind of label in the recording.
    pub labels: Vec<(Label, Vec<String>)>,
    /// The samples: blocks with the same stack and labels are one sample.
    pub samples: Vec<Sample>,
    pub steps: Option<StepSource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// See [`GroupBy::Category`].
    Category,
    /// See [`GroupBy::Phase`].
    Phase,
    /// See [`GroupBy::Pool`].
    Pool,
    /// See [`GroupBy::Stream`].
    Stream,
}

impl Label {
    /// Every label, in the order in which samples have them.
    pub const ALL: [Self; 4] = [Self::Category, Self::Phase, Self::Pool, Self::Stream];

    /// The grouping whose rows have the label's values as their labels.
    pub fn group(self) -> GroupBy {
        match self {
            Self::Category => GroupBy::Category,
            Self::Phase => GroupBy::Phase,
            Self::Pool => GroupBy::Pool,
            Self::Stream => GroupBy::Stream,
        }
    }

    /// The name as in flags and files.
    pub fn name(self) -> &'static str {
        self.group().name()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index into [`DeviceSamples::stacks`].
    pub stack: usize,
    /// For each of [`DeviceSamples::labels`], the index of the value.
    pub labels: Vec<u32>,
    /// The step in which the blocks were allocated, counted from 1; `None` outside of steps and before the recording.
    pub step: Option<u32>,
    /// The blocks of the sample that were allocated in the window.
    pub allocated: Sums,
    /// The blocks of the sample that are held at the instant.
    pub held: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub blocks: u64,
    pub bytes: u64,
}

impl Sums {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

impl SamplesReport {
    /// Sums every device's blocks by stack and labels.
    pub fn of(recording: &Devices<'_>, options: &SamplesOptions) -> Result<Self> {
        let peak = PeakOptions { by: GroupBy::Stack, top: None, each: None, ..options.peak.clone() };
        // Without stacks, there is one sample for all memory.
        let report = PeakReport::of_any_grouping(recording, &peak)?;
        let told = |label: &Label| {
            let by = label.group();
            by.require(peak.metric).and_then(|()| by.require_told(recording)).is_ok()
        };
        let labels: Vec<Label> = Label::ALL.into_iter().filter(told).collect();
        let device = |peak: DevicePeak| {
            let device = recording.get(peak.device)?;
            Some(DeviceSamples::of(device, peak, &labels, options))
        };
        Ok(Self { devices: parallel::filter_map(report.devices, device), skipped: report.skipped })
    }
}

impl DeviceSamples {
    fn of(device: &Device<'_>, peak: DevicePeak, labels: &[Label], options: &SamplesOptions) -> Self {
        let (metric, instant) = (peak.metric, peak.instant);
        let (from, to) = peak.window.unwrap_or((0, device.history().entries()));
        let is_held = |born: Instant, gone: Instant| born <= instant && instant < gone;
        let is_allocated = |born: Instant| from < born && born <= to;

        let filter = &options.peak.filter;
        // Blocks that were freed before the instant also need their forward lines.
        let code = Grouper::new(device, device.sites(), filter, GroupBy::Stack);
        let code = code.inferring(device, options.peak.inference, metric);
        let mut stacks = Groups::new(&code);
        let everything = Filter::default();
        let groupers: Vec<Grouper<'_>> =
            labels.iter().map(|label| Grouper::new(device, device.sites(), &everything, label.group())).collect();
        let mut groups: Vec<Groups<'_>> = groupers.iter().map(Groups::new).collect();
        let steps = device.steps().ok().filter(|steps| steps.are_steps());

        let mut sums: IndexMap<SampleKey, (Sums, Sums), RandomState> = IndexMap::default();
        let is_wanted = |born, gone| is_held(born, gone) || is_allocated(born);
        Holder::visit(device.track, metric, is_wanted, |holder| {
            let mut key = SampleKey { stack: only(stacks.of(holder)), ..SampleKey::default() };
            for (value, groups) in key.labels.iter_mut().zip(&mut groups) {
                *value = only(groups.of(holder));
            }
            key.step = steps.zip(holder.entry).and_then(|(steps, entry)| step_of(&steps.ends, entry));
            let (allocated, held) = sums.entry(key).or_default();
            // The rest of a range that was split does not count as allocated again.
            if is_allocated(holder.born) && holder.entry == History::entry_before(holder.born) {
                allocated.add(holder.bytes);
            }
            if is_held(holder.born, holder.gone) {
                held.add(holder.bytes);
            }
        });

        let sample = |(key, (allocated, held)): (SampleKey, (Sums, Sums))| Sample {
            stack: key.stack as usize,
            labels: key.labels[..labels.len()].to_vec(),
            step: key.step,
            allocated,
            held,
        };
        let samples: Vec<Sample> = sums.into_iter().map(sample).filter(Sample::counts).collect();
        let mut places = Code::new(device.sites(), options.all_frames);
        let stacks = stacks.keys().map(|key| places.of(&code, key)).collect();
        let values = |groups: &Groups<'_>| groups.keys().map(|key| groups.grouper.label(key, false)).collect();
        let labels = labels.iter().copied().zip(groups.iter().map(values)).collect();
        let steps = steps.map(|steps| steps.source.clone());
        Self { peak, places: places.into_places(), stacks, labels, samples, steps }
    }

    /// Whether the recording shows allocations over time, and not only the memory at one instant.
    pub fn has_history(&self) -> bool {
        !self.peak.completeness.no_entries
    }

    /// All held memory, and all allocated memory.
    pub fn totals(&self) -> (Sums, Sums) {
        let mut totals = (Sums::default(), Sums::default());
        for sample in &self.samples {
            for (total, sums) in [(&mut totals.0, sample.held), (&mut totals.1, sample.allocated)] {
                total.blocks += sums.blocks;
                total.bytes = total.bytes.wrapping_add(sums.bytes);
            }
        }
        totals
    }
}

impl Sample {
    /// Whether it contains any block: a split range is allocated once, under the entry that allocated it.
    fn counts(&self) -> bool {
        self.allocated.blocks > 0 || self.held.blocks > 0
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct SampleKey {
    stack: u32,
    labels: [u32; Label::ALL.len()],
    step: Option<u32>,
}

/// The group of a holder; each holder is in one of the groups by stack and labels.
fn only(groups: &[usize]) -> u32 {
    groups.first().map_or(0, |&group| group as u32)
}

/// The step that an entry is in, counted from 1.
fn step_of(ends: &[Instant], entry: u32) -> Option<u32> {
    let step = ends.partition_point(|&end| end <= entry);
    (step < ends.len()).then_some(step as u32 + 1)
}
