//! `memviz blocks` as CSV.

use crate::analysis::blocks::{BlocksReport, address};
use crate::facts::time::moment::Moment;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &BlocksReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.devices.iter().flat_map(|device| device.blocks.iter().map(move |block| (device, block)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.device.to_string()),
            ("id", |(_, block)| block.id.to_string()),
            ("address", |(_, block)| address(block.address)),
            ("requested_bytes", |(_, block)| block.requested_bytes.to_string()),
            ("bytes", |(_, block)| block.bytes.to_string()),
            ("alloc_entry", |(_, block)| entry(block.allocated.as_ref())),
            ("alloc_us", |(_, block)| time(block.allocated.as_ref())),
            ("free_requested_entry", |(_, block)| entry(block.freed.as_ref())),
            ("free_us", |(_, block)| time(block.freed.as_ref())),
            ("free_completed_entry", |(_, block)| entry(block.completed.as_ref())),
            ("stream", |(_, block)| optional(block.stream)),
            ("category", |(_, block)| block.category.to_owned()),
            ("inferred", |(_, block)| block.inferred.to_string()),
            ("phase", |(_, block)| optional(block.phase)),
            ("step", |(_, block)| optional(block.step)),
            ("site", |(_, block)| cell(&block.site)),
            ("freed_by", |(_, block)| cell(block.freed_by.as_deref().unwrap_or_default())),
        ],
        out,
    )
}

fn entry(moment: Option<&Moment>) -> String {
    optional(moment.and_then(|moment| moment.entry))
}

fn time(moment: Option<&Moment>) -> String {
    optional(moment.and_then(|moment| moment.time_us))
}
