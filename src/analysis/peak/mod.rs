//! The peak of each device, or any other instant, and what holds the memory there.

pub mod comparison;
pub mod each;

use crate::analysis::code::sites::Sites;
use crate::analysis::grouping::attribution::Attribution;
use crate::analysis::grouping::filter::Filter;
use crate::analysis::grouping::{GroupBy, Grouper, Inference};
use crate::analysis::time::annotations::Annotations;
use crate::analysis::time::place::Place;
use crate::analysis::time::when::{Purpose, When};
use crate::error::{Error, Result};
use crate::model::{DeviceId, HOST_DEVICE, Snapshot};
use crate::replay::profile::OperatorUsage;
use crate::replay::{Anomalies, Bound, Completeness, Counters, History, Instant, Maximum, Metric};
use comparison::Comparison;
use each::{EachOptions, Question, RangePeaks};
use indexmap::{IndexMap, IndexSet};
use rayon::prelude::*;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct PeakOptions {
    /// The counter whose peak is wanted and whose bytes are attributed.
    pub metric: Metric,
    /// What rows stand for.
    pub by: GroupBy,
    /// Another instant than the peak.
    pub at: Option<When>,
    /// Start of the window in which the peak is searched.
    pub from: Option<When>,
    /// End of that window.
    pub to: Option<When>,
    /// Number of rows kept; the rest is one row.
    pub top: Option<usize>,
    /// Stacks that count.
    pub filter: Filter,
    /// Whether labels may be inferred.
    pub inference: Inference,
    /// Devices wanted; empty for all.
    pub devices: Vec<DeviceId>,
    /// Ranges whose own peaks are wanted, too.
    pub each: Option<EachOptions>,
}

/// One device at its peak.
#[derive(Clone, Debug)]
pub struct DevicePeak {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: DeviceId,
    /// Counters before the first kept entry.
    pub baseline: Counters,
    /// First and last instant of the part of the history that is looked at, when it is not the whole.
    pub window: Option<(Instant, Instant)>,
    /// The counter looked at.
    pub metric: Metric,
    /// The instant looked at: the peak, or what was asked for instead.
    pub instant: Instant,
    /// The entry that leads to it, counted within the device's trace; `None` before the first entry.
    pub entry: Option<u32>,
    /// Time of that entry in microseconds since the epoch, where the file has times.
    pub time_us: Option<i64>,
    /// The same, counted from the device's first entry.
    pub since_start_us: Option<i64>,
    /// Counters at the instant.
    pub at: Counters,
    /// Names of the open annotations, outermost first.
    pub annotations: Vec<String>,
    /// Each counter's maximum within the window, in the order of [`Metric::ALL`].
    pub maxima: [Maximum; 4],
    /// Counters at the end of the window.
    pub end: Counters,
    /// Number of entries of the device.
    pub entries: u32,
    /// Who holds the memory.
    pub attribution: Attribution,
    /// The peaks of the ranges asked for.
    pub ranges: Option<RangePeaks>,
    /// What each operator allocated and freed over the whole recording, under [`GroupBy::Operator`] where it tells.
    pub operators: Vec<OperatorUsage>,
    /// What the recording lacks.
    pub completeness: Completeness,
    /// Contradictions in it.
    pub anomalies: Anomalies,
}

impl DevicePeak {
    /// Whether a metric's maximum lies at the very start of an incomplete history.
    pub fn is_early(&self, metric: Metric) -> bool {
        self.maxima[metric as usize].instant == 0 && self.completeness.has_baseline
    }

    /// Which of `baseline_bytes` and the metrics' maxima are not exact, by their names in JSON.
    pub fn bounds(&self) -> IndexMap<String, Bound> {
        let baseline = self.completeness.baseline_bound().map(|bound| ("baseline_bytes".to_owned(), bound));
        let maximum = |metric: Metric| {
            let early = || self.is_early(metric).then_some(Bound::Lower);
            let bound = self.completeness.bound(metric).or_else(early)?;
            Some((format!("{}_bytes", metric.name()), bound))
        };
        baseline.into_iter().chain(Metric::ALL.into_iter().filter_map(maximum)).collect()
    }
}

/// Peaks of all devices.
#[derive(Clone, Debug, Default)]
pub struct PeakReport {
    /// The devices asked for, in order.
    pub devices: Vec<DevicePeak>,
    /// How CUDA devices compare, each at its own peak; `None` where they hardly differ.
    pub comparison: Option<Comparison>,
    /// Devices that the instant asked for does not exist on, each with the reason.
    pub skipped: Vec<String>,
}

impl PeakReport {
    /// Finds each device's peak and attributes it.
    ///
    /// # Errors
    /// When a device does not exist, the instant asked for exists on none, or the counter cannot be grouped as asked.
    pub fn of(snapshot: &Snapshot, histories: &[History], options: &PeakOptions) -> Result<Self> {
        options.by.require(options.metric)?;
        let wanted = select_devices(histories, &options.devices)?;
        let annotations = Annotations::of(snapshot);
        let sites = Sites::of(snapshot, histories);
        let (mut devices, skipped) =
            for_each_device(&wanted, |history| device_peak(snapshot, history, &annotations, &sites, options))?;
        let at_peak = matches!(options.at, None | Some(When::Peak));
        let comparison = if at_peak { Comparison::of(&devices) } else { None };
        if let Some(top) = options.top {
            for device in &mut devices {
                device.attribution.keep_top(top);
            }
        }
        Ok(Self { devices, comparison, skipped })
    }
}

/// What `answer` says about each device, in order, and why it says nothing about others.
///
/// # Errors
/// The first one, when there is an error for every device.
pub(crate) fn for_each_device<D: Send>(
    histories: &[&History],
    answer: impl Fn(&History) -> Result<D> + Sync,
) -> Result<(Vec<D>, Vec<String>)> {
    let results: Vec<Result<D>> = histories.par_iter().map(|history| answer(history)).collect();
    let (mut devices, mut skipped, mut first_error) = (Vec::new(), Vec::new(), None);
    for result in results {
        match result {
            Ok(device) => devices.push(device),
            Err(error) => {
                skipped.push(error.to_string());
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if devices.is_empty() => Err(error),
        _ => Ok((devices, skipped)),
    }
}

/// The histories of the devices asked for; of all that have data when none is named, host memory last.
///
/// # Errors
/// When one is named that the recording does not have.
pub fn select_devices<'h>(histories: &'h [History], devices: &[DeviceId]) -> Result<Vec<&'h History>> {
    if devices.is_empty() {
        let (host, gpus): (Vec<_>, Vec<_>) = histories.iter().partition(|history| history.device <= HOST_DEVICE);
        return Ok([gpus, host].concat());
    }
    let find = |&device: &DeviceId| {
        histories.iter().find(|history| history.device == device).ok_or_else(|| {
            let known: Vec<String> = histories.iter().map(|history| history.device.to_string()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::Request(format!("expected one of the recorded devices ({known}), found {device}"))
        })
    };
    let distinct: IndexSet<&DeviceId> = devices.iter().collect();
    distinct.into_iter().map(find).collect()
}

/// The peak of one device, with all rows.
fn device_peak(
    snapshot: &Snapshot,
    history: &History,
    annotations: &Annotations,
    sites: &Sites<'_>,
    options: &PeakOptions,
) -> Result<DevicePeak> {
    let metric = options.metric;
    let resolve = |when: &Option<When>, purpose, default| match when {
        Some(when) => when.resolve(snapshot, history, annotations, metric, purpose),
        None => Ok(default),
    };
    let from = resolve(&options.from, Purpose::From, 0)?;
    let to = resolve(&options.to, Purpose::To, history.entries())?;
    if from > to {
        return Err(Error::Request(format!("expected --from before --to on device {}", history.device)));
    }
    let whole = from == 0 && to == history.entries();
    let (maxima, end) = if whole { (history.maxima, history.end) } else { window(snapshot, history, from, to) };
    let peak = maxima[metric as usize].instant;
    let instant = match &options.at {
        None | Some(When::Peak) => peak,
        at => resolve(at, Purpose::At, peak)?,
    };

    let Place { entry, time_us, since_start_us, annotations: names, .. } =
        Place::of(snapshot, history, annotations, instant);
    let grouper = Grouper::new(sites, annotations, &options.filter, snapshot, history, options.by).inferring(
        options.inference,
        history,
        metric,
        // Ranges have their peaks at many instants.
        Some(instant).filter(|_| options.each.is_none()),
    );
    let attribution = Attribution::of(&grouper, history, (metric, instant));
    let question = Question {
        snapshot,
        history,
        annotations,
        sites,
        metric,
        window: (from, to),
        highest: maxima[metric as usize],
    };
    let ranges = options.each.as_ref().map(|each| RangePeaks::of(&question, &grouper, each)).transpose()?;
    Ok(DevicePeak {
        device: history.device,
        baseline: history.start,
        window: (!whole).then_some((from, to)),
        metric,
        instant,
        entry,
        time_us,
        since_start_us,
        at: history.counters_at(snapshot, instant),
        annotations: names,
        maxima,
        end,
        entries: history.entries(),
        attribution,
        ranges,
        operators: if options.by == GroupBy::Operator { history.operators.clone() } else { Vec::new() },
        completeness: history.completeness,
        anomalies: history.anomalies.clone(),
    })
}

/// Maxima within the instants `from..=to`, and the counters at the last of them.
fn window(snapshot: &Snapshot, history: &History, from: Instant, to: Instant) -> ([Maximum; 4], Counters) {
    let mut maxima = Metric::ALL.map(|metric| Maximum { bytes: history.start.get(metric), instant: 0 });
    let mut end = history.start;
    history.walk_to(snapshot, to, |instant, counters| {
        for (maximum, metric) in maxima.iter_mut().zip(Metric::ALL) {
            let bytes = counters.get(metric);
            if instant == from || (instant > from && bytes > maximum.bytes) {
                *maximum = Maximum { bytes, instant };
            }
        }
        end = *counters;
    });
    (maxima, end)
}

/// Where a metric is highest within the instants `from..=to`.
pub fn highest(snapshot: &Snapshot, history: &History, metric: Metric, from: Instant, to: Instant) -> Maximum {
    window(snapshot, history, from, to).0[metric as usize]
}
