//! `memviz oom` as CSV: a line per failed request.

use super::words::{self, Statement};
use crate::analysis::oom::OomReport;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.devices.iter().flat_map(|device| device.ooms.iter().map(move |oom| (device, oom)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.device.to_string()),
            ("entry", |(_, oom)| optional(oom.moment.entry)),
            ("time_us", |(_, oom)| optional(oom.moment.time_us)),
            ("requested_bytes", |(_, oom)| oom.request.bytes.to_string()),
            ("driver_bytes", |(_, oom)| oom.request.driver_bytes.to_string()),
            ("device_free_bytes", |(_, oom)| oom.device_free.to_string()),
            ("reserved_bytes", |(_, oom)| oom.figures.reserved.to_string()),
            ("allocated_bytes", |(_, oom)| oom.figures.allocated.to_string()),
            ("pending_free_bytes", |(_, oom)| oom.figures.pending_free.to_string()),
            ("inactive_bytes", |(_, oom)| oom.figures.inactive.to_string()),
            ("largest_free_block_bytes", |(_, oom)| oom.figures.largest_free_block.to_string()),
            ("releasable_bytes", |(_, oom)| oom.figures.releasable.to_string()),
            ("pinned_free_bytes", |(_, oom)| oom.figures.pinned_free.to_string()),
            ("retry_freed_bytes", |(_, oom)| oom.retry.bytes.to_string()),
            ("cause", |(_, oom)| oom.cause.name().to_owned()),
            ("evidence", |(_, oom)| joined(oom.evidence.iter().map(|it| words::evidence(oom, it)))),
            ("advice", |(_, oom)| joined(oom.advice.iter().map(|it| words::advice(oom, it)))),
            ("label", |(_, oom)| cell(&oom.request.site)),
            ("stack", |(_, oom)| cell(&oom.request.stack.join(";"))),
            ("complete_history", |(device, _)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, _)| device.anomalies.total().to_string()),
        ],
        out,
    )
}

fn joined(statements: impl Iterator<Item = Statement>) -> String {
    cell(&statements.map(|statement| statement.text).collect::<Vec<_>>().join("; "))
}
