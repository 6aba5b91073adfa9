//! CSV: one table per answer, a line per row, bytes as integers.

use super::notes::{self, safe};
use super::{Render, Source};
use crate::analysis::{InfoReport, PeakReport};
use crate::model::Action;
use crate::replay::Metric;
use std::io::{self, Write};

/// The error underneath, so that a closed pipe stays recognisable.
fn io_error(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Writes RFC 4180 with a header line.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvReport;

impl Render for CsvReport {
    fn peak(&self, _source: Source<'_>, report: &PeakReport, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = ::csv::Writer::from_writer(out);
        csv.write_record([
            "device",
            "metric",
            "entry",
            "by",
            "label",
            "bytes",
            "blocks",
            "inferred",
            "stack",
            "bound",
            "complete_history",
            "anomalies",
        ])
        .map_err(io_error)?;
        for device in &report.devices {
            let entry = device.entry.map(|entry| entry.to_string()).unwrap_or_default();
            let bound = notes::bound(&device.completeness, device.metric).unwrap_or("exact");
            for row in &device.attribution.rows {
                csv.write_record([
                    &device.device.to_string(),
                    device.metric.name(),
                    &entry,
                    device.attribution.by.name(),
                    &safe(&row.label),
                    &row.bytes.to_string(),
                    &row.blocks.to_string(),
                    &row.inferred.to_string(),
                    &safe(&row.stack.join(";")),
                    bound,
                    &device.completeness.is_complete().to_string(),
                    &device.anomalies.total().to_string(),
                ])
                .map_err(io_error)?;
            }
        }
        csv.flush()
    }

    fn info(&self, _source: Source<'_>, report: &InfoReport, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = ::csv::Writer::from_writer(out);
        csv.write_record(["device", "name", "value"]).map_err(io_error)?;
        for device in &report.devices {
            let id = device.device.to_string();
            let mut line = |name: &str, value: String| csv.write_record([id.as_str(), name, &value]).map_err(io_error);
            line("entries", device.entries.to_string())?;
            for (action, count) in Action::ALL.iter().zip(device.actions) {
                line(action.name(), count.to_string())?;
            }
            line("segments", device.segments.to_string())?;
            line("blocks", device.blocks.to_string())?;
            line("complete_history", device.completeness.is_complete().to_string())?;
            line("anomalies", device.anomalies.total().to_string())?;
            for metric in Metric::ALL {
                let name = metric.name();
                line(&format!("baseline_{name}_bytes"), device.baseline.get(metric).to_string())?;
                line(&format!("max_{name}_bytes"), device.maxima[metric as usize].bytes.to_string())?;
                line(&format!("end_{name}_bytes"), device.end.get(metric).to_string())?;
            }
        }
        csv.flush()
    }
}
