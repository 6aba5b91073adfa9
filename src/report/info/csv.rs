//! `memviz info` as CSV.

use crate::analysis::info::InfoReport;
use crate::model::Action;
use crate::replay::Metric;
use crate::report::common::csv::{Lines, cell};
use std::io::{self, Write};

const HEAD: &str = "device,name,value";

pub(crate) fn write(report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Lines::new(HEAD, out)?;
    for device in &report.devices {
        let id = device.device.to_string();
        let mut line = |name: &str, value: String| csv.line([id.as_str(), name, &cell(&value)]);
        line("entries", device.entries.to_string())?;
        for (action, count) in Action::ALL.iter().zip(device.actions) {
            line(action.name(), count.to_string())?;
        }
        line("segments", device.segments.to_string())?;
        line("blocks", device.blocks.to_string())?;
        line("complete_history", device.completeness.is_complete().to_string())?;
        if let Ok(steps) = &device.steps {
            line("steps", steps.len().to_string())?;
        }
        for phase in &device.phases {
            let name = phase.phase.name();
            line(&format!("{name}_times"), phase.times.to_string())?;
            line(&format!("{name}_entries"), phase.entries.to_string())?;
            line(&format!("{name}_recorded_entries"), phase.recorded_entries.to_string())?;
            if let Some(time) = phase.time_us {
                line(&format!("{name}_us"), time.to_string())?;
            }
        }
        line("anomalies", device.anomalies.total().to_string())?;
        for metric in Metric::ALL {
            let name = metric.name();
            line(&format!("baseline_{name}_bytes"), device.baseline.get(metric).to_string())?;
            line(&format!("max_{name}_bytes"), device.maxima[metric as usize].bytes.to_string())?;
            line(&format!("end_{name}_bytes"), device.end.get(metric).to_string())?;
        }
    }
    csv.end()
}
