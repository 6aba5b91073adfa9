//! The JSON of how devices compare.

use crate::analysis::peak::comparison::{Comparison, DeviceShare, GroupShares};
use crate::facts::grouping::GroupBy;
use crate::replay::Metric;
use serde::Serialize;

/// How CUDA devices compare, each at its own peak. Only present if the fullest device exceeds the mean by at least a tenth of
/// its own memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceComparison<'a> {
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
    pub peaks: &'a [DeviceShare],
    /// The groups in which the fullest and the emptiest device differ most, the largest difference first. Empty if groups
    /// overlap.
    pub rows: &'a [GroupShares],
}

impl<'a> From<&'a Comparison> for DeviceComparison<'a> {
    fn from(comparison: &'a Comparison) -> Self {
        Self {
            metric: comparison.metric,
            by: comparison.by,
            fullest: comparison.most().device,
            emptiest: comparison.least().device,
            mean_bytes: comparison.mean_bytes,
            peaks: &comparison.devices,
            rows: &comparison.rows,
        }
    }
}
