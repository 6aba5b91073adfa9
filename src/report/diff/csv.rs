//! `memviz diff` as CSV.

use crate::analysis::diff::DiffReport;
use crate::replay::Bound;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.devices.iter().flat_map(|device| device.rows.iter().map(move |row| (device, row)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.new.device().to_string()),
            ("base_device", |(device, _)| device.base.device().to_string()),
            ("metric", |(device, _)| device.metric().name().to_owned()),
            ("by", |(device, _)| device.by().name().to_owned()),
            ("label", |(_, row)| cell(&row.label)),
            ("base_label", |(_, row)| cell(row.base_label.as_deref().unwrap_or_default())),
            ("status", |(_, row)| row.fate.name().to_owned()),
            ("base_bytes", |(_, row)| row.base_bytes.to_string()),
            ("new_bytes", |(_, row)| row.new_bytes.to_string()),
            ("delta_bytes", |(_, row)| row.delta_bytes.to_string()),
            ("base_blocks", |(_, row)| row.base_blocks.to_string()),
            ("new_blocks", |(_, row)| row.new_blocks.to_string()),
            ("inferred", |(_, row)| row.inferred.to_string()),
            ("stack", |(_, row)| cell(&row.stack.join(";"))),
            ("base_bound", |(device, _)| device.base.bound.map_or("exact", Bound::name).to_owned()),
            ("new_bound", |(device, _)| device.new.bound.map_or("exact", Bound::name).to_owned()),
            ("born_bytes", |(_, row)| optional(row.lives.map(|lives| lives.born.bytes))),
            ("freed_bytes", |(_, row)| optional(row.lives.map(|lives| lives.freed.bytes))),
            ("survived_bytes", |(_, row)| optional(row.lives.map(|lives| lives.survived.bytes))),
        ],
        out,
    )
}
