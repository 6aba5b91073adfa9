//! How devices compare, in words; the same in every format.

use crate::analysis::peak::comparison::Comparison;
use crate::analysis::peak::comparison::DeviceShare;
use crate::report::common::notes::signed;
use crate::report::common::words::mark;

/// Maximum number of devices with a column; of more, only those with the most and the least memory.
const COLUMNS: usize = 4;

/// The devices that hold the most and the least.
pub fn headline(comparison: &Comparison) -> String {
    let (most, least) = (comparison.most(), comparison.least());
    format!(
        "The devices differ: device {} holds the most ({} {}), device {} the least ({}); the average is {}",
        most.device,
        bytes(most),
        if most.at_dump { "at dump time" } else { "at its peak" },
        least.device,
        bytes(least),
        signed(comparison.mean_bytes)
    )
}

/// The first row of a table for each device.
pub fn compared(comparison: &Comparison) -> String {
    let metric = comparison.metric.name();
    if comparison.most().at_dump { format!("{metric} at dump time") } else { format!("peak {metric}") }
}

/// The memory of a device at its peak, marked if it is a bound.
pub fn bytes(share: DeviceShare) -> String {
    format!("{}{}", bound(share), signed(share.bytes))
}

/// The mark of a device's memory if it is a bound.
pub fn bound(share: DeviceShare) -> &'static str {
    // The memory at dump time is known.
    mark(share.bound.filter(|_| !share.at_dump))
}

/// The devices that have a column, as indexes; at most `room`, and at least the two that differ most.
pub fn columns(comparison: &Comparison, room: usize) -> Vec<usize> {
    let all = comparison.devices.len();
    if all <= COLUMNS.min(room) {
        return (0..all).collect();
    }
    let mut two = vec![comparison.emptiest, comparison.fullest];
    two.sort_unstable();
    two
}

pub fn column(comparison: &Comparison, index: usize) -> String {
    format!("device {}", comparison.devices[index].device)
}
