//! The contents of a file.

use crate::error::Result;
use crate::facts::device::{Device, Devices};
use crate::facts::device_kind::DeviceKind;
use crate::facts::training::steps::{NoSteps, Steps};
use crate::facts::training::{Phase, PhaseSummary};
use crate::model::{Action, DeviceId};
use crate::parallel;
use crate::replay::{Anomalies, ComparedCounter, Completeness, Counters, Maximum};
use indexmap::IndexMap;
use serde::Serialize;

#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Device, -1 for pinned host memory, -2 for memory of the CPU.
    pub device: DeviceId,
    pub entries: u32,
    /// Number of entries by action, in the order of [`Action::ALL`].
    pub actions: [u64; Action::ALL.len()],
    /// Times of the first and last entry in microseconds since the epoch, if the file has times.
    pub time_us: Option<(i64, i64)>,
    /// Microseconds from the first entry of the recording to that of the device, if the file has times.
    pub starts_after_us: Option<i64>,
    pub segments: usize,
    /// Number of blocks at dump time, free ones included.
    pub blocks: usize,
    pub baseline: Counters,
    pub maxima: [Maximum; 4],
    pub end: Counters,
    /// The steps of the program, or why there are none.
    pub steps: std::result::Result<Steps, NoSteps>,
    pub phases: Vec<PhaseSummary>,
    pub completeness: Completeness,
    pub anomalies: Anomalies,
    /// PyTorch's own counters, if the file contains them, beside the replayed ones.
    pub counted: Vec<ComparedCounter>,
}

impl DeviceInfo {
    fn of(device: &Device<'_>) -> Self {
        let (track, history) = (device.track, device.history());
        let (segments, times) = (track.segments(), track.times());
        let span = times.first().copied().zip(times.last().copied());
        // The iterations of a loop without a model may not be steps.
        let steps =
            device.steps().and_then(|steps| if steps.are_steps() { Ok(steps.clone()) } else { Err(NoSteps::Unknown) });
        Self {
            device: device.id(),
            entries: history.entries(),
            actions: track.action_counts(),
            time_us: span.filter(|_| track.has_times()),
            starts_after_us: span
                .filter(|_| track.has_times())
                .and_then(|(first, _)| Some(first.saturating_sub(device.snapshot().first_time()?))),
            segments: segments.len(),
            blocks: segments.iter().map(|segment| segment.blocks.len()).sum(),
            baseline: history.start,
            maxima: history.maxima,
            end: history.end,
            steps,
            phases: PhaseSummary::all(track, device.phases()),
            completeness: history.completeness,
            anomalies: history.anomalies.clone(),
            counted: history.counted.clone(),
        }
    }

    /// Whether any phase other than [`Phase::Other`] was found.
    pub fn has_phases(&self) -> bool {
        self.phases.iter().any(|phase| phase.phase != Phase::Other)
    }
}

/// Annotations of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AnnotationCount"))]
pub struct AnnotationSummary {
    pub name: String,
    /// Number of ranges.
    pub count: u64,
    /// Total time within ranges with both ends; time within several of them counts once.
    pub total_us: i64,
    /// Number of ranges without an end.
    pub open: u64,
}

#[derive(Clone, Debug, Default)]
pub struct InfoReport {
    pub devices: Vec<DeviceInfo>,
    /// The kind of device, and what shows it; `None` if nothing does.
    pub device_kind: Option<(DeviceKind, String)>,
    /// Annotations by name, in order of their first start.
    pub annotations: Vec<AnnotationSummary>,
    /// Number of distinct stacks and frames.
    pub stacks: usize,
    /// See [`InfoReport::stacks`].
    pub frames: usize,
}

impl InfoReport {
    /// Summarizes a recording. `devices` are the wanted devices; all if empty.
    ///
    /// # Errors
    /// If a device is named that the recording does not have.
    pub fn of(recording: &Devices<'_>, devices: &[DeviceId]) -> Result<Self> {
        let devices = recording.wanted(devices)?;
        let snapshot = recording.snapshot();
        // With each, until when its time was counted.
        let mut annotations: IndexMap<_, (AnnotationSummary, i64)> = IndexMap::new();
        for range in &recording.annotations().ranges {
            let name = snapshot.strings.get(range.name).to_owned();
            let new = AnnotationSummary { name, count: 0, total_us: 0, open: 0 };
            let (summary, counted_until) = annotations.entry(range.name).or_insert((new, i64::MIN));
            summary.count += 1;
            if range.start_us == i64::MIN || range.end_us == i64::MAX {
                summary.open += 1;
            } else {
                let uncounted = range.end_us.saturating_sub(range.start_us.max(*counted_until));
                summary.total_us = summary.total_us.saturating_add(uncounted.max(0));
                *counted_until = range.end_us.max(*counted_until);
            }
        }
        Ok(Self {
            device_kind: DeviceKind::of(snapshot, recording.all().iter().map(Device::history)),
            devices: parallel::map(devices, DeviceInfo::of),
            annotations: annotations.into_values().map(|(summary, _)| summary).collect(),
            stacks: snapshot.stacks.len() - 1,
            frames: snapshot.stacks.frame_count(),
        })
    }
}
