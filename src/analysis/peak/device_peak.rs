//! One device at its peak, or at any other instant.

use super::each::{EachOptions, Question, RangePeaks};
use crate::error::{Error, Result};
use crate::facts::device::Device;
use crate::facts::grouping::attribution::Attribution;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Inference, Mean};
use crate::facts::time::moment::Moment;
use crate::facts::time::when::{Purpose, When};
use crate::model::{DeviceId, device_words};
use crate::replay::OperatorUsage;
use crate::replay::{Anomalies, Bound, Completeness, Counters, Instant, Maximum, Metric};
use indexmap::IndexMap;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct PeakOptions {
        /// The counter whose peak is requested and whose bytes are attributed.
        pub metric: Metric,
        pub by: GroupBy,
        pub at: Option<When>,
        pub from: Option<When>,
        pub to: Option<When>,
        /// Whether rows show the mean of the counter from `from` to `to`, rather than an instant.
        pub mean: bool,
        /// Maximum number of rows; the rest is one row.
        pub top: Option<usize>,
        pub filter: Filter,
        pub inference: Inference,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// Ranges whose own peaks are also requested.
        pub each: Option<EachOptions>,
        /// Whether rows show the category of most of their memory, if they are sites.
        pub categories: bool,
    }
}

#[derive(Clone, Debug)]
pub struct DevicePeak {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: DeviceId,
    pub baseline: Counters,
    /// First and last instant of the selected part of the history, if it is not the whole history.
    pub window: Option<(Instant, Instant)>,
    pub metric: Metric,
    pub instant: Instant,
    /// The entry that leads to it, counted within the device's trace; `None` before the first entry.
    pub entry: Option<u32>,
    /// Time of that entry in microseconds since the epoch, if the file has times.
    pub time_us: Option<i64>,
    /// The same, counted from the first entry of the recording.
    pub since_start_us: Option<i64>,
    pub at: Counters,
    /// Names of the open annotations, outermost first.
    pub annotations: Vec<String>,
    /// Each counter's maximum within the window, in the order of [`Metric::ALL`].
    pub maxima: [Maximum; 4],
    pub end: Counters,
    pub entries: u32,
    /// See [`crate::replay::Track::has_only_markers`].
    pub has_only_markers: bool,
    pub attribution: Attribution,
    pub ranges: Option<RangePeaks>,
    /// The memory that each operator allocated and freed over the whole recording, under [`GroupBy::Operator`] if
    /// recorded.
    pub operators: Vec<OperatorUsage>,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
}

impl DevicePeak {
    pub(super) fn of(device: &Device<'_>, options: &PeakOptions) -> Result<Self> {
        let (track, history, metric) = (device.track, device.history(), options.metric);
        let resolve = |when: &Option<When>, purpose, default| match when {
            Some(when) => device.instant(when, metric, purpose),
            None => Ok(default),
        };
        let from = resolve(&options.from, Purpose::From, 0)?;
        let to = resolve(&options.to, Purpose::To, history.entries())?;
        if from > to {
            return Err(Error::Request(format!("expected --from before --to on {}", device_words(device.id()))));
        }
        let whole = from == 0 && to == history.entries();
        let (maxima, end) = if whole { (history.maxima, history.end) } else { track.maxima(from, to) };
        let peak = maxima[metric as usize].instant;
        let instant = match &options.at {
            None | Some(When::Peak) => peak,
            at => resolve(at, Purpose::At, peak)?,
        };
        let grouper = Grouper::new(device, device.deep_sites(), &options.filter, options.by).inferring(
            device,
            options.inference,
            metric,
        );
        let tells = options.categories && options.by == GroupBy::Site;
        let grouper = if tells { grouper.with_purposes(device, metric) } else { grouper };
        let attribution = if options.mean {
            Attribution::of_mean(&grouper, metric, &Mean::of(track, (from, to))?)
        } else {
            Attribution::of(&grouper, (metric, instant))
        };
        let question = Question { device, metric, window: (from, to), highest: maxima[metric as usize] };
        let ranges = options.each.as_ref().map(|each| RangePeaks::of(&question, &grouper, each)).transpose()?;
        let Moment { entry, time_us, since_start_us, annotations, .. } =
            Moment::of(track, device.annotations(), instant);
        Ok(Self {
            device: device.id(),
            baseline: history.start,
            window: (!whole).then_some((from, to)),
            metric,
            instant,
            entry,
            time_us,
            since_start_us,
            at: track.counters_at(instant),
            annotations,
            maxima,
            end,
            entries: history.entries(),
            has_only_markers: track.has_only_markers(),
            attribution,
            ranges,
            operators: if options.by == GroupBy::Operator { history.operators.clone() } else { Vec::new() },
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        })
    }

    /// Whether a metric's maximum is at the very start of an incomplete history.
    pub fn is_early(&self, metric: Metric) -> bool {
        self.maxima[metric as usize].instant == 0 && self.completeness.has_baseline
    }

    /// Whether only one instant of an incomplete history is known, so that nothing shows its peak.
    pub fn is_single(&self) -> bool {
        self.entries == 1 && self.completeness.has_baseline
    }

    /// Whether nothing was ever allocated or reserved.
    pub fn is_empty(&self) -> bool {
        self.maxima.iter().all(|maximum| maximum.bytes == 0) && self.attribution.total_bytes == 0
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
