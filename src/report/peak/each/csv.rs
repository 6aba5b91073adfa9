//! `memviz peak --each` as CSV: a line for each range.

use super::words::lead;
use crate::analysis::peak::DevicePeak;
use crate::analysis::peak::each::RangePeaks;
use crate::replay::{Bound, History};
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write<'r>(
    devices: impl Iterator<Item = (&'r DevicePeak, &'r RangePeaks)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = devices.flat_map(|(device, ranges)| ranges.ranges.iter().map(move |range| (device, ranges, range)));
    table(
        rows,
        &[
            ("device", |(device, ..)| device.device.to_string()),
            ("metric", |(device, ..)| device.metric.name().to_owned()),
            ("each", |(_, ranges, _)| ranges.each.name().to_owned()),
            ("label", |(.., range)| cell(&range.label)),
            ("inferred", |(.., range)| range.inferred.to_string()),
            ("from_entry", |(.., range)| optional(History::entry_before(range.from))),
            ("to_entry", |(.., range)| optional(History::entry_before(range.to))),
            ("peak_bytes", |(device, _, range)| range.at.get(device.metric).to_string()),
            ("bound", |(.., range)| range.bound.map_or("exact", Bound::name).to_owned()),
            ("entry", |(.., range)| optional(range.peak.entry)),
            ("time_us", |(.., range)| optional(range.peak.time_us)),
            ("annotations", |(.., range)| cell(&range.peak.annotations.join(";"))),
            ("allocated_bytes", |(.., range)| range.at.allocated.to_string()),
            ("active_bytes", |(.., range)| range.at.active.to_string()),
            ("requested_bytes", |(.., range)| range.at.requested.to_string()),
            ("reserved_bytes", |(.., range)| range.at.reserved.to_string()),
            ("by", |(device, ..)| device.attribution.by.name().to_owned()),
            ("largest", |(.., range)| lead(range).map(|row| cell(&row.label)).unwrap_or_default()),
            ("largest_bytes", |(.., range)| optional(lead(range).map(|row| row.bytes))),
            ("largest_inferred", |(.., range)| optional(lead(range).map(|row| row.inferred))),
            ("complete_history", |(device, ..)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, ..)| device.anomalies.total().to_string()),
        ],
        out,
    )
}
