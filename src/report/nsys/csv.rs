//! `memviz nsys` as CSV.

use super::words;
use crate::analysis::nsys::NsysReport;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "pid,place,device,holder,label,call,kind,allocations,freed,peak_bytes,end_bytes,allocated_bytes";

pub(super) fn write(report: &NsysReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for memory in &report.memories {
        for row in &memory.rows {
            // If the order of events is unknown, so are the peak and the end.
            let known = |bytes: u64| if memory.peak.is_ok() { bytes.to_string() } else { String::new() };
            csv.line([
                &memory.pid.to_string(),
                memory.place.name(),
                &memory.place.device().map(|device| device.to_string()).unwrap_or_default(),
                row.holder.name(),
                &cell(&words::holder(&row.holder)),
                &cell(row.call.as_deref().unwrap_or_default()),
                words::kind_name(row.kind),
                &row.allocations.to_string(),
                &row.freed.to_string(),
                &known(row.peak_bytes),
                &known(row.end_bytes),
                &row.allocated_bytes.to_string(),
            ])?;
        }
    }
    csv.end()
}
