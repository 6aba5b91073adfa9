//! `memviz fit` as CSV: a line per device and number, ascending.

use super::words;
use crate::analysis::fit::FitReport;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,parameter,value,recorded,alloc_conf,capacity_bytes,finishes,max_allocated_bytes,\
     max_reserved_bytes,alloc_retries,unmatched_requests,unmatched_bytes,trust,because";

pub(crate) fn write(report: &FitReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        for prediction in &device.predictions {
            let outcome = &prediction.outcome;
            csv.line([
                &device.device.to_string(),
                &cell(&report.parameter),
                &prediction.value.to_string(),
                &prediction.is_recorded.to_string(),
                &cell(&device.alloc_conf),
                &device.capacity.map(|capacity| capacity.to_string()).unwrap_or_default(),
                &prediction.fits().to_string(),
                &outcome.max_allocated.to_string(),
                &outcome.max_reserved.to_string(),
                &outcome.retries.to_string(),
                &prediction.unmatched.to_string(),
                &prediction.unmatched_bytes.to_string(),
                prediction.trust.name(),
                &cell(&words::because(&report.parameter, device, prediction)),
            ])?;
        }
    }
    csv.end()
}
