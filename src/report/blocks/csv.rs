//! `memviz blocks` as CSV.

use crate::analysis::blocks::BlocksReport;
use crate::facts::time::moment::Moment;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,id,address,requested_bytes,bytes,alloc_entry,alloc_us,free_requested_entry,free_us,\
     free_completed_entry,stream,category,inferred,phase,step,site,freed_by";

pub(crate) fn write(report: &BlocksReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    let entry = |moment: &Option<Moment>| moment.as_ref().and_then(|moment| moment.entry);
    let time = |moment: &Option<Moment>| moment.as_ref().and_then(|moment| moment.time_us);
    for device in &report.devices {
        for block in &device.blocks {
            csv.line([
                device.device.to_string(),
                block.id.to_string(),
                format!("{:#x}", block.address),
                block.requested_bytes.to_string(),
                block.bytes.to_string(),
                number(entry(&block.allocated)),
                number(time(&block.allocated)),
                number(entry(&block.freed)),
                number(time(&block.freed)),
                number(entry(&block.completed)),
                number(block.stream),
                block.category.to_owned(),
                block.inferred.to_string(),
                block.phase.unwrap_or_default().to_owned(),
                number(block.step),
                cell(&block.site),
                cell(block.freed_by.as_deref().unwrap_or_default()),
            ])?;
        }
    }
    csv.end()
}

/// A number; empty if there is none.
fn number<N: ToString>(number: Option<N>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
