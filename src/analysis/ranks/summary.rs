//! A recording in a few kilobytes: the data to compare it with recordings of other ranks.

use super::number::RankNumber;
use crate::analysis::ledger::LedgerReport;
use crate::analysis::oom::signatures;
use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::Result;
use crate::facts::device::Device;
use crate::facts::device::Devices;
use crate::facts::grouping::attribution::{Attribution, OTHER};
use crate::model::{Action, DeviceId};
use crate::replay::{Metric, Track};
use crate::wire::ranks::{
    CodeSample, DeviceMemory, EmptyRank, RankFailure, RankLine, RankSource, RankSummary, SIGNED, TopRow,
};

/// Number of rows of a summary if nothing else is requested.
pub const TOP: usize = 20;
/// The most bytes for all labels of a summary. Sites that do not fit are counted with the other ones.
const LABELS: usize = 2048;
/// The most bytes for one label. A longer label loses its beginning.
const LABEL: usize = 200;

options! {
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct SummaryOptions {
        pub metric: Metric,
        pub top: usize,
        /// Devices wanted; empty for all.
        pub devices: Vec<DeviceId>,
    }
}

impl Default for SummaryOptions {
    fn default() -> Self {
        Self { metric: Metric::default(), top: TOP, devices: Vec::new() }
    }
}

impl RankSummary {
    pub fn largest(&self) -> Option<&TopRow> {
        self.top.iter().find(|row| row.label != OTHER)
    }
}

/// The summaries of a recording: a line for each device with data. `number` is its rank, unless the recording names
/// another.
///
/// # Errors
/// If a device is requested that the recording does not have.
pub fn summarize(
    path: &str,
    number: RankNumber,
    recording: &Devices<'_>,
    options: &SummaryOptions,
) -> Result<Vec<RankLine>> {
    let snapshot = recording.snapshot();
    let recorded = snapshot.notes.rank;
    let number = recorded.map_or(number, |(rank, _)| RankNumber { rank, source: RankSource::Recorded });
    let peak = PeakOptions { metric: options.metric, devices: options.devices.clone(), ..PeakOptions::default() };
    let report = PeakReport::of(recording, &peak)?;
    if report.devices.is_empty() {
        let empty = EmptyRank { path: path.to_owned(), rank: number.rank, rank_source: number.source };
        return Ok(vec![RankLine::Empty(empty)]);
    }
    let time_us = |track: Track<'_>| {
        let times = Some(track.times()).filter(|_| track.has_times())?;
        Some((*times.first()?, *times.last()?))
    };
    let ooms = |track: Track<'_>| track.count_of(Action::Oom);
    let track = |peak: &DevicePeak| recording.get(peak.device).map(|device| device.track);
    let summary = |device: &DevicePeak| RankSummary {
        path: path.to_owned(),
        rank: number.rank,
        rank_source: number.source,
        world_size: recorded.and_then(|(_, world_size)| world_size),
        device: device.device,
        format: snapshot.notes.format,
        entries: device.entries,
        time_us: track(device).and_then(time_us),
        code: track(device).and_then(|track| CodeSample::of(track, recording.sites())),
        complete_history: device.completeness.is_complete(),
        anomalies: device.anomalies.total(),
        bounds: device.bounds(),
        baseline_bytes: device.baseline.allocated,
        maxima: device.maxima.into(),
        metric: options.metric,
        peak: device.at,
        inactive_bytes: (device.maxima[Metric::Reserved as usize].bytes > 0)
            .then(|| device.at.reserved.wrapping_sub(device.at.active)),
        end: device.end,
        device_memory: device_memory(recording, device.device),
        ooms: track(device).map_or(0, ooms),
        failures: recording.get(device.device).map(failures).unwrap_or_default(),
        total_bytes: device.attribution.total_bytes,
        top: top_rows(&device.attribution, options.top),
    };
    Ok(report.devices.iter().map(|device| RankLine::Rank(Box::new(summary(device)))).collect())
}

/// The whole device, if it was sampled.
fn device_memory(recording: &Devices<'_>, device: DeviceId) -> Option<DeviceMemory> {
    let ledgers = LedgerReport::known(recording, &[device]);
    let most = ledgers.first()?.highest()?;
    Some(DeviceMemory::new(most.at, most.total_bytes, most.used_bytes, most.outside_bytes()))
}

/// The first failed requests by signature, in order of the first request with each signature.
fn failures(device: &Device<'_>) -> Vec<RankFailure> {
    let mut failures: Vec<RankFailure> = Vec::new();
    for mut signature in signatures(device, SIGNED) {
        if let Some(failure) = failures.iter_mut().find(|failure| failure.signature.id == signature.id) {
            failure.requests += 1;
            continue;
        }
        signature.requester = ending(&signature.requester, LABEL);
        signature.holder = ending(&signature.holder, LABEL);
        failures.push(RankFailure { signature, requests: 1 });
    }
    failures
}

/// The largest rows, as many as requested and as fit, and one for the rest.
fn top_rows(attribution: &Attribution, top: usize) -> Vec<TopRow> {
    let mut rows: Vec<TopRow> = Vec::new();
    let mut labels = 0;
    for row in attribution.rows.iter().take(top) {
        let label = ending(&row.label, LABEL);
        labels += label.len();
        if labels > LABELS {
            break;
        }
        rows.push(TopRow { label, bytes: row.bytes, blocks: row.blocks, inferred: row.inferred });
    }
    let rest = &attribution.rows[rows.len()..];
    if !rest.is_empty() {
        rows.push(TopRow {
            label: OTHER.to_owned(),
            bytes: rest.iter().fold(0, |sum: u64, row| sum.wrapping_add(row.bytes)),
            blocks: rest.iter().map(|row| row.blocks).sum(),
            inferred: rest.iter().any(|row| row.inferred),
        });
    }
    rows
}

/// A text of at most `length` bytes: the end of a path distinguishes files.
fn ending(text: &str, length: usize) -> String {
    if text.len() <= length {
        return text.to_owned();
    }
    let mark = "…";
    let least = text.len() - (length - mark.len());
    let start = (least..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    format!("{mark}{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::grouping::attribution::Row;

    #[test]
    fn summaries_stay_small_and_sum_up() {
        let rows: Vec<Row> = (0..100)
            .map(|index| Row {
                label: format!("{}é/file.py:{index} forward", "long/".repeat(index)),
                bytes: 1000 - index as u64,
                blocks: 2,
                ..Row::default()
            })
            .collect();
        let attribution =
            Attribution { total_bytes: rows.iter().map(|row| row.bytes).sum(), rows, ..Attribution::default() };
        for top in [0, 1, 20, 99, 100, 1000] {
            let found = top_rows(&attribution, top);
            assert!(found.len() <= top + 1);
            assert_eq!(found.iter().map(|row| row.bytes).sum::<u64>(), attribution.total_bytes);
            assert_eq!(found.iter().map(|row| row.blocks).sum::<u64>(), 200);
            assert!(found.iter().map(|row| row.label.len()).sum::<usize>() <= LABELS + OTHER.len());
        }
        assert_eq!(ending("ééé", 5), "…é");
        assert_eq!(ending("abc", 3), "abc");
    }
}
