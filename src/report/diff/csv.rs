//! `memviz diff` as CSV.

use crate::analysis::diff::DiffReport;
use crate::replay::Bound;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,base_device,metric,by,label,base_label,status,base_bytes,new_bytes,delta_bytes,base_blocks,\
     new_blocks,inferred,stack,base_bound,new_bound,born_bytes,freed_bytes,survived_bytes";

pub(crate) fn write(report: &DiffReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        let bound = |bound: Option<Bound>| bound.map_or("exact", Bound::name);
        for row in &device.rows {
            let lives = row.lives.map(|it| [it.born, it.freed, it.survived].map(|share| share.bytes.to_string()));
            let [born, freed, survived] = lives.unwrap_or_default();
            csv.line([
                &device.new.device().to_string(),
                &device.base.device().to_string(),
                device.metric().name(),
                device.by().name(),
                &cell(&row.label),
                &cell(row.base_label.as_deref().unwrap_or_default()),
                row.fate.name(),
                &row.base_bytes.to_string(),
                &row.new_bytes.to_string(),
                &row.delta_bytes().to_string(),
                &row.base_blocks.to_string(),
                &row.new_blocks.to_string(),
                &row.inferred.to_string(),
                &cell(&row.stack.join(";")),
                bound(device.base.bound),
                bound(device.new.bound),
                &born,
                &freed,
                &survived,
            ])?;
        }
    }
    csv.end()
}
