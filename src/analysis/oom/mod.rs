//! Failed requests: the request, the free memory, why it did not fit, and what would have helped.

mod advice;
mod cause;
mod request;
mod settings;
mod signature;

pub use advice::{Advice, Fit};
pub use cause::{Cause, KnownCapacity, Symptom};
pub(crate) use cause::{kept_since, leak};
pub use request::{Request, Retry, Serving};
pub use settings::Replayed;

use crate::allocator::SettingsWarning;
use crate::analysis::advice::{Advice as Cure, Changes, Rescue, Simulate as CurePlays, advice as cures, changes};
use crate::analysis::ledger::Ledger;
use crate::analysis::peak::comparison::Comparison;
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::grouping::attribution::Attribution;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Inference};
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::{Layout, Sweep};
use crate::facts::segments::pinning::Pinning;
use crate::facts::time::moment::Moment;
use crate::model::{Action, BlockState, DeviceId};
use crate::parallel;
use crate::replay::{Anomalies, Completeness, Counters, History, Instant, Metric, Track};
use crate::simulation::plans::DevicePlans;
use crate::wire::ranks::FailureSignature;
use advice::Turnover;
use settings::Simulate;

/// Number of failed requests of a device whose history is replayed with other settings: a replay takes as long as reading.
const REPLAYED: usize = 3;

/// Number of failed requests of a device for which all rows are kept, each with an example of its stacks. A program that
/// retries has thousands of failures, and the same code holds the memory.
pub const IN_FULL: usize = 10;
/// Maximum number of rows of the variables that keep the memory.
const HOLDERS: usize = 5;
/// Maximum number of rows of the other failed requests.
pub const ROWS_LATER: usize = 20;
/// Total number of blocks that are attributed for all failed requests of a device; later requests have only totals.
const MOST_BLOCKS: usize = 200_000;
/// Total number of blocks that are examined for all failed requests of a device; later failed requests are only counted.
/// Every request is compared with all blocks live at that time, so without a limit the time would be quadratic.
const MOST_LOOKED_AT: usize = 20_000_000;

options! {
    /// Options of the analysis.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct OomOptions {
        /// What rows represent.
        pub by: GroupBy,
        /// Maximum number of rows; the rest is one row.
        pub top: Option<usize>,
        /// The filter on stacks.
        pub filter: Filter,
        /// Whether labels may be inferred.
        pub inference: Inference,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
        /// Whether to look for changes to the program that would have made room: see [`DevicePlans::of_failure`].
        pub plans: bool,
        /// Whether to look for mistakes in the program, and which cures to simulate.
        pub cures: Option<CurePlays>,
        /// Number of failed requests to explain for each device, the first ones; all if `None`.
        pub explained: Option<usize>,
        /// Whether to look for mistakes only if a request failed, and not for the peak that is shown otherwise.
        pub cures_of_failures: bool,
    }
}

/// A failed request.
#[derive(Clone, Debug)]
pub struct Oom {
    /// Where it happened.
    pub moment: Moment,
    /// The request, and the code that made it.
    pub request: Request,
    /// Free bytes of the device, as the driver reported after the retry.
    pub device_free: u64,
    /// The memory that the allocator returned to the driver before the retry.
    pub retry: Retry,
    /// Sums over all segments.
    pub figures: Figures,
    /// The segments whose free blocks could have served the request.
    pub serving: Serving,
    /// Why it failed.
    pub cause: Cause,
    pub evidence: Vec<Symptom>,
    /// What would have helped, as far as the recording shows.
    pub advice: Vec<Advice>,
    /// Who has allocated the bytes in use.
    pub attribution: Attribution,
    /// The variables that keep them, if the recording has holders and rows are others. The first few; later failed requests have
    /// none.
    pub holders: Option<Attribution>,
    /// The blocks that keep free memory from being released.
    pub pinning: Pinning,
    /// The signature, which the same failure shares with other runs; `None` unless rows are all sites.
    pub signature: Option<FailureSignature>,
}

/// A failed request, without its cause: the request, and the memory that could have served it.
#[derive(Clone, Debug)]
pub struct Unserved {
    pub request: Request,
    /// The segments whose free blocks could have served it.
    pub serving: Serving,
    /// Bytes of the free blocks in these, the largest first.
    pub holes: Vec<u64>,
}

impl Unserved {
    /// The request that failed at the last entry before an instant, given the layout at that instant; `None` if that entry is
    /// not a failed request.
    pub fn at(device: &Device<'_>, instant: Instant, layout: &Layout) -> Option<Self> {
        let track = device.track;
        let entry = History::entry_before(instant)?;
        (track.entry(entry)?.action == Action::Oom).then(|| {
            let request = Request::of(track, device.sites(), entry, layout, None);
            let serving = Serving::of(track, &request, layout);
            let segments = layout.segments.iter().filter(|segment| request.may_use(segment));
            let pieces = segments.flat_map(|segment| layout.pieces_of(segment));
            let free = pieces.filter(|piece| piece.state == BlockState::Inactive);
            let mut holes: Vec<u64> = free.map(|piece| piece.size).collect();
            holes.sort_unstable_by(|a, b| b.cmp(a));
            Self { request, serving, holes }
        })
    }
}

#[derive(Clone, Debug)]
pub struct DeviceOoms {
    /// Device, -1 for pinned host memory.
    pub device: DeviceId,
    /// Number of entries of the device.
    pub entries: u32,
    /// Number of its failed requests.
    pub failed: usize,
    /// The explained ones, which are the first, in order. After the first [`IN_FULL`], they have at most
    /// [`ROWS_LATER`] rows, without stacks.
    pub ooms: Vec<Oom>,
    /// How many of them are not attributed, because there are too many: the last ones.
    pub unattributed: usize,
    /// Its peak of allocated bytes instead, if no device of the recording has a failed request.
    pub peak: Option<DevicePeak>,
    /// Changes to the program that would have made room for the failed request, if requested and known.
    pub plans: Option<DevicePlans>,
    /// Changes to the program, if requested.
    pub cures: Vec<Cure>,
    /// What lets the first failed request succeed, and whether the whole step then fits, if requested and known.
    pub rescue: Option<Rescue>,
    /// What used the device when a request failed, if it was sampled then.
    pub ledger: Option<Ledger>,
    /// Counters before the first kept entry.
    pub baseline: Counters,
    /// Allocator settings without the effect that they seem to have; shown if a request failed.
    pub warnings: Vec<SettingsWarning>,
    /// What the recording lacks.
    pub completeness: Completeness,
    /// Contradictions in it.
    pub anomalies: Anomalies,
}

/// All devices.
#[derive(Clone, Debug, Default)]
pub struct OomReport {
    /// The selected devices, in order.
    pub devices: Vec<DeviceOoms>,
    /// Failed requests of devices that were not requested.
    pub elsewhere: usize,
    /// How CUDA devices compare, each at its own peak of allocated bytes; `None` if they hardly differ.
    pub comparison: Option<Comparison>,
}

impl OomReport {
    /// Explains every failed request.
    ///
    /// # Errors
    /// If a device does not exist, or the recording does not show the groups.
    pub fn of(recording: &Devices<'_>, options: &OomOptions) -> Result<Self> {
        options.by.require_told(recording)?;
        let wanted = recording.wanted(&options.devices)?;
        let (mut devices, _) = ask_each(&wanted, |device| Ok(DeviceOoms::of(device, options)))?;
        for (device, of) in devices.iter_mut().zip(&wanted).filter(|(device, _)| device.failed > 0) {
            device.ledger = Ledger::when_failed(recording, of);
        }
        let none_failed = devices.iter().all(|device| device.ooms.is_empty());
        if let Some(simulate) = options.cures.filter(|_| !(none_failed && options.cures_of_failures)) {
            let cured = |(ooms, device): (DeviceOoms, &&Device<'_>)| ooms.with_changes(changes(device, simulate));
            devices = parallel::map(devices.into_iter().zip(&wanted), cured);
        }
        let mut comparison = None;
        if none_failed || devices.len() > 1 {
            let OomOptions { by, top, filter, inference, devices: wanted, .. } = options.clone();
            let peaks = PeakOptions { by, top, filter, inference, devices: wanted, ..PeakOptions::default() };
            let peaks = PeakReport::of(recording, &peaks)?;
            comparison = peaks.comparison;
            for (device, peak) in devices.iter_mut().zip(peaks.devices).filter(|_| none_failed) {
                device.peak = Some(peak);
            }
        }
        let is_wanted = |other: &&Device<'_>| wanted.iter().any(|device| device.id() == other.id());
        let others = recording.all().iter().filter(|device| !is_wanted(device));
        let elsewhere = others.map(|device| device.track.count_of(Action::Oom) as usize).sum();
        Ok(Self { devices, elsewhere, comparison })
    }

    /// Number of failed requests on all devices.
    pub fn count(&self) -> usize {
        self.devices.iter().map(|device| device.failed).sum()
    }
}

/// How much is computed for a failed request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// The full answer, with simulations of its history.
    Replayed,
    /// All except the simulations.
    Full,
    /// [`ROWS_LATER`] rows.
    Largest,
    /// Figures, without attribution.
    Totals,
    /// The data for the signature.
    Signed,
}

/// Data that every failed request of a device needs.
struct Explainer<'d, 'a> {
    device: &'d Device<'a>,
    options: &'d OomOptions,
    grouper: Grouper<'d>,
    /// Groups by holder, if the recording has holders.
    holders: Option<Grouper<'d>>,
    capacity: cause::KnownCapacity,
    simulate: Simulate<'a>,
}

/// The entries of a device's failed requests that can be explained.
fn failed_entries(track: Track<'_>) -> Vec<u32> {
    // Without segments, the recording does not show why a request failed.
    let explained = track.snapshot.notes.format.has_segments();
    let failed = (0u32..).zip(track.actions()).filter(|&(_, &action)| explained && action == Action::Oom);
    failed.map(|(entry, _)| entry).collect()
}

/// The signatures of a device's first failed requests, as in [`Oom::signature`].
pub(crate) fn signatures(device: &Device<'_>, most: usize) -> Vec<FailureSignature> {
    let failed = failed_entries(device.track);
    if failed.is_empty() {
        return Vec::new();
    }
    let options = OomOptions::default();
    let explainer = Explainer::new(device, &options, &failed);
    let (mut sweep, mut turnover) = (Sweep::new(device.track), Turnover::new(device.track, device.deep_sites()));
    let sign = |entry: u32| {
        let layout = sweep.at(entry + 1);
        turnover.advance(entry);
        explainer.explain(entry, &layout, &turnover, Detail::Signed)
    };
    let mut ooms: Vec<Oom> = failed.into_iter().take(most).map(sign).collect();
    if ooms.iter().any(Oom::may_be_a_leak) {
        let cures = cures(device, CurePlays::All);
        for oom in &mut ooms {
            oom.look_for_a_leak(&cures);
        }
    }
    ooms.into_iter().filter_map(|oom| oom.signature).collect()
}

impl Oom {
    /// Whether memory that accumulates may be the cause.
    fn may_be_a_leak(&self) -> bool {
        self.cause == Cause::Fragmentation
    }

    /// Names memory that accumulates as the cause, if one of these cures shows that it is.
    fn look_for_a_leak(&mut self, cures: &[Cure]) {
        if !self.may_be_a_leak() {
            return;
        }
        let capacity = self.figures.reserved.saturating_add(self.device_free);
        let Some(symptom) = leak(cures, capacity) else { return };
        self.cause = Cause::Leak;
        self.evidence.insert(0, symptom);
        self.signature = self.signature.take().map(|signature| signature.because_of(Cause::Leak));
    }
}

impl DeviceOoms {
    fn of(device: &Device<'_>, options: &OomOptions) -> Self {
        let (track, history, sites) = (device.track, device.history(), device.deep_sites());
        let mut failed = failed_entries(track);
        let mut sweep = Sweep::new(track);
        let mut turnover = Turnover::new(track, sites);
        let explainer = Explainer::new(device, options, &failed);
        let number = failed.len();
        failed.truncate(options.explained.unwrap_or(usize::MAX));
        let (mut blocks, mut unattributed) = (0, 0);
        let explain = |(number, entry)| {
            if blocks > MOST_LOOKED_AT {
                return None;
            }
            let layout = sweep.at(entry + 1);
            turnover.advance(entry);
            let detail = match number {
                ..REPLAYED => Detail::Replayed,
                REPLAYED..IN_FULL => Detail::Full,
                _ if blocks < MOST_BLOCKS => Detail::Largest,
                _ => Detail::Totals,
            };
            blocks += layout.pieces.len();
            unattributed += usize::from(detail == Detail::Totals);
            Some(explainer.explain(entry, &layout, &turnover, detail))
        };
        let mut ooms: Vec<Oom> = failed.iter().copied().enumerate().map_while(explain).collect();
        for (oom, attempts) in ooms.iter_mut().skip(1).zip(failed.windows(2)).take(IN_FULL) {
            oom.evidence.extend(kept_since(history, attempts[0], attempts[1]));
        }
        let is_full = options.plans && ooms.iter().any(|oom| oom.cause == Cause::Capacity);
        let plans = if is_full { DevicePlans::of_failure(device) } else { None };
        let settings = &track.snapshot.settings;
        let warnings = if ooms.is_empty() { Vec::new() } else { SettingsWarning::of_recorded(settings) };
        Self {
            device: device.id(),
            entries: history.entries(),
            failed: number,
            ooms,
            unattributed,
            peak: None,
            plans,
            cures: Vec::new(),
            rescue: None,
            ledger: None,
            baseline: history.start,
            warnings,
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
        }
    }

    /// Adds what to change in the program. The line that allocated the memory is not an answer if the line that keeps
    /// it is known, and neither is fragmentation if a leak fills the memory.
    pub(crate) fn with_changes(mut self, changes: Changes) -> Self {
        let Changes { advice: cures, rescue } = changes;
        for oom in &mut self.ooms {
            oom.look_for_a_leak(&cures);
        }
        if cures.iter().any(|cure| cure.saving.most() > 0) {
            for oom in &mut self.ooms {
                oom.advice.retain(|advice| !matches!(advice, Advice::FreeSites { .. }));
            }
        }
        Self { cures, rescue, ..self }
    }
}

impl<'d, 'a> Explainer<'d, 'a> {
    /// Data for the requests that failed at some entries.
    fn new(device: &'d Device<'a>, options: &'d OomOptions, failed: &[u32]) -> Self {
        let track = device.track;
        let mut grouper = Grouper::new(device, device.deep_sites(), &options.filter, options.by);
        if !failed.is_empty() {
            grouper = grouper.inferring(device, options.inference, Metric::Allocated);
        }
        let is_asked = matches!(options.by, GroupBy::Holder | GroupBy::HolderRoot);
        let holders = (!is_asked && device.held().is_some())
            .then(|| Grouper::new(device, device.deep_sites(), &options.filter, GroupBy::HolderRoot));
        let (capacity, simulate) = (cause::known_capacity(track, failed), Simulate::of(track));
        Self { device, options, grouper, holders, capacity, simulate }
    }

    fn explain(&self, entry: u32, layout: &Layout, turnover: &Turnover<'_>, detail: Detail) -> Oom {
        let Self { device, options, ref grouper, capacity, ref simulate, .. } = *self;
        let (track, history, sites) = (device.track, device.history(), device.deep_sites());
        let instant: Instant = entry + 1;
        let device_free = track.entry(entry).map_or(0, |recorded| recorded.addr);
        let request = Request::of(track, sites, entry, layout, turnover.last_with_python);
        let serving = Serving::of(track, &request, layout);
        let figures = Figures::of(history, layout);

        let pieces = layout.pieces.iter().filter(|piece| piece.state == BlockState::ActiveAllocated);
        let stray = layout.stray.iter().copied().filter(|&index| history.allocations[index].allocated_at(instant));
        let held: Vec<usize> = pieces.filter_map(|piece| piece.allocation).chain(stray).collect();
        let later = matches!(detail, Detail::Largest | Detail::Totals);
        let (mut attribution, mut pinning) = if detail == Detail::Totals {
            let attribution = Attribution::in_total(options.by, history, Metric::Allocated, held.iter().copied());
            (attribution, Pinning::in_total(history, layout))
        } else {
            let attribution = Attribution::of_allocations(grouper, Metric::Allocated, held.iter().copied());
            (attribution, Pinning::of(grouper, layout))
        };
        let holders = self.holders.as_ref().filter(|_| !later).map(|grouper| {
            let mut holders = Attribution::of_allocations(grouper, Metric::Allocated, held.iter().copied());
            holders.rows.iter_mut().for_each(|row| row.stack.clear());
            holders.keep_top(HOLDERS);
            holders
        });
        let retry = Retry::before(track, entry);
        let facts = cause::Facts {
            track,
            sites: device.sites(),
            entry,
            request: &request,
            retry,
            device_free,
            figures: &figures,
        };
        let (cause, evidence) = facts.judge(&serving, capacity, &pinning);
        let simulate = (detail == Detail::Replayed && !serving.assumed).then_some(simulate);
        let advice = advice::Adviser { facts: &facts, serving: &serving, layout, cause, simulate };
        let is_bare = matches!(detail, Detail::Totals | Detail::Signed);
        let advice = if is_bare { Vec::new() } else { advice.advise(turnover, sites) };
        if later {
            attribution.rows.iter_mut().for_each(|row| row.stack.clear());
            pinning.rows.iter_mut().for_each(|row| row.stack.clear());
        }
        let most = if later { Some(ROWS_LATER) } else { None };
        let is_by_site = options.by == GroupBy::Site && options.filter.is_empty() && detail != Detail::Totals;
        let signature = is_by_site.then(|| FailureSignature::of(&request, cause, &attribution));
        if let Some(top) = options.top.into_iter().chain(most).min() {
            attribution.keep_top(top);
            pinning.keep_top(top, options.by.is_inclusive());
        }
        Oom {
            moment: Moment::of(track, device.annotations(), instant),
            request,
            retry,
            device_free,
            figures,
            serving,
            cause,
            evidence,
            advice,
            attribution,
            holders,
            pinning,
            signature,
        }
    }
}
