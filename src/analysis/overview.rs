//! Everything a report on a recording shows.

use crate::analysis::device::Devices;
use crate::analysis::flame::{FlameOptions, FlameReport};
use crate::analysis::fragmentation::segment_map::SegmentMapReport;
use crate::analysis::leaks::{LeakOptions, LeakReport};
use crate::analysis::oom::{OomOptions, OomReport};
use crate::analysis::peak::{PeakOptions, PeakReport};
use crate::analysis::time::when::When;
use crate::analysis::timeline::{TimelineOptions, TimelineReport};
use crate::error::Result;

/// The answers that belong into one report.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The peak of each device and what holds it; all rows.
    pub peak: PeakReport,
    /// Live memory over time.
    pub timeline: TimelineReport,
    /// Live bytes by stack at the peak.
    pub flame: FlameReport,
    /// Segments at the peak; empty where the recording has none.
    pub segments: SegmentMapReport,
    /// Segments of the devices that ran out of memory, at the first failed request.
    pub segments_at_oom: SegmentMapReport,
    /// Failed requests.
    pub oom: OomReport,
    /// What survives step after step.
    pub leaks: LeakReport,
}

impl Overview {
    /// Answers all questions. Of `options`, the devices and whether to infer matter to all of them; bands and columns are
    /// the timeline's. What the answers have in common is worked out once.
    ///
    /// # Errors
    /// As [`PeakReport::of`] and [`TimelineReport::of`].
    pub fn of(recording: &Devices<'_>, options: &TimelineOptions) -> Result<Self> {
        let peak = PeakOptions { top: None, at: None, ..options.peak.clone() };
        let flame = FlameOptions { peak: peak.clone(), ..FlameOptions::default() };
        let PeakOptions { by, inference, devices, .. } = peak.clone();
        let oom = OomOptions { by, inference, devices: devices.clone(), ..OomOptions::default() };
        let leaks = LeakOptions { inference, devices, ..LeakOptions::default() };
        let at_oom = PeakOptions { at: Some(When::Oom), ..peak.clone() };
        let peaks = PeakReport::of(recording, &peak)?;
        Ok(Self {
            timeline: TimelineReport::around(recording, peaks.clone(), options)?,
            flame: FlameReport::of(recording, &flame)?,
            segments: if recording.snapshot().notes.format.has_segments() {
                SegmentMapReport::around(recording, peaks.clone(), &peak)?
            } else {
                SegmentMapReport::default()
            },
            // No device has one in most recordings.
            segments_at_oom: SegmentMapReport::of(recording, &at_oom).unwrap_or_default(),
            oom: OomReport::of(recording, &oom)?,
            leaks: LeakReport::of(recording, &leaks)?,
            peak: peaks,
        })
    }
}
