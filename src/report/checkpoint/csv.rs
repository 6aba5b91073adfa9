//! `memviz checkpoint` as CSV: a line per candidate and plan, the first with every call checkpointed.

use crate::analysis::checkpoint::CheckpointReport;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &CheckpointReport, out: &mut dyn Write) -> io::Result<()> {
    let candidates =
        report.devices.iter().flat_map(|device| device.candidates.iter().map(move |candidate| (device, candidate)));
    let rows =
        candidates.flat_map(|(device, candidate)| candidate.plan.iter().map(move |plan| (device, candidate, plan)));
    table(
        rows,
        &[
            ("device", |(device, ..)| device.device.to_string()),
            ("peak_allocated_bytes", |(device, ..)| device.peak_bytes.to_string()),
            ("forward_us", |(device, ..)| optional(device.forward_us)),
            ("label", |(_, candidate, _)| cell(&candidate.label)),
            ("calls", |(_, candidate, _)| candidate.calls.to_string()),
            ("activation_bytes", |(_, candidate, _)| candidate.activation_bytes.to_string()),
            ("recompute_us", |(_, candidate, _)| optional(candidate.recompute_us)),
            ("every", |(.., plan)| plan.every.to_string()),
            ("predicted_peak_allocated_bytes", |(.., plan)| plan.predicted_peak_bytes.to_string()),
            ("saved_bytes", |(device, _, plan)| {
                device.peak_bytes.saturating_sub(plan.predicted_peak_bytes).to_string()
            }),
            ("complete_history", |(device, ..)| device.completeness.is_complete().to_string()),
            ("anomalies", |(device, ..)| device.anomalies.total().to_string()),
        ],
        out,
    )
}
