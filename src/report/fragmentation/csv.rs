//! `memviz fragmentation` as CSV: the rows of non-releasable memory, or the rows over time.

use crate::analysis::fragmentation::FragmentationReport;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
    if report.devices.iter().any(|device| device.over_time.is_some()) {
        over_time(report, out)
    } else {
        pinning(report, out)
    }
}

fn pinning(report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.devices.iter().flat_map(|device| device.pinning.rows.iter().map(move |row| (device, row)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.device.to_string()),
            ("entry", |(device, _)| optional(device.moment.entry)),
            ("by", |(device, _)| device.by.name().to_owned()),
            ("label", |(_, row)| cell(&row.label)),
            ("inferred", |(_, row)| row.inferred.to_string()),
            ("bytes", |(_, row)| row.bytes.to_string()),
            ("blocks", |(_, row)| row.blocks.to_string()),
            ("pinned_free_bytes", |(_, row)| row.pinned_free_bytes.to_string()),
            ("worst_block_bytes", |(_, row)| row.worst_block_bytes.to_string()),
            ("alone_free_bytes", |(_, row)| row.alone_free_bytes.to_string()),
            ("stack", |(_, row)| cell(&row.stack.join(";"))),
            ("complete_history", |(device, _)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, _)| device.anomalies.total().to_string()),
        ],
        out,
    )
}

fn over_time(report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.devices.iter().flat_map(|device| device.over_time.iter().flatten().map(move |row| (device, row)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.device.to_string()),
            ("entry", |(_, row)| optional(row.moment.entry)),
            ("time_us", |(_, row)| optional(row.moment.time_us)),
            ("reserved_bytes", |(_, row)| row.figures.reserved.to_string()),
            ("active_bytes", |(_, row)| row.figures.active().to_string()),
            ("allocated_bytes", |(_, row)| row.figures.allocated.to_string()),
            ("requested_bytes", |(_, row)| row.figures.requested.to_string()),
            ("inactive_bytes", |(_, row)| row.figures.inactive.to_string()),
            ("rounding_bytes", |(_, row)| row.figures.rounding().to_string()),
            ("largest_free_block_bytes", |(_, row)| row.figures.largest_free_block.to_string()),
            ("releasable_bytes", |(_, row)| row.figures.releasable.to_string()),
            ("pinned_free_bytes", |(_, row)| row.figures.pinned_free.to_string()),
            ("segments", |(_, row)| row.figures.segments.to_string()),
            ("free_blocks", |(_, row)| row.figures.free_blocks.to_string()),
            ("complete_history", |(device, _)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, _)| device.anomalies.total().to_string()),
        ],
        out,
    )
}
