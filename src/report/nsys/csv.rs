//! `memviz nsys` as CSV.

use super::words;
use crate::analysis::nsys::NsysReport;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(super) fn write(report: &NsysReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.memories.iter().flat_map(|memory| memory.rows.iter().map(move |row| (memory, row)));
    table(
        rows,
        &[
            ("pid", |(memory, _)| memory.pid.to_string()),
            ("place", |(memory, _)| memory.place.name().to_owned()),
            ("device", |(memory, _)| optional(memory.place.device())),
            ("holder", |(_, row)| row.holder.name().to_owned()),
            ("label", |(_, row)| cell(&words::holder(&row.holder))),
            ("call", |(_, row)| cell(row.call.as_deref().unwrap_or_default())),
            ("kind", |(_, row)| words::kind_name(row.kind).to_owned()),
            ("allocations", |(_, row)| row.allocations.to_string()),
            ("freed", |(_, row)| row.freed.to_string()),
            // If the order of events is unknown, so are the peak and the end.
            ("peak_bytes", |(memory, row)| optional(memory.peak.is_ok().then_some(row.peak_bytes))),
            ("end_bytes", |(memory, row)| optional(memory.peak.is_ok().then_some(row.end_bytes))),
            ("allocated_bytes", |(_, row)| row.allocated_bytes.to_string()),
        ],
        out,
    )
}
