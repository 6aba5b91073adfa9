//! Everything a report on a recording shows.

use crate::analysis::advice::Simulate;
use crate::analysis::flame::{FlameOptions, FlameReport};
use crate::analysis::fragmentation::segment_map::SegmentMapReport;
use crate::analysis::leaks::{LeakOptions, LeakReport};
use crate::analysis::ledger::{DeviceLedger, LedgerReport};
use crate::analysis::oom::{DeviceOoms, IN_FULL, OomOptions, OomReport};
use crate::analysis::peak::{PeakOptions, PeakReport};
use crate::analysis::timeline::{TimelineOptions, TimelineReport, peaks_or_failures};
use crate::analysis::triage::{Finding, TriageOptions, TriageReport};
use crate::error::Result;
use crate::facts::device::Devices;
use crate::facts::grouping::GroupBy;
use crate::model::DeviceId;
use crate::parallel;

/// The answers for one report. Unless another instant is requested, each device is shown at its first failed request, or at
/// its peak.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub top: Option<usize>,
    pub triage: TriageReport,
    /// The selected instant and what holds the memory there; all rows.
    pub peak: PeakReport,
    pub timeline: TimelineReport,
    pub flame: FlameReport,
    /// Segments of the devices on which free memory matters, at the instants where it matters most.
    pub segments: SegmentMapReport,
    pub oom: OomReport,
    /// What uses each device, if the device was sampled, or if a trace contains the capacity of a device with a failed request.
    pub ledgers: Vec<DeviceLedger>,
    pub leaks: LeakReport,
}

impl Overview {
    /// Answers all questions. In `options`, the devices and the inference option apply to all of them, the window and the
    /// instant to the pictures; bands and columns are those of the timeline. Facts that the answers share are computed once.
    ///
    /// # Errors
    /// Like [`PeakReport::of`] and [`TimelineReport::of`].
    pub fn of(recording: &Devices<'_>, options: &TimelineOptions) -> Result<Self> {
        let PeakOptions { inference, devices, .. } = options.peak.clone();
        let of_triage = TriageOptions { inference, devices, simulate: Simulate::All };
        // What to change takes about as long as everything else.
        let advice = || TriageReport::advice(recording, &of_triage);
        let (advice, overview) = parallel::join(advice, || Self::without_advice(recording, options, &of_triage));
        let (advice, overview) = (advice?, overview?);
        let of_device = |ooms: DeviceOoms| match advice.get(&ooms.device) {
            Some(changes) => ooms.with_changes(changes.clone()),
            None => ooms,
        };
        let devices = overview.oom.devices.into_iter().map(of_device).collect();
        let oom = OomReport { devices, ..overview.oom };
        Ok(Self { triage: overview.triage.with_advice(advice), oom, ..overview })
    }

    fn without_advice(recording: &Devices<'_>, options: &TimelineOptions, of_triage: &TriageOptions) -> Result<Self> {
        let TriageOptions { inference, devices, .. } = of_triage.clone();
        // Leaks do not need categories, so another thread computes these at the same time.
        let wanted = recording.wanted(&devices)?;
        for device in &wanted {
            device.backward();
        }
        let leaks = LeakReport::of(recording, &LeakOptions { inference, devices, ..LeakOptions::default() })?;
        for device in &wanted {
            device.prepare_categories();
        }
        let peak = PeakOptions { top: None, ..options.peak.clone() };
        let PeakOptions { by, inference, devices, .. } = peak.clone();
        let flame = FlameOptions { peak: peak.clone(), ..FlameOptions::default() };
        let wanted = devices.clone();
        let oom = OomOptions { by, inference, devices, plans: true, explained: Some(IN_FULL), ..OomOptions::default() };
        let peaks = peaks_or_failures(recording, &peak)?;
        // The three that take longest: the verdict, because it simulates checkpointing, and these two.
        let timeline = || TimelineReport::around(recording, peaks.clone(), &leaks, options);
        let other_settings = || TriageReport::settings(recording, of_triage);
        let verdict = || TriageReport::without_advice(recording, of_triage, &leaks);
        let (triage, (settings, timeline)) = parallel::join(verdict, || parallel::join(other_settings, timeline));
        let triage = triage?;
        let holes = found_on(&triage, |finding| matches!(finding, Finding::Fragmentation { .. }));
        let segments = PeakOptions { devices: holes, by: GroupBy::Category, ..peak };
        Ok(Self {
            top: options.peak.top,
            timeline: timeline?,
            flame: FlameReport::around(recording, peaks.clone(), &flame)?,
            segments: if segments.devices.is_empty() {
                SegmentMapReport::default()
            } else {
                SegmentMapReport::where_it_matters(recording, &segments)?
            },
            oom: OomReport::of(recording, &oom)?,
            ledgers: LedgerReport::known(recording, &wanted),
            leaks,
            peak: peaks,
            triage: triage.with_settings(settings?),
        })
    }
}

fn found_on(triage: &TriageReport, is_such: impl Fn(&Finding) -> bool) -> Vec<DeviceId> {
    let found = triage.devices.iter().filter(|device| device.findings.iter().any(&is_such));
    found.map(|device| device.peak.device).collect()
}
