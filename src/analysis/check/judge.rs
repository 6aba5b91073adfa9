//! Judges each budget on each device.

use super::budget::{Budgets, ResidueLimit, SiteLimit, Tolerance};
use super::culprits::{Basis, Culprits, Locations};
use super::earlier::EarlierDevice;
use super::leak;
use super::measure::{Measured, keeps, maximum, of_sites};
use super::outcome::{Amount, Check, CheckKind, CheckVerdict, CheckedDevice};
use super::residue;
use crate::analysis::fragmentation::{DeviceFragmentation, FragmentationOptions, FragmentationReport};
use crate::analysis::leaks::{DeviceLeaks, LeakOptions, LeakReport};
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error;
use crate::facts::device::{Device, Devices};
use crate::facts::doubts::{self, Doubt, Leaves};
use crate::facts::grouping::attribution::{Attribution, Row, grouped_rows};
use crate::facts::grouping::filter::{Filter, matching_stacks};
use crate::facts::grouping::{GroupBy, Grouper, Inference, Key};
use crate::facts::time::when::When;
use crate::model::percent::Percent;
use crate::model::{Action, DeviceId, Format, Snapshot};
use crate::replay::{Instant, Metric};
use indexmap::{IndexMap, IndexSet};

#[derive(Clone, Copy)]
enum Limit<'b> {
    Peak(u64),
    Reserved(u64),
    Fragmentation(Percent),
    Leak(u64),
    Site(&'b SiteLimit),
    Residue(&'b ResidueLimit),
    Growth(Metric),
}

impl Limit<'_> {
    /// The limit as shown; for growth, it follows from the baseline.
    fn amount(self) -> Option<Amount> {
        match self {
            Self::Peak(bytes) | Self::Reserved(bytes) | Self::Leak(bytes) => Some(Amount::Bytes(bytes)),
            Self::Site(limit) => Some(Amount::Bytes(limit.limit.0)),
            Self::Residue(limit) => Some(Amount::Bytes(limit.limit.0)),
            Self::Fragmentation(percent) => Some(Amount::Share(percent.share())),
            Self::Growth(_) => None,
        }
    }

    fn kind(self) -> CheckKind {
        match self {
            Self::Peak(_) => CheckKind::MaxPeak,
            Self::Reserved(_) => CheckKind::MaxReserved,
            Self::Fragmentation(_) => CheckKind::MaxFragmentation,
            Self::Leak(_) => CheckKind::MaxLeak,
            Self::Site(limit) => CheckKind::MaxSite(limit.pattern.as_str().to_owned()),
            Self::Residue(limit) => CheckKind::MaxResidue(limit.between.clone()),
            Self::Growth(Metric::Reserved) => CheckKind::BaselineReserved,
            Self::Growth(_) => CheckKind::BaselinePeak,
        }
    }
}

/// A recording, with values that are computed once.
pub(super) struct Judge<'d, 'a> {
    recording: &'d Devices<'a>,
    peaks: Vec<DevicePeak>,
}

#[derive(Clone, Copy)]
struct Case<'d, 'a> {
    device: &'d Device<'a>,
    peak: &'d DevicePeak,
    before: Option<&'d EarlierDevice>,
}

impl<'d, 'a> Judge<'d, 'a> {
    pub(super) fn new(recording: &'d Devices<'a>) -> Self {
        // The only error is a device that does not exist, and none is requested.
        let peaks = PeakReport::of(recording, &PeakOptions::default()).unwrap_or_default().devices;
        Self { recording, peaks }
    }

    pub(super) fn locations(&self) -> Locations {
        Locations::of(self.recording.sites())
    }

    /// The devices that budgets apply to: the named ones, or else those with data here, then those of the baseline.
    pub(super) fn devices(&self, budgets: &Budgets) -> IndexSet<DeviceId> {
        if !budgets.devices.is_empty() {
            return budgets.devices.iter().copied().collect();
        }
        let here = self.peaks.iter().map(|peak| peak.device);
        here.chain(budgets.baseline.iter().flat_map(|baseline| &baseline.devices).map(|known| known.device)).collect()
    }

    pub(super) fn checked(&self, device: DeviceId) -> Option<CheckedDevice> {
        let (device, peak) = self.find(device)?;
        Some(CheckedDevice {
            peak: peak.clone(),
            allocated: maximum(device.track, Metric::Allocated),
            reserved: maximum(device.track, Metric::Reserved),
            failed_requests: Action::Oom.count_in(device.track.actions()),
        })
    }

    pub(super) fn all(&self, budgets: &Budgets) -> Vec<Check> {
        let devices = self.devices(budgets);
        let lacks_gpu = budgets.devices.is_empty() && self.recording.snapshot().lacks_gpu_memory();
        if devices.is_empty() || lacks_gpu {
            let doubt = if lacks_gpu { Doubt::NoGpuMemory } else { Doubt::NothingRecorded };
            let limits = self.limits(budgets).into_iter();
            return limits.map(|limit| unknown(budgets, None, limit, doubt.clone())).collect();
        }
        devices.into_iter().flat_map(|device| self.on_device(budgets, device)).collect()
    }

    fn on_device(&self, budgets: &Budgets, id: DeviceId) -> Vec<Check> {
        let limits = self.limits(budgets).into_iter();
        let Some((device, peak)) = self.find(id) else {
            if budgets.devices.contains(&id) {
                let known: Vec<DeviceId> = self.peaks.iter().map(|peak| peak.device).collect();
                let doubt = Doubt::NoSuchDevice(known);
                return limits.map(|limit| unknown(budgets, Some(id), limit, doubt.clone())).collect();
            }
            let growth = limits.filter(|limit| matches!(limit, Limit::Growth(_)));
            return growth.map(|limit| unknown(budgets, Some(id), limit, Doubt::OnlyInBaseline)).collect();
        };
        let before = budgets.baseline.as_ref().and_then(|baseline| baseline.device(id));
        let case = Case { device, peak, before };
        limits.map(|limit| self.judge(budgets, case, limit)).collect()
    }

    fn limits<'b>(&self, budgets: &'b Budgets) -> Vec<Limit<'b>> {
        let mut limits: Vec<Limit<'b>> = budgets.max_peak.map(Limit::Peak).into_iter().collect();
        limits.extend(budgets.max_reserved.map(Limit::Reserved));
        limits.extend(budgets.max_fragmentation.map(Limit::Fragmentation));
        limits.extend(budgets.max_leak.map(Limit::Leak));
        limits.extend(budgets.max_sites.iter().map(Limit::Site));
        limits.extend(budgets.max_residues.iter().map(Limit::Residue));
        if budgets.baseline.is_some() {
            limits.push(Limit::Growth(Metric::Allocated));
            // A format without reserved memory has nothing to compare.
            let records_reserved = self.recording.snapshot().notes.format != Format::MemoryTimeline;
            limits.extend(records_reserved.then_some(Limit::Growth(Metric::Reserved)));
        }
        limits
    }

    fn judge(&self, budgets: &Budgets, case: Case<'_, '_>, limit: Limit<'_>) -> Check {
        let finding = match limit {
            Limit::Peak(most) => Finding::bytes(most, highest(budgets, case.device, Metric::Allocated)),
            Limit::Reserved(most) => Finding::bytes(most, highest(budgets, case.device, Metric::Reserved)),
            Limit::Fragmentation(most) => self.fragmentation(budgets, case.device, most),
            Limit::Leak(most) => Finding::bytes(most, self.leaked(budgets, case.device)),
            Limit::Site(most) => Self::held_by(budgets, case.device, most),
            Limit::Residue(most) => self.left_behind(budgets, case.device, most),
            Limit::Growth(metric) => Self::growth(budgets, case, metric),
        };
        let proven = !budgets.require_counters || doubts::is_counted(case.device.track);
        let finding = if proven { finding } else { finding.unless_met(Doubt::NoCounters) };
        let is_exceeded = finding.keeps == Some(false);
        let mut check = finding.into_check(budgets, Some(case.device.id()), limit);
        if is_exceeded {
            check.culprits = self.culprits(budgets, case, limit);
            check.culprits.library_below = case.device.library_below();
        }
        check
    }

    fn culprits(&self, budgets: &Budgets, case: Case<'_, '_>, limit: Limit<'_>) -> Culprits {
        let Case { device, peak, before } = case;
        match limit {
            Limit::Reserved(_) | Limit::Growth(Metric::Reserved) => {
                let highest = device.history().maxima[Metric::Reserved as usize].instant;
                let made = attribution(device, (Metric::Reserved, highest));
                Culprits::holding(Basis::Reserved, &made.rows)
            }
            Limit::Peak(_) | Limit::Growth(_) => {
                let rows = &peak.attribution.rows;
                let grown = before.and_then(|before| Culprits::grown(rows, before));
                grown.unwrap_or_else(|| Culprits::holding(Basis::Held, rows))
            }
            Limit::Fragmentation(_) => {
                let rows = self.fragmented(device).map(|device| device.pinning.rows).unwrap_or_default();
                Culprits::pinning(&rows)
            }
            Limit::Leak(_) => {
                let rows = self.leaks(budgets, device).map(|device| device.rows).unwrap_or_default();
                Culprits::leaking(&rows)
            }
            Limit::Site(most) => Culprits::holding(Basis::Held, &matching(budgets, device, most).1),
            Limit::Residue(most) => {
                let residue = residue::of(self.recording, device, most, budgets.accept_late_start);
                Culprits::left_behind(&residue.sites)
            }
        }
    }

    /// Growth beyond the baseline. The limit is the value of the baseline plus the tolerance.
    fn growth(budgets: &Budgets, case: Case<'_, '_>, metric: Metric) -> Finding {
        let measured = highest(budgets, case.device, metric);
        match case.before.map(|before| before.peak(metric)) {
            Some(Some(bytes)) => match budgets.tolerance {
                Tolerance::Within(limit) => Finding::bytes(limit.above(bytes), measured),
                Tolerance::Any => Finding::bytes(bytes, measured),
            },
            Some(None) => Finding::unlimited(measured, Doubt::BaselineNotExact),
            None => Finding::unlimited(measured, Doubt::NotInBaseline),
        }
    }

    fn fragmentation(&self, budgets: &Budgets, device: &Device<'_>, most: Percent) -> Finding {
        let limit = Amount::Share(most.share());
        // A recording without segments has no answer, whatever else it lacks.
        match (self.fragmented(device), highest(budgets, device, Metric::Allocated).doubt) {
            (Err(doubt), _) => Finding::unknown(limit, doubt),
            (_, Some(doubt)) => Finding::unknown(limit, Doubt::PeakNotExact(Box::new(doubt))),
            (Ok(DeviceFragmentation { figures, .. }), None) => {
                let share = Amount::Share(figures.inactive_share());
                let keeps = most.covers(figures.inactive, figures.reserved);
                Finding {
                    limit: Some(limit),
                    at_least: Some(share),
                    at_most: Some(share),
                    doubt: None,
                    matching_sites: None,
                    keeps: Some(keeps),
                }
            }
        }
    }

    fn fragmented(&self, device: &Device<'_>) -> Result<DeviceFragmentation, Doubt> {
        let options = FragmentationOptions {
            at: Some(When::Peak),
            devices: vec![device.id()],
            ..FragmentationOptions::default()
        };
        let report = FragmentationReport::of(self.recording, &options);
        let report = report.map_err(|error| Doubt::Refused(error.to_string()))?;
        report.devices.into_iter().next().ok_or(Doubt::NothingRecorded)
    }

    fn leaked(&self, budgets: &Budgets, device: &Device<'_>) -> Measured {
        let lost = match doubts::of_device(device.track) {
            Some((doubt, Leaves::Nothing)) => return Measured::unknown(doubt),
            Some((doubt, _)) if device.history().completeness.no_entries => return Measured::unknown(doubt),
            // Steps that are missing at an end count as steps that did not run; but the blocks of a trace have no order.
            Some((doubt, _)) if device.history().completeness.blocks_only => return Measured::unknown(doubt),
            doubt => doubt.map(|(doubt, _)| doubt),
        };
        if let Some(doubt) = doubts::of_frames(device.snapshot()) {
            return Measured::unknown(doubt);
        }
        match self.leaks(budgets, device) {
            Err(doubt) => Measured::unknown(doubt),
            Ok(leaks) if leaks.tells_leaks() && !self.hold_entries(budgets, &leaks) => {
                Measured::unknown(Doubt::EmptySteps(leaks.step_count()))
            }
            Ok(leaks) if leaks.tells_leaks() => match lost {
                // For a step without entries, it is unknown whether they were lost.
                Some(doubt) if leaks.steps_with_entries() < leaks.step_count() => Measured::unknown(doubt),
                lost => match (leak::without_a_stack(device, &leaks), lost) {
                    (0, None) => Measured::exact(leaks.leaking.bytes),
                    (0, Some(_)) => match leak::of_lost_entries(device, &leaks) {
                        0 => Measured::exact(leaks.leaking.bytes),
                        bytes => Measured::at_least(leaks.leaking.bytes, Doubt::LostLeaks(bytes)),
                    },
                    (bytes, _) => Measured::at_least(leaks.leaking.bytes, Doubt::UnknownLeaks(bytes)),
                },
            },
            Ok(leaks) if leaks.is_judged() => Measured::unknown(Doubt::TooFewSteps(0)),
            Ok(leaks) => Measured::unknown(Doubt::TooFewSteps(leaks.step_count())),
        }
    }

    /// Whether one of the steps contains entries, on this device or, if this one was idle, on another. Steps without any
    /// entries may use another clock.
    fn hold_entries(&self, budgets: &Budgets, leaks: &DeviceLeaks) -> bool {
        let holds = |leaks: &DeviceLeaks| leaks.steps_with_entries() > 0;
        holds(leaks) || self.leaks_of(budgets, Vec::new()).is_ok_and(|report| report.devices.iter().any(holds))
    }

    fn leaks(&self, budgets: &Budgets, device: &Device<'_>) -> Result<DeviceLeaks, Doubt> {
        let report = self.leaks_of(budgets, vec![device.id()]);
        let report = report.map_err(|error| Doubt::Refused(error.to_string()))?;
        report.devices.into_iter().next().ok_or(Doubt::NothingRecorded)
    }

    fn leaks_of(&self, budgets: &Budgets, devices: Vec<DeviceId>) -> error::Result<LeakReport> {
        let steps = budgets.steps.clone();
        LeakReport::of(self.recording, &LeakOptions { steps, devices, ..LeakOptions::default() })
    }

    fn held_by(budgets: &Budgets, device: &Device<'_>, most: &SiteLimit) -> Finding {
        let (measured, sites) = matching(budgets, device, most);
        Finding { matching_sites: Some(sites.len()), ..Finding::bytes(most.limit.0, measured) }
    }

    fn left_behind(&self, budgets: &Budgets, device: &Device<'_>, most: &ResidueLimit) -> Finding {
        let residue = residue::of(self.recording, device, most, budgets.accept_late_start);
        Finding::bytes(most.limit.0, residue.measured)
    }

    fn find(&self, device: DeviceId) -> Option<(&'d Device<'a>, &DevicePeak)> {
        Some((self.recording.get(device)?, self.peaks.iter().find(|peak| peak.device == device)?))
    }
}

/// The highest value of a counter. If memory was in use before the first entry, the value may have been higher, unless
/// that is accepted.
fn highest(budgets: &Budgets, device: &Device<'_>, metric: Metric) -> Measured {
    let measured = maximum(device.track, metric);
    let doubt = if budgets.accept_late_start { None } else { doubts::late_start(device.track) };
    match doubt.filter(|_| measured.at_most.is_some()) {
        Some(doubt) => Measured { at_most: None, doubt: Some(doubt), ..measured },
        None => measured,
    }
}

/// The memory of matching sites at the peak of allocated bytes, in total and by site.
fn matching(budgets: &Budgets, device: &Device<'_>, most: &SiteLimit) -> (Measured, Vec<Row>) {
    let filter = Filter::default();
    // A budget applies to recorded sites: memory from backward passes belongs to no site here.
    let grouper = Grouper::new(device, device.sites(), &filter, GroupBy::Stack);
    let peak = (Metric::Allocated, device.history().maxima[Metric::Allocated as usize].instant);
    // A limit applies to sites by their label, or by any frame of their stacks.
    let stacks = matching_stacks(device.snapshot(), |frame| most.pattern.is_match(frame));
    let mut matching: IndexMap<String, Row> = IndexMap::new();
    let mut unknown = 0;
    for (key, row) in grouped_rows(&grouper, peak).1 {
        let on_stack = matches!(key, Key::Stack(origin) if stacks.get(origin.stack.index()) == Some(&true));
        if on_stack || most.pattern.is_match(&row.label) {
            let site = matching.entry(row.label.clone()).or_insert(Row { bytes: 0, blocks: 0, ..row.clone() });
            site.bytes = site.bytes.saturating_add(row.bytes);
            site.blocks += row.blocks;
        } else if is_unknown(device.snapshot(), &key) {
            unknown = row.bytes.saturating_add(unknown);
        }
    }
    let rows: Vec<Row> = matching.into_values().collect();
    let bytes = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.bytes));
    let doubt = doubts::of_lines(device.track).or_else(|| doubts::of_sites(device.snapshot()));
    let measured = match doubt {
        Some(doubt) => Measured::unknown(doubt),
        None => of_sites(&highest(budgets, device, Metric::Allocated), bytes, unknown),
    };
    (measured, rows)
}

/// Whether the code that allocated a group of blocks is unknown: they are from before the recording, or have no stack that
/// names a file. A lost stack looks the same as one that never existed.
fn is_unknown(snapshot: &Snapshot, key: &Key) -> bool {
    match key {
        Key::Stack(origin) => origin.forward.is_none() && !doubts::names_file(snapshot, origin.stack),
        key => key.stands_apart(),
    }
}

fn attribution(device: &Device<'_>, at: (Metric, Instant)) -> Attribution {
    let filter = Filter::default();
    let grouper = Grouper::new(device, device.sites(), &filter, GroupBy::Site);
    Attribution::of(&grouper.inferring(device, Inference::On, at.0), at)
}

/// A figure as far as known, and whether it is within its limit.
struct Finding {
    limit: Option<Amount>,
    at_least: Option<Amount>,
    at_most: Option<Amount>,
    doubt: Option<Doubt>,
    matching_sites: Option<usize>,
    keeps: Option<bool>,
}

impl Finding {
    fn bytes(limit: u64, measured: Measured) -> Self {
        let keeps = keeps(&measured, limit);
        Self {
            limit: Some(Amount::Bytes(limit)),
            at_least: measured.at_least.map(Amount::Bytes),
            at_most: measured.at_most.map(Amount::Bytes),
            doubt: measured.doubt,
            matching_sites: None,
            keeps,
        }
    }

    /// A figure without a limit to compare it with.
    fn unlimited(measured: Measured, doubt: Doubt) -> Self {
        Self { limit: None, doubt: Some(doubt), keeps: None, ..Self::bytes(0, measured) }
    }

    /// A limit without a figure to compare it with.
    fn unknown(limit: impl Into<Option<Amount>>, doubt: Doubt) -> Self {
        Self {
            limit: limit.into(),
            at_least: None,
            at_most: None,
            doubt: Some(doubt),
            matching_sites: None,
            keeps: None,
        }
    }

    /// The same finding, except that it shows no budget to be met.
    fn unless_met(self, doubt: Doubt) -> Self {
        match self.keeps {
            Some(true) => Self { at_most: None, doubt: Some(doubt), keeps: None, ..self },
            _ => self,
        }
    }

    fn into_check(self, budgets: &Budgets, device: Option<DeviceId>, limit: Limit<'_>) -> Check {
        Check {
            budget: budgets.name.clone(),
            kind: limit.kind(),
            device,
            limit: self.limit,
            at_least: self.at_least,
            at_most: self.at_most,
            doubt: self.doubt,
            matching_sites: self.matching_sites,
            verdict: match self.keeps {
                _ if matches!(limit, Limit::Growth(_)) && budgets.tolerance == Tolerance::Any => CheckVerdict::Shown,
                Some(true) => CheckVerdict::Passed,
                Some(false) => CheckVerdict::Failed,
                None => CheckVerdict::Unknown,
            },
            culprits: Culprits::default(),
        }
    }
}

/// The result for a limit on something that cannot be measured.
fn unknown(budgets: &Budgets, device: Option<DeviceId>, limit: Limit<'_>, doubt: Doubt) -> Check {
    Finding::unknown(limit.amount(), doubt).into_check(budgets, device, limit)
}
