//! `memviz leaks` as CSV.

use crate::analysis::leaks::LeakReport;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.devices.iter().flat_map(|device| device.rows.iter().map(move |row| (device, row)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.device.to_string()),
            ("steps", |(device, _)| device.step_count().to_string()),
            ("steps_inferred", |(device, _)| {
                device.steps.as_ref().is_ok_and(|steps| steps.source.is_inferred()).to_string()
            }),
            ("by", |(device, _)| device.by.name().to_owned()),
            ("label", |(_, row)| cell(&row.label)),
            ("inferred", |(_, row)| row.inferred.to_string()),
            ("verdict", |(_, row)| row.verdict.name().to_owned()),
            ("bytes_per_step", |(_, row)| row.rate.bytes.to_string()),
            ("allocated_bytes_per_step", |(_, row)| row.rate.allocated_bytes.to_string()),
            ("blocks_per_step", |(_, row)| row.rate.blocks.to_string()),
            ("live_bytes", |(_, row)| row.live_bytes.to_string()),
            ("live_blocks", |(_, row)| row.live_blocks.to_string()),
            ("oldest_entry", |(_, row)| optional(row.oldest.and_then(|oldest| oldest.entry))),
            ("oldest_step", |(_, row)| optional(row.oldest.and_then(|oldest| oldest.step))),
            ("stack", |(_, row)| cell(&row.stack.join(";"))),
            ("complete_history", |(device, _)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, _)| device.anomalies.total().to_string()),
        ],
        out,
    )
}
