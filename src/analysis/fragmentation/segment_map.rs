//! Every segment at an instant, and who allocated the blocks in it.

use super::over_time::most_inactive;
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::analysis::timeline::peaks_or_failures;
use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::attribution::grouped_rows;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder, Key};
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::Layout;
use crate::facts::time::when::When;
use crate::facts::training::Category;
use crate::model::{Action, Snapshot};
use crate::parallel;
use crate::replay::History;
use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub struct SegmentMapReport {
    pub devices: Vec<DeviceSegmentMap>,
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DeviceSegmentMap {
    pub peak: DevicePeak,
    pub layout: Layout,
    pub figures: Vec<Figures>,
    /// Bytes of the request that failed at this instant, if one did.
    pub failed: Option<u64>,
    /// Whether the instant was chosen because the most memory is inactive there.
    pub is_most_inactive: bool,
    /// Each block that counts for the metric, by the index of the allocation.
    pub blocks: HashMap<usize, MappedBlock>,
    /// The sites of blocks.
    pub sites: Vec<MappedSite>,
}

#[derive(Clone, Debug)]
pub struct MappedSite {
    pub label: String,
    pub inferred: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct MappedBlock {
    /// Its row in [`DeviceSegmentMap::peak`].
    pub row: usize,
    pub category: Category,
    /// Its site, by its place in [`DeviceSegmentMap::sites`].
    pub site: usize,
}

impl SegmentMapReport {
    /// Lays out every device at the instant that `options` request.
    ///
    /// # Errors
    /// Like [`PeakReport::of`]; also if groups overlap, so that a block has no unique color; and if the recording has
    /// no segments.
    pub fn of(recording: &Devices<'_>, options: &PeakOptions) -> Result<Self> {
        require_segments(recording.snapshot())?;
        let all_rows = PeakOptions { top: None, each: None, categories: true, ..options.clone() };
        Self::around(recording, PeakReport::of(recording, &all_rows)?, options)
    }

    /// Like [`SegmentMapReport::of`]; if no instant is requested, at each device's first failed request, or else at the
    /// instant with the most inactive memory.
    pub fn where_it_matters(recording: &Devices<'_>, options: &PeakOptions) -> Result<Self> {
        if options.at.is_some() {
            return Self::of(recording, options);
        }
        require_segments(recording.snapshot())?;
        let all_rows = PeakOptions { top: None, each: None, categories: true, ..options.clone() };
        let mut peaks = peaks_or_failures(recording, &all_rows)?;
        let mut chosen = Vec::new();
        for peak in &mut peaks.devices {
            let Some(device) = recording.get(peak.device) else { continue };
            let most = most_inactive(device.track, 1).first().map_or(0, |most| most.instant);
            if failed(device, peak).is_some() || most == 0 {
                continue;
            }
            let at = History::entry_before(most).map(When::Entry);
            let options = PeakOptions { at, devices: vec![peak.device], ..all_rows.clone() };
            if let Some(found) = PeakReport::of(recording, &options)?.devices.pop() {
                *peak = found;
                chosen.push(peak.device);
            }
        }
        let mut report = Self::around(recording, peaks, options)?;
        for map in &mut report.devices {
            map.is_most_inactive = chosen.contains(&map.peak.device);
        }
        Ok(report)
    }

    /// Like [`SegmentMapReport::of`], but at known instants.
    pub(crate) fn around(recording: &Devices<'_>, peaks: PeakReport, options: &PeakOptions) -> Result<Self> {
        if options.by.is_inclusive() {
            let by = options.by.name();
            return Err(Error::Request(format!("groups by {by} overlap, so a block has no single color")));
        }
        let device = |peak: DevicePeak| {
            let device = recording.get(peak.device)?;
            let grouper = |by| {
                let grouper = Grouper::new(device, device.deep_sites(), &options.filter, by);
                grouper.inferring(device, options.inference, peak.metric)
            };
            let (blocks, sites) = blocks(device, &grouper(options.by), &grouper(GroupBy::Site), &peak);
            let layout = Layout::at(device.track, peak.instant);
            let figures = |segment| Figures::of_segment(device.history(), &layout, segment);
            let figures = layout.segments.iter().map(figures).collect();
            let failed = failed(device, &peak);
            Some(DeviceSegmentMap { peak, layout, figures, failed, is_most_inactive: false, blocks, sites })
        };
        Ok(Self { devices: parallel::filter_map(peaks.devices, device), skipped: peaks.skipped })
    }
}

/// Whether a recording has segments at all.
///
/// # Errors
/// If it has none, like profiler traces and memory timelines.
pub fn require_segments(snapshot: &Snapshot) -> Result<()> {
    let format = snapshot.notes.format;
    if format.has_segments() {
        return Ok(());
    }
    Err(Error::Request(format!(
        "a {} records no segments; only torch.cuda.memory._dump_snapshot shows how memory is laid out",
        format.title()
    )))
}

fn failed(device: &Device<'_>, peak: &DevicePeak) -> Option<u64> {
    let entry = device.track.entry(peak.entry?)?;
    (entry.action == Action::Oom).then_some(entry.size)
}

fn blocks(
    device: &Device<'_>,
    grouper: &Grouper<'_>,
    by_site: &Grouper<'_>,
    peak: &DevicePeak,
) -> (HashMap<usize, MappedBlock>, Vec<MappedSite>) {
    let (_, groups) = grouped_rows(grouper, (peak.metric, peak.instant));
    let by_key: HashMap<&Key, usize> = groups.iter().enumerate().map(|(index, (key, _))| (key, index)).collect();
    let categories = device.categories();
    let mut sites = Groups::new(by_site);
    let mut blocks = HashMap::new();
    let counts = |born, gone| born <= peak.instant && peak.instant < gone;
    Holder::visit(grouper.track, peak.metric, counts, |holder| {
        let row = grouper.keys(holder).first().and_then(|key| by_key.get(key)).copied();
        if let (Some(row), Some(&site)) = (row, sites.of(holder).first()) {
            blocks.insert(holder.index, MappedBlock { row, category: categories.get(holder.index).category, site });
        }
    });
    let heads = sites.heads(|_| std::iter::empty()).into_iter();
    (blocks, heads.map(|(_, head)| MappedSite { label: head.label, inferred: head.inferred }).collect())
}
