//! The JSON of how devices compare.

use crate::analysis::peak::comparison::Comparison;
use crate::facts::grouping::GroupBy;
use crate::replay::{Bound, Metric};
use serde::Serialize;

/// How CUDA devices compare, each at its own peak. Only present if the fullest device exceeds the mean by at least a tenth of
/// its own memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceComparison {
    /// The counter that is compared.
    pub metric: Metric,
    /// What rows represent.
    pub by: GroupBy,
    /// The device that holds the most.
    pub fullest: i32,
    /// The device that holds the least.
    pub emptiest: i32,
    /// Their mean, rounded down.
    pub mean_bytes: i64,
    /// The devices, in order.
    pub peaks: Vec<ComparedDevice>,
    /// The groups in which the fullest and the emptiest device differ most, the largest difference first. Empty if groups
    /// overlap.
    pub rows: Vec<ComparedGroup>,
}

/// A device at its peak.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparedDevice {
    /// The device.
    pub device: i32,
    /// Bytes of the metric at its peak.
    pub bytes: i64,
    /// Which bound the value is. Left out if it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// A group on all devices.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparedGroup {
    /// The group.
    pub label: String,
    /// Its bytes at the peak of each device, in the order of `peaks`.
    pub bytes: Vec<u64>,
    /// Whether the label is inferred.
    pub inferred: bool,
}

impl From<&Comparison> for DeviceComparison {
    fn from(comparison: &Comparison) -> Self {
        let devices = comparison.devices.iter();
        let rows = comparison.rows.iter();
        Self {
            metric: comparison.metric,
            by: comparison.by,
            fullest: comparison.most().device,
            emptiest: comparison.least().device,
            mean_bytes: comparison.mean_bytes,
            peaks: devices.map(|it| ComparedDevice { device: it.device, bytes: it.bytes, bound: it.bound }).collect(),
            rows: rows
                .map(|row| ComparedGroup { label: row.label.clone(), bytes: row.bytes.clone(), inferred: row.inferred })
                .collect(),
        }
    }
}
