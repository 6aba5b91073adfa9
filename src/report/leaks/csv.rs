//! `memviz leaks` as CSV.

use crate::analysis::leaks::LeakReport;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,steps,steps_inferred,by,label,inferred,verdict,bytes_per_step,allocated_bytes_per_step,\
     blocks_per_step,live_bytes,live_blocks,oldest_entry,oldest_step,stack,complete_history,anomalies";

pub(crate) fn write(report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        let inferred = device.steps.as_ref().is_ok_and(|steps| steps.source.is_inferred());
        for row in &device.rows {
            let entry = row.oldest.and_then(|oldest| oldest.entry);
            let step = row.oldest.and_then(|oldest| oldest.step);
            csv.line([
                &device.device.to_string(),
                &device.step_count().to_string(),
                &inferred.to_string(),
                device.by.name(),
                &cell(&row.label),
                &row.inferred.to_string(),
                row.verdict.name(),
                &row.rate.bytes.to_string(),
                &row.rate.allocated_bytes.to_string(),
                &row.rate.blocks.to_string(),
                &row.live_bytes.to_string(),
                &row.live_blocks.to_string(),
                &entry.map(|entry| entry.to_string()).unwrap_or_default(),
                &step.map(|step| step.to_string()).unwrap_or_default(),
                &cell(&row.stack.join(";")),
                &device.completeness.is_complete().to_string(),
                &device.anomalies.total().to_string(),
            ])?;
        }
    }
    csv.end()
}
