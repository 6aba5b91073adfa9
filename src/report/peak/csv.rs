//! `memviz peak` as CSV.

use super::each::csv as each;
use crate::analysis::peak::PeakReport;
use crate::replay::Bound;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,metric,entry,by,label,bytes,blocks,inferred,stack,bound,complete_history,anomalies";

pub(crate) fn write(report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
    let with_ranges = || report.devices.iter().filter_map(|device| Some((device, device.ranges.as_ref()?)));
    if with_ranges().next().is_some() {
        return each::write(with_ranges(), out);
    }
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        let entry = device.entry.map(|entry| entry.to_string()).unwrap_or_default();
        let bound = device.completeness.bound(device.metric).map_or("exact", Bound::name);
        for row in &device.attribution.rows {
            csv.line([
                &device.device.to_string(),
                device.metric.name(),
                &entry,
                device.attribution.by.name(),
                &cell(&row.label),
                &row.bytes.to_string(),
                &row.blocks.to_string(),
                &row.inferred.to_string(),
                &cell(&row.stack.join(";")),
                bound,
                &device.completeness.is_complete().to_string(),
                &device.anomalies.total().to_string(),
            ])?;
        }
    }
    csv.end()
}
