//! `memviz peak --each` as CSV: a line for each range.

use super::words::lead;
use crate::analysis::peak::DevicePeak;
use crate::analysis::peak::each::{RangePeak, RangePeaks};
use crate::replay::Bound;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,metric,each,label,inferred,from_entry,to_entry,peak_bytes,bound,entry,time_us,annotations,\
     allocated_bytes,active_bytes,requested_bytes,reserved_bytes,by,largest,largest_bytes,\
     largest_inferred,complete_history,anomalies";

pub(crate) fn write<'r>(
    devices: impl Iterator<Item = (&'r DevicePeak, &'r RangePeaks)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for (device, ranges) in devices {
        for range in &ranges.ranges {
            csv.line(record(device, ranges, range))?;
        }
    }
    csv.end()
}

fn record(device: &DevicePeak, ranges: &RangePeaks, range: &RangePeak) -> [String; 22] {
    let optional = |number: Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
    // The entry that leads to an instant has the number before it.
    let entry = |instant: u32| optional(i64::from(instant).checked_sub(1).filter(|&entry| entry >= 0));
    let largest = lead(range);
    [
        device.device.to_string(),
        device.metric.name().to_owned(),
        ranges.each.name().to_owned(),
        cell(&range.label),
        range.inferred.to_string(),
        entry(range.from),
        entry(range.to),
        range.at.get(device.metric).to_string(),
        range.bound.map_or("exact", Bound::name).to_owned(),
        optional(range.peak.entry.map(i64::from)),
        optional(range.peak.time_us),
        cell(&range.peak.annotations.join(";")),
        range.at.allocated.to_string(),
        range.at.active.to_string(),
        range.at.requested.to_string(),
        range.at.reserved.to_string(),
        device.attribution.by.name().to_owned(),
        largest.map(|row| cell(&row.label)).unwrap_or_default(),
        largest.map(|row| row.bytes.to_string()).unwrap_or_default(),
        largest.map(|row| row.inferred.to_string()).unwrap_or_default(),
        device.completeness.is_complete().to_string(),
        device.anomalies.total().to_string(),
    ]
}
