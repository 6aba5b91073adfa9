//! Compares the devices of one recording, if they differ.

use super::device_peak::DevicePeak;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::OTHER;
use crate::model::DeviceId;
use crate::replay::{Bound, Metric};
use crate::sorting::SortRows;
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use std::cmp::Reverse;

/// Devices differ if the fullest one exceeds the mean of all by at least this fraction of its own memory: an even
/// split would save that much. Buffers, workspaces and the order of allocations cause smaller differences.
pub const MATERIAL: f64 = 0.1;
/// Maximum number of listed groups.
pub const ROWS: usize = 3;

/// A device at its peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ComparedDevice"))]
pub struct DeviceShare {
    pub device: DeviceId,
    /// Bytes of the metric at its peak.
    pub bytes: i64,
    /// Which bound the value is. Left out if it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Whether it is the memory at dump time, because there is no history with a peak.
    #[serde(skip)]
    pub at_dump: bool,
}

/// A group on all devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ComparedGroup"))]
pub struct GroupShares {
    /// The group.
    pub label: String,
    /// Its bytes at the peak of each device, in the order of `peaks`.
    pub bytes: Vec<u64>,
    /// Whether the label is inferred, on any device.
    pub inferred: bool,
}

/// CUDA devices of one recording that differ, each at its own peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub metric: Metric,
    pub by: GroupBy,
    /// The devices that hold something, in order.
    pub devices: Vec<DeviceShare>,
    /// The device that holds the most, as an index; the first one if there are several.
    pub fullest: usize,
    /// The device that holds the least.
    pub emptiest: usize,
    pub mean_bytes: i64,
    /// The groups in which the two differ most, the largest difference first. Empty if groups overlap.
    pub rows: Vec<GroupShares>,
}

impl Comparison {
    /// Compares the peaks of devices, with all rows. `None` if there are not at least two, or they hardly differ.
    pub fn of(peaks: &[DevicePeak]) -> Option<Self> {
        let held = |peak: &&DevicePeak| peak.device >= 0 && peak.at.get(peak.metric) > 0;
        let peaks: Vec<&DevicePeak> = peaks.iter().filter(held).collect();
        let first = peaks.first()?;
        let (metric, by) = (first.metric, first.attribution.by);
        let early = |peak: &DevicePeak| peak.is_early(metric).then_some(Bound::Lower);
        let share = |peak: &&DevicePeak| DeviceShare {
            device: peak.device,
            bytes: peak.at.get(metric),
            bound: peak.completeness.bound(metric).or_else(|| early(peak)),
            at_dump: peak.completeness.no_entries,
        };
        let devices: Vec<DeviceShare> = peaks.iter().map(share).collect();
        let fullest = (0..devices.len()).min_by_key(|&index| Reverse(devices[index].bytes))?;
        let emptiest = (0..devices.len()).min_by_key(|&index| devices[index].bytes)?;
        let sum: i128 = devices.iter().map(|device| i128::from(device.bytes)).sum();
        let mean_bytes = (sum / devices.len() as i128) as i64;
        let most = devices[fullest].bytes;
        // One device alone is its own mean.
        if (most.saturating_sub(mean_bytes) as f64) < most as f64 * MATERIAL {
            return None;
        }
        let rows = if by.is_inclusive() { Vec::new() } else { rows(&peaks, fullest, emptiest) };
        Some(Self { metric, by, devices, fullest, emptiest, mean_bytes, rows })
    }

    pub fn most(&self) -> DeviceShare {
        self.devices[self.fullest]
    }

    pub fn least(&self) -> DeviceShare {
        self.devices[self.emptiest]
    }
}

fn rows(peaks: &[&DevicePeak], fullest: usize, emptiest: usize) -> Vec<GroupShares> {
    let groups = |peak: &&DevicePeak| -> IndexMap<String, (u64, bool)> {
        let rows = peak.attribution.rows.iter().filter(|row| row.label != OTHER);
        let mut groups: IndexMap<String, (u64, bool)> = IndexMap::new();
        for row in rows {
            // Stacks of one site share its label.
            let (bytes, inferred) = groups.entry(row.label.clone()).or_default();
            *bytes = bytes.wrapping_add(row.bytes);
            *inferred |= row.inferred;
        }
        groups
    };
    let by_device: Vec<_> = peaks.iter().map(groups).collect();
    let labels: IndexSet<&String> = [fullest, emptiest].iter().flat_map(|&index| by_device[index].keys()).collect();
    let shares = |label: &&String| GroupShares {
        label: (*label).clone(),
        bytes: by_device.iter().map(|groups| groups.get(*label).map_or(0, |&(bytes, _)| bytes)).collect(),
        inferred: by_device.iter().any(|groups| groups.get(*label).is_some_and(|&(_, inferred)| inferred)),
    };
    let mut rows: Vec<GroupShares> = labels.iter().map(shares).collect();
    let difference = |row: &GroupShares| row.bytes[fullest].abs_diff(row.bytes[emptiest]);
    rows.retain(|row| difference(row) > 0);
    rows.sort_rows_by(|a, b| difference(b).cmp(&difference(a)).then_with(|| a.label.cmp(&b.label)));
    rows.truncate(ROWS);
    rows
}
