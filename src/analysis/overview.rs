//! Everything a report on a recording shows.

use crate::analysis::advice::Plays;
use crate::analysis::checkpoint::{CheckpointOptions, CheckpointReport};
use crate::analysis::flame::{FlameOptions, FlameReport};
use crate::analysis::fragmentation::segment_map::SegmentMapReport;
use crate::analysis::leaks::{LeakOptions, LeakReport};
use crate::analysis::ledger::{DeviceLedger, LedgerReport};
use crate::analysis::oom::{DeviceOoms, IN_FULL, OomOptions, OomReport};
use crate::analysis::peak::{PeakOptions, PeakReport};
use crate::analysis::timeline::{TimelineOptions, TimelineReport, peaks_or_failures};
use crate::analysis::triage::{Finding, TriageOptions, TriageReport};
use crate::error::Result;
use crate::facts::device::{Device, Devices};
use crate::model::{Action, DeviceId};
use crate::play::SettingsAdvice;
use crate::replay::Metric;

/// Steps that are simulated for a line about allocator settings: well below a second.
const STEPS_OF_SETTINGS: u64 = 8_000_000;
/// They are simulated if more than 1/N of reserved memory is never requested at once.
const ROOM_OF_SETTINGS: i64 = 25;

/// The answers for one report. Unless another instant is requested, each device is shown at its first failed request, or at
/// its peak.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Number of rows requested.
    pub top: Option<usize>,
    /// The verdict.
    pub triage: TriageReport,
    /// The selected instant and what holds the memory there; all rows.
    pub peak: PeakReport,
    /// Live memory over time.
    pub timeline: TimelineReport,
    /// Live bytes by stack at that instant.
    pub flame: FlameReport,
    /// Segments of the devices on which free memory matters, at the instants where it matters most.
    pub segments: SegmentMapReport,
    /// Failed requests.
    pub oom: OomReport,
    /// What uses each device, if that was sampled, or a trace shows how much memory a device with a failed request has.
    pub ledgers: Vec<DeviceLedger>,
    /// What survives step after step.
    pub leaks: LeakReport,
    /// What checkpointing would save on the devices that hold many activations.
    pub checkpoint: CheckpointReport,
    /// The effect of other allocator settings, for each device for which a few simulations show it.
    pub settings: Vec<(DeviceId, SettingsAdvice)>,
}

impl Overview {
    /// Answers all questions. In `options`, the devices and the inference option apply to all of them, the window and the
    /// instant to the pictures; bands and columns are those of the timeline. Facts that the answers share are computed once.
    ///
    /// # Errors
    /// Like [`PeakReport::of`] and [`TimelineReport::of`].
    pub fn of(recording: &Devices<'_>, options: &TimelineOptions) -> Result<Self> {
        let PeakOptions { inference, devices, .. } = options.peak.clone();
        let of_triage = TriageOptions { inference, devices, plays: Plays::All };
        // What to change takes about as long as everything else.
        let advice = || TriageReport::advice(recording, &of_triage);
        let (advice, overview) = rayon::join(advice, || Self::without_advice(recording, options, &of_triage));
        let (advice, overview) = (advice?, overview?);
        let of_device = |ooms: DeviceOoms| match advice.get(&ooms.device) {
            Some(advice) => ooms.with_cures(advice.clone()),
            None => ooms,
        };
        let devices = overview.oom.devices.into_iter().map(of_device).collect();
        let oom = OomReport { devices, ..overview.oom };
        Ok(Self { triage: overview.triage.with_advice(advice), oom, ..overview })
    }

    fn without_advice(recording: &Devices<'_>, options: &TimelineOptions, of_triage: &TriageOptions) -> Result<Self> {
        let TriageOptions { inference, devices, .. } = of_triage.clone();
        let leaks = LeakReport::of(recording, &LeakOptions { inference, devices, ..LeakOptions::default() })?;
        let triage = TriageReport::without_advice(recording, of_triage, &leaks)?;
        let peak = PeakOptions { top: None, ..options.peak.clone() };
        let PeakOptions { by, inference, devices, .. } = peak.clone();
        let flame = FlameOptions { peak: peak.clone(), ..FlameOptions::default() };
        let wanted = devices.clone();
        let oom = OomOptions { by, inference, devices, plans: true, explained: Some(IN_FULL), ..OomOptions::default() };
        let peaks = peaks_or_failures(recording, &peak)?;
        let holes = found_on(&triage, |finding| matches!(finding, Finding::Fragmentation { .. }));
        let activations = found_on(&triage, |finding| matches!(finding, Finding::Activations { .. }));
        let segments = PeakOptions { devices: holes, ..peak };
        let checkpoint = CheckpointOptions::best_in_brief(activations);
        let timeline = || TimelineReport::around(recording, peaks.clone(), &leaks, options);
        // An empty list of devices means all of them.
        let checkpoint = || {
            let is_wanted = !checkpoint.devices.is_empty();
            if is_wanted { CheckpointReport::of(recording, &checkpoint) } else { Ok(CheckpointReport::default()) }
        };
        // The three that take longest.
        let other_settings = || settings(recording, &wanted);
        let (settings, (checkpoint, timeline)) = rayon::join(other_settings, || rayon::join(checkpoint, timeline));
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
            checkpoint: checkpoint?,
            settings: settings?,
            peak: peaks,
            triage,
        })
    }
}

/// The devices of which there is such a finding.
fn found_on(triage: &TriageReport, is_such: impl Fn(&Finding) -> bool) -> Vec<DeviceId> {
    let found = triage.devices.iter().filter(|device| device.findings.iter().any(&is_such));
    found.map(|device| device.peak.device).collect()
}

/// Devices for which other settings are simulated: those whose requests never came near the reserved memory, which is all
/// that settings can change. The savings are then judged by their size.
fn leaves_room(device: &Device<'_>) -> bool {
    let maximum = |metric: Metric| device.history().maxima[metric as usize].bytes;
    let (reserved, requested) = (maximum(Metric::Reserved), maximum(Metric::Requested));
    device.track.count_of(Action::Oom) > 0 || reserved.saturating_sub(requested) > reserved / ROOM_OF_SETTINGS
}

fn settings(recording: &Devices<'_>, devices: &[DeviceId]) -> Result<Vec<(DeviceId, SettingsAdvice)>> {
    let mut wanted = recording.wanted(devices)?;
    wanted.retain(|device| leaves_room(device));
    let steps = STEPS_OF_SETTINGS / wanted.len().max(1) as u64;
    let advice = |device: &&Device<'_>| Some((device.id(), SettingsAdvice::of(device, steps)?));
    Ok(wanted.iter().filter_map(advice).collect())
}
