//! `memviz ledger` as CSV.

use crate::analysis::ledger::{Holder, LedgerReport};
use crate::model::HOST_DEVICE;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,at,time_us,holder,label,pid,bytes,used_bytes,total_bytes";

pub(crate) fn write(report: &LedgerReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        for ledger in &device.samples {
            for row in &ledger.rows {
                let pid = if let Holder::Other { pid, .. } = row.holder { pid.to_string() } else { String::new() };
                csv.line([
                    &device.device.to_string(),
                    ledger.at.name(),
                    &ledger.time_us.map(|time| time.to_string()).unwrap_or_default(),
                    row.holder.name(),
                    &cell(&row.holder.label()),
                    &pid,
                    &row.bytes.to_string(),
                    &ledger.used_bytes.to_string(),
                    &ledger.total_bytes.to_string(),
                ])?;
            }
        }
    }
    for sample in &report.host {
        csv.line([
            &HOST_DEVICE.to_string(),
            sample.at.name(),
            &sample.time_us.map(|time| time.to_string()).unwrap_or_default(),
            Holder::Pytorch.name(),
            "pinned host memory",
            "",
            &sample.reserved_bytes.to_string(),
            &sample.reserved_bytes.to_string(),
            "",
        ])?;
    }
    csv.end()
}
