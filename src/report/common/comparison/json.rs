//! The JSON of how devices compare.

use crate::analysis::peak::comparison::{Comparison, DeviceShare, GroupShares};
use crate::facts::grouping::GroupBy;
use crate::replay::Metric;
use crate::report::common::json::keys;

keys! { schema
    /// How CUDA devices compare, each at its own peak. Only present if the fullest device exceeds the mean by at least a tenth of
    /// its own memory.
    pub struct DeviceComparison<'a>(comparison: &'a Comparison) {
        /// The counter that is compared.
        pub metric: Metric = comparison.metric,
        /// What rows represent.
        pub by: GroupBy = comparison.by,
        /// The device that holds the most.
        pub fullest: i32 = comparison.most().device,
        /// The device that holds the least.
        pub emptiest: i32 = comparison.least().device,
        /// Their mean, rounded down.
        pub mean_bytes: i64 = comparison.mean_bytes,
        /// The devices, in order.
        pub peaks: &'a [DeviceShare] = &comparison.devices,
        /// The groups in which the fullest and the emptiest device differ most, the largest difference first. Empty if groups
        /// overlap.
        pub rows: &'a [GroupShares] = &comparison.rows,
    }
}
