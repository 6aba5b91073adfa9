//! `memviz simulate` as CSV: a line per device and settings, the recorded ones first.

use crate::analysis::simulate::SimulateReport;
use crate::report::common::csv::{Lines, cell};
use crate::simulation::Outcome;
use std::io::{self, Write};

const HEAD: &str = "device,alloc_conf,recorded,changes,capacity_bytes,finishes,fails_at_entry,max_allocated_bytes,\
     max_reserved_bytes,max_inactive_bytes,alloc_retries,device_allocs,device_frees,first_capacity_bytes,\
     safe_capacity_bytes,enough_capacity_bytes,as_it_went_capacity_bytes,trust,because,complete_history,\
     anomalies";

pub(crate) fn write(report: &SimulateReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    for device in &report.devices {
        for run in &device.runs {
            let outcome = run.outcome.as_ref();
            csv.line([
                &device.device.to_string(),
                &cell(&run.alloc_conf),
                &run.is_recorded.to_string(),
                &cell(&run.changes.join("; ")),
                &number(device.capacity),
                &outcome.map(|outcome| outcome.failure().is_none().to_string()).unwrap_or_default(),
                &number(outcome.and_then(Outcome::failure).map(u64::from)),
                &number(outcome.map(|outcome| outcome.max_allocated)),
                &number(outcome.map(|outcome| outcome.max_reserved)),
                &number(outcome.map(|outcome| outcome.max_inactive)),
                &number(outcome.map(|outcome| outcome.retries)),
                &number(outcome.map(|outcome| outcome.device_allocs)),
                &number(outcome.map(|outcome| outcome.device_frees)),
                &number(run.capacities.first),
                &number(run.capacities.safe),
                &number(run.capacities.enough),
                &number(run.as_it_went),
                run.trust.name(),
                &cell(&run.because),
                &device.completeness.is_complete().to_string(),
                &device.anomalies.total().to_string(),
            ])?;
        }
    }
    csv.end()
}
