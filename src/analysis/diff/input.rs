//! The data of one recording that a comparison needs.

use super::rows::SideRow;
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::device::{Device, Devices};
use crate::facts::doubts::{self, Doubt, Leaves};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::Row;
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::Layout;
use crate::facts::time::when::When;
use crate::model::{AllocatorSettings, DeviceId, Format, FrameId, StackId};
use crate::parallel;
use crate::replay::Bound;
use indexmap::IndexSet;

#[derive(Clone, Debug, Default)]
pub struct DiffInput {
    pub format: Format,
    pub settings: AllocatorSettings,
    pub devices: Vec<DiffInputDevice>,
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DiffInputDevice {
    /// The selected instant, and its memory by group; all rows.
    pub peak: DevicePeak,
    /// How the segments are used at that instant, if the file has segments.
    pub figures: Option<Figures>,
    /// Which bound the metric's value at the instant is, if it is not exact.
    pub bound: Option<Bound>,
    /// Why the value is unknown, if the recording contradicts itself or was not understood.
    pub doubt: Option<Doubt>,
    /// Lines of the user's own code that run a library's model: other answers show the library's lines instead.
    pub library_below: Vec<String>,
    pub has_stacks: bool,
    /// If rows are lines of code: the labels of all lines that allocate in the recording, at any time.
    pub lines: IndexSet<String>,
}

/// Label of the bytes by which rows and counter differ, which happens only if a recording contradicts itself.
pub const CONTRADICTORY: &str = "(contradictory)";

impl DiffInput {
    pub fn of(recording: &Devices<'_>, options: &PeakOptions) -> Result<Self> {
        let snapshot = recording.snapshot();
        let all_rows = PeakOptions { top: None, ..options.clone() };
        let PeakReport { devices, skipped, .. } = PeakReport::of_any_grouping(recording, &all_rows)?;
        let asks_for_peak = matches!(options.at, None | Some(When::Peak));
        let device = |peak: DevicePeak| {
            let device = recording.get(peak.device);
            let track = device.map(|device| device.track);
            let figures = track.filter(|_| snapshot.notes.format.has_segments()).map(|track| {
                let layout = Layout::at(track, peak.instant);
                Figures::of(track.history, &layout)
            });
            // The state at dump time is recorded as such.
            let completeness = &peak.completeness;
            let at_dump = figures.is_some() && peak.instant == peak.entries && !completeness.truncated;
            let is_known = !asks_for_peak && at_dump && !completeness.no_free_requested;
            // Memory may have been higher before or after the kept history.
            let partly = completeness.truncated || (asks_for_peak && peak.is_early(peak.metric));
            let bound = completeness.bound(peak.metric).or_else(|| partly.then_some(Bound::Lower));
            let bound = bound.filter(|_| !is_known);
            let doubt = track.and_then(doubts::of_device);
            let doubt = doubt.filter(|(_, leaves)| *leaves == Leaves::Nothing).map(|(doubt, _)| doubt);
            let is_by_site = options.by == GroupBy::Site && !snapshot.view.library_lines;
            let library_below = device.filter(|_| is_by_site).map(Device::library_below).unwrap_or_default();
            let lines = device.filter(|_| options.by == GroupBy::Site).map(lines).unwrap_or_default();
            let has_stacks = snapshot.stacks.len() > 1;
            DiffInputDevice { peak, figures, bound, doubt, library_below, has_stacks, lines }
        };
        let devices = parallel::map(devices, device);
        Ok(Self { format: snapshot.notes.format, settings: snapshot.settings.clone(), devices, skipped })
    }
}

impl DiffInputDevice {
    /// The device: -1 for pinned host memory, -2 for CPU memory.
    pub fn device(&self) -> DeviceId {
        self.peak.device
    }

    /// Its rows. They sum to the counter. Lines that hold nothing follow, so that they are not taken for lines of the other
    /// recording that have moved.
    pub(super) fn rows(&self) -> Vec<SideRow> {
        let attribution = &self.peak.attribution;
        let row = |row: &Row| SideRow {
            label: row.label.clone(),
            bytes: row.bytes as i64,
            blocks: row.blocks,
            inferred: row.inferred,
            stack: row.stack.clone(),
        };
        let mut rows: Vec<SideRow> = attribution.rows.iter().map(row).collect();
        let counter = self.peak.at.get(self.peak.metric);
        let bytes = counter.wrapping_sub(attribution.total_bytes as i64);
        if bytes != 0 && !attribution.by.is_inclusive() {
            rows.push(SideRow { label: CONTRADICTORY.to_owned(), bytes, ..SideRow::default() });
        }
        let shown: IndexSet<&String> = attribution.rows.iter().map(|row| &row.label).collect();
        let others = self.lines.iter().filter(|line| !shown.contains(line));
        rows.extend(others.map(|line| SideRow { label: line.clone(), ..SideRow::default() }));
        rows
    }
}

fn lines(device: &Device<'_>) -> IndexSet<String> {
    let stacks: IndexSet<StackId> = device.track.allocations().map(|(.., stack)| stack).collect();
    let frames: IndexSet<FrameId> = stacks.into_iter().filter_map(|stack| device.sites().site_frame(stack)).collect();
    frames.into_iter().map(|frame| device.sites().label(frame)).collect()
}
