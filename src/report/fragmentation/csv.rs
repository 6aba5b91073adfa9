//! `memviz fragmentation` as CSV: the rows of non-releasable memory, or the rows over time.

use crate::analysis::fragmentation::{DeviceFragmentation, FragmentationReport};
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const PINNING: &str = "device,entry,by,label,inferred,bytes,blocks,pinned_free_bytes,worst_block_bytes,alone_free_bytes,\
     stack,complete_history,anomalies";
const OVER_TIME: &str = "device,entry,time_us,reserved_bytes,active_bytes,allocated_bytes,requested_bytes,inactive_bytes,\
     rounding_bytes,largest_free_block_bytes,releasable_bytes,pinned_free_bytes,segments,free_blocks,\
     complete_history,anomalies";

pub(crate) fn write(report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
    if report.devices.iter().any(|device| device.over_time.is_some()) {
        over_time(report, Lines::new(OVER_TIME, out)?)
    } else {
        pinning(report, Lines::new(PINNING, out)?)
    }
}

/// The end of every line: the device and the instant.
fn tail(device: &DeviceFragmentation) -> [String; 2] {
    [device.completeness.is_complete().to_string(), device.anomalies.total().to_string()]
}

fn pinning(report: &FragmentationReport, mut csv: Lines<'_>) -> io::Result<()> {
    for device in &report.devices {
        let entry = device.moment.entry.map(|entry| entry.to_string()).unwrap_or_default();
        for row in &device.pinning.rows {
            let line = [
                device.device.to_string(),
                entry.clone(),
                device.by.name().to_owned(),
                cell(&row.label),
                row.inferred.to_string(),
                row.bytes.to_string(),
                row.blocks.to_string(),
                row.pinned_free_bytes.to_string(),
                row.worst_block_bytes.to_string(),
                row.alone_free_bytes.to_string(),
                cell(&row.stack.join(";")),
            ];
            csv.line(line.iter().chain(&tail(device)))?;
        }
    }
    csv.end()
}

fn over_time(report: &FragmentationReport, mut csv: Lines<'_>) -> io::Result<()> {
    for device in &report.devices {
        for row in device.over_time.iter().flatten() {
            let figures = &row.figures;
            let line = [
                device.device.to_string(),
                row.moment.entry.map(|entry| entry.to_string()).unwrap_or_default(),
                row.moment.time_us.map(|time| time.to_string()).unwrap_or_default(),
                figures.reserved.to_string(),
                figures.active().to_string(),
                figures.allocated.to_string(),
                figures.requested.to_string(),
                figures.inactive.to_string(),
                figures.rounding().to_string(),
                figures.largest_free_block.to_string(),
                figures.releasable.to_string(),
                figures.pinned_free.to_string(),
                figures.segments.to_string(),
                figures.free_blocks.to_string(),
            ];
            csv.line(line.iter().chain(&tail(device)))?;
        }
    }
    csv.end()
}
