//! `memviz checkpoint` as CSV: a line per candidate and plan, the first with every call checkpointed.

use crate::analysis::checkpoint::{CheckpointReport, DeviceCheckpoint};
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,peak_allocated_bytes,forward_us,label,calls,activation_bytes,recompute_us,every,\
     predicted_peak_allocated_bytes,saved_bytes,complete_history,anomalies";

pub(crate) fn write(report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    report.devices.iter().try_for_each(|device| candidates(device, &mut csv))?;
    csv.end()
}

fn candidates(device: &DeviceCheckpoint, csv: &mut Lines<'_>) -> io::Result<()> {
    let time = |time: Option<i64>| time.map(|time| time.to_string()).unwrap_or_default();
    for candidate in &device.candidates {
        for plan in &candidate.plan {
            csv.line([
                &device.device.to_string(),
                &device.peak_bytes.to_string(),
                &time(device.forward_us),
                &cell(&candidate.label),
                &candidate.calls.to_string(),
                &candidate.activation_bytes.to_string(),
                &time(candidate.recompute_us),
                &plan.every.to_string(),
                &plan.predicted_peak_bytes.to_string(),
                &device.peak_bytes.saturating_sub(plan.predicted_peak_bytes).to_string(),
                &device.completeness.is_complete().to_string(),
                &device.anomalies.total().to_string(),
            ])?;
        }
    }
    Ok(())
}
