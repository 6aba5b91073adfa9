//! Every segment at an instant, and whose blocks are in it.

use crate::analysis::device::Devices;
use crate::analysis::grouping::attribution::grouped_rows;
use crate::analysis::grouping::{Grouper, Holder, Key};
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::analysis::segments::figures::Figures;
use crate::analysis::segments::layout::Layout;
use crate::error::{Error, Result};
use crate::model::Snapshot;
use rayon::prelude::*;
use std::collections::HashMap;

/// The segments of all devices.
#[derive(Clone, Debug, Default)]
pub struct SegmentMapReport {
    /// The devices asked for, in order.
    pub devices: Vec<DeviceSegmentMap>,
    /// Devices that the instant asked for does not exist on, each with the reason.
    pub skipped: Vec<String>,
}

/// The segments of one device.
#[derive(Clone, Debug)]
pub struct DeviceSegmentMap {
    /// The instant, and what holds the memory there; all rows.
    pub peak: DevicePeak,
    /// Segments and blocks.
    pub layout: Layout,
    /// How each of the segments is used.
    pub figures: Vec<Figures>,
    /// The row of [`DeviceSegmentMap::peak`] that a block counts in, by the allocation's index. Blocks that do not count
    /// for the metric have none.
    pub rows: HashMap<usize, usize>,
}

impl SegmentMapReport {
    /// Lays out every device at the instant that `options` ask for.
    ///
    /// # Errors
    /// As [`PeakReport::of`]; when groups overlap, so that a block has no one colour; and when the recording has no
    /// segments.
    pub fn of(recording: &Devices<'_>, options: &PeakOptions) -> Result<Self> {
        require_segments(recording.snapshot())?;
        let all_rows = PeakOptions { top: None, each: None, ..options.clone() };
        Self::around(recording, PeakReport::of(recording, &all_rows)?, options)
    }

    /// As [`SegmentMapReport::of`], at instants that are known.
    pub(crate) fn around(recording: &Devices<'_>, peaks: PeakReport, options: &PeakOptions) -> Result<Self> {
        if options.by.is_inclusive() {
            let by = options.by.name();
            return Err(Error::Request(format!("groups by {by} overlap, so a block has no colour of its own")));
        }
        let device = |peak: DevicePeak| {
            let device = recording.get(peak.device)?;
            let grouper = Grouper::new(device, device.deep_sites(), &options.filter, options.by).inferring(
                device,
                options.inference,
                peak.metric,
                Some(peak.instant),
            );
            let rows = rows(&grouper, &peak);
            let layout = Layout::at(device.track, peak.instant);
            let figures = |segment| Figures::of_segment(device.history(), &layout, segment);
            let figures = layout.segments.iter().map(figures).collect();
            Some(DeviceSegmentMap { peak, layout, figures, rows })
        };
        Ok(Self { devices: peaks.devices.into_par_iter().filter_map(device).collect(), skipped: peaks.skipped })
    }
}

/// Whether a recording has segments at all.
///
/// # Errors
/// When it has none, as profiler traces and memory timelines.
pub fn require_segments(snapshot: &Snapshot) -> Result<()> {
    let format = snapshot.notes.format;
    if format.has_segments() {
        return Ok(());
    }
    Err(Error::Request(format!(
        "a {} records no segments; only torch.cuda.memory._dump_snapshot tells how memory is laid out",
        format.title()
    )))
}

fn rows(grouper: &Grouper<'_>, peak: &DevicePeak) -> HashMap<usize, usize> {
    let (_, groups) = grouped_rows(grouper, (peak.metric, peak.instant));
    let by_key: HashMap<&Key, usize> = groups.iter().enumerate().map(|(index, (key, _))| (key, index)).collect();
    let mut rows = HashMap::new();
    let counts = |born, gone| born <= peak.instant && peak.instant < gone;
    Holder::visit(grouper.track, peak.metric, counts, |holder| {
        if let Some(&row) = grouper.keys(holder).first().and_then(|key| by_key.get(key)) {
            rows.insert(holder.index, row);
        }
    });
    rows
}
