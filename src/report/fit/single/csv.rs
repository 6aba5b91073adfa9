//! `memviz fit` of one recording as CSV: a line per device and plan, the unchanged program first.

use crate::report::common::csv::{Lines, cell};
use crate::simulation::plans::PlanReport;
use std::io::{self, Write};

const HEAD: &str = "device,goal_bytes,alloc_conf,changes,fits,needs_bytes,max_allocated_bytes,max_reserved_bytes,\
     alloc_retries,recompute_us,trust";

pub(crate) fn write(report: &PlanReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        let plans = device.plans.iter().map(|plan| (plan, true));
        let as_it_is = device.as_it_is.iter().map(|plan| (plan, device.fits));
        let nearest = device.nearest.iter().map(|plan| (plan, false));
        for (plan, fits) in as_it_is.chain(plans).chain(nearest) {
            let changes: Vec<String> = plan.changes.iter().map(|change| change.change.to_string()).collect();
            csv.line([
                &device.device.to_string(),
                &device.goal.bytes().to_string(),
                &cell(plan.alloc_conf.as_ref().unwrap_or(&device.recorded_conf)),
                &cell(&changes.join(" ")),
                &fits.to_string(),
                &plan.needs.map(|bytes| bytes.to_string()).unwrap_or_default(),
                &plan.outcome.max_allocated.to_string(),
                &plan.outcome.max_reserved.to_string(),
                &plan.outcome.retries.to_string(),
                &plan.recompute_us.map(|time| time.to_string()).unwrap_or_default(),
                device.trust(plan).name(),
            ])?;
        }
    }
    csv.end()
}
