//! `memviz oom` as CSV: a line per failed request.

use super::words as oom_words;
use crate::analysis::oom::{Oom, OomReport};
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,entry,time_us,requested_bytes,driver_bytes,device_free_bytes,reserved_bytes,allocated_bytes,\
     pending_free_bytes,inactive_bytes,largest_free_block_bytes,releasable_bytes,pinned_free_bytes,\
     retry_freed_bytes,cause,evidence,advice,label,stack,complete_history,anomalies";

pub(crate) fn write(report: &OomReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        for oom in &device.ooms {
            let mut line = vec![device.device.to_string()];
            line.extend(columns(oom));
            line.push(device.completeness.is_complete().to_string());
            line.push(device.anomalies.total().to_string());
            csv.line(&line)?;
        }
    }
    csv.end()
}

fn columns(oom: &Oom) -> [String; 18] {
    let Oom { moment, request, figures, .. } = oom;
    let evidence: Vec<String> = oom.evidence.iter().map(|it| oom_words::evidence(oom, it).text).collect();
    let advice: Vec<String> = oom.advice.iter().map(|it| oom_words::advice(oom, it).text).collect();
    [
        moment.entry.map(|entry| entry.to_string()).unwrap_or_default(),
        moment.time_us.map(|time| time.to_string()).unwrap_or_default(),
        request.bytes.to_string(),
        request.driver_bytes.to_string(),
        oom.device_free.to_string(),
        figures.reserved.to_string(),
        figures.allocated.to_string(),
        figures.pending_free.to_string(),
        figures.inactive.to_string(),
        figures.largest_free_block.to_string(),
        figures.releasable.to_string(),
        figures.pinned_free.to_string(),
        oom.retry.bytes.to_string(),
        oom.cause.name().to_owned(),
        cell(&evidence.join("; ")),
        cell(&advice.join("; ")),
        cell(&request.site),
        cell(&request.stack.join(";")),
    ]
}
