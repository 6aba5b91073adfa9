//! `memviz fit` as text.

use super::words;
use crate::analysis::fit::FitReport;
use crate::analysis::fit::{DeviceFit, Largest, Prediction};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::{device_name, safe};
use crate::report::common::text::{TextStyle, bar};
use crate::report::common::words::starred;
use std::io::{self, Write};

/// Terminals narrower than this do without retries.
const RETRIES_FROM: usize = 72;
/// Terminals narrower than this do without bars.
const BARS_FROM: usize = 72;

pub(crate) fn write(
    text: TextStyle,
    sources: &[Source<'_>],
    report: &FitReport,
    out: &mut dyn Write,
) -> io::Result<()> {
    text.notes(&words::files(sources), out)?;
    if report.devices.is_empty() {
        writeln!(out, "no memory was allocated on any device while recording")?;
    }
    for (index, device) in report.devices.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        text.fit(&report.parameter, device, out)?;
    }
    Ok(())
}

/// Columns of bytes: a range needs more than a figure.
fn bytes_width(device: &DeviceFit) -> usize {
    let is_range = |it: &Prediction| it.allocated_range.is_some() || it.reserved_range.is_some();
    if device.predictions.iter().any(is_range) { 24 } else { 11 }
}

impl TextStyle {
    fn fit(&self, parameter: &str, device: &DeviceFit, out: &mut dyn Write) -> io::Result<()> {
        let title = format!("{}: {}", device_name(device.device), words::headline(parameter, device));
        for (index, line) in self.broken(2, &title).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.bold(line))?;
        }
        for line in words::basis(parameter, device) {
            self.words("  ", &line, out)?;
        }
        if device.refused.is_some() {
            return Ok(());
        }
        self.words("  ", &words::settings(device), out)?;
        if let Some(check) = &device.check {
            self.words("  ", &words::check(parameter, check), out)?;
        }
        self.notes(&words::limits(parameter, device), out)?;
        writeln!(out)?;
        let fits = if device.capacity.is_some() { "fits" } else { "" };
        let width = bytes_width(device);
        let head = [&shorten_end(&safe(parameter), 14), "allocated", "reserved", "retries", fits];
        let head = self.fit_row(width, head, "trust");
        writeln!(out, "{}", self.dim(&head))?;
        for prediction in &device.predictions {
            writeln!(out, "{}", self.predicted(device, prediction))?;
        }
        if device.predictions.iter().any(|prediction| words::trust(device, prediction) == "predicted") {
            self.legend(words::PREDICTED, out)?;
        }
        self.fit_peak(parameter, device, out)
    }

    fn predicted(&self, device: &DeviceFit, prediction: &Prediction) -> String {
        let is_largest = device.largest.and_then(Largest::value) == Some(prediction.value);
        let line = self.fit_row(
            bytes_width(device),
            [
                &prediction.value.to_string(),
                &words::allocated(prediction),
                &words::reserved(prediction),
                &prediction.outcome.retries.to_string(),
                words::fits(device, prediction),
            ],
            words::trust(device, prediction),
        );
        if is_largest { self.bold(&line) } else { line }
    }

    fn fit_row(&self, width: usize, cells: [&str; 5], trust: &str) -> String {
        let [value, allocated, reserved, retries, fits] = cells;
        let mut line = format!("{value:>14} {allocated:>width$} {reserved:>width$} ");
        if self.has(RETRIES_FROM) {
            line += &format!("{retries:>7} ");
        }
        if !fits.is_empty() {
            line += &format!("{fits:>4} ");
        }
        line + " " + trust
    }

    fn fit_peak(&self, parameter: &str, device: &DeviceFit, out: &mut dyn Write) -> io::Result<()> {
        let Some((value, attribution)) = &device.peak else { return Ok(()) };
        writeln!(out)?;
        self.words("  ", &words::peak(parameter, *value, attribution.total_bytes), out)?;
        let largest = attribution.rows.first().map_or(0, |row| row.bytes);
        for row in &attribution.rows {
            let mut line = format!("{:>14} ", Bytes(row.bytes));
            if self.has(BARS_FROM) {
                line += &format!("{} ", self.tint(&bar(row.bytes, largest)));
            }
            let used = if self.has(BARS_FROM) { 36 } else { 15 };
            writeln!(out, "{line}{}", shorten_end(&safe(&starred(&row.label, row.inferred)), self.room(used).max(20)))?;
        }
        if attribution.rows.iter().any(|row| row.inferred) {
            self.legend(words::INFERRED, out)?;
        }
        Ok(())
    }
}
