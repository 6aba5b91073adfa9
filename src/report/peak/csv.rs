//! `memviz peak` as CSV.

use super::each::csv as each;
use crate::analysis::peak::PeakReport;
use crate::replay::Bound;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
    let with_ranges = || report.devices.iter().filter_map(|device| Some((device, device.ranges.as_ref()?)));
    if with_ranges().next().is_some() {
        return each::write(with_ranges(), out);
    }
    let rows = report.devices.iter().flat_map(|device| device.attribution.rows.iter().map(move |row| (device, row)));
    table(
        rows,
        &[
            ("device", |(device, _)| device.device.to_string()),
            ("metric", |(device, _)| device.metric.name().to_owned()),
            ("entry", |(device, _)| optional(device.entry)),
            ("by", |(device, _)| device.attribution.by.name().to_owned()),
            ("label", |(_, row)| cell(&row.label)),
            ("bytes", |(_, row)| row.bytes.to_string()),
            ("blocks", |(_, row)| row.blocks.to_string()),
            ("inferred", |(_, row)| row.inferred.to_string()),
            ("stack", |(_, row)| cell(&row.stack.join(";"))),
            ("bound", |(device, _)| device.completeness.bound(device.metric).map_or("exact", Bound::name).to_owned()),
            ("complete_history", |(device, _)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, _)| device.anomalies.total().to_string()),
        ],
        out,
    )
}
