//! `memviz simulate` as text.

use super::words;
use crate::analysis::simulate::DeviceSimulation;
use crate::analysis::simulate::SimulateReport;
use crate::model::bytes::Bytes;
use crate::play::Run;
use crate::report::Source;
use crate::report::common::fit::shorten_end;
use crate::report::common::next::Next;
use crate::report::common::notes::{device_name, safe};
use crate::report::common::text::TextStyle;
use std::io::{self, Write};

/// Terminals narrower than this do without calls of the driver and inactive bytes.
const CALLS_FROM: usize = 100;
/// Terminals narrower than this do without retries.
const RETRIES_FROM: usize = 64;
/// Columns of reserved memory at least.
const RESERVED: usize = 11;
/// Columns in front of the name of settings at their least.
const BEFORE_NAME: usize = 37;

pub(crate) fn write(
    text: TextStyle,
    source: Source<'_>,
    report: &SimulateReport,
    out: &mut dyn Write,
) -> io::Result<()> {
    text.devices(source, &report.devices, out, TextStyle::simulation)?;
    let is_played = report.devices.iter().any(|device| device.best().is_some());
    let sweep = Next::new("simulate", &[source.path], "--sweep", "also try the other settings");
    text.next(if is_played && !report.sweep { std::slice::from_ref(&sweep) } else { &[] }, out)
}

impl TextStyle {
    fn simulation(&self, device: &DeviceSimulation, out: &mut dyn Write) -> io::Result<()> {
        let title = format!("{}: {}", device_name(device.device), words::headline(device));
        for (index, line) in self.broken(2, &title).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.bold(line))?;
        }
        let facts = words::error_bar(device);
        for line in facts.into_iter().chain(words::capacity(device)).chain(words::releases(device)) {
            self.words("  ", &line, out)?;
        }
        self.notes(&words::limits(device), out)?;
        if device.runs.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let head = ["needs", "reserved", "inactive", "retries", "allocs", "frees"];
        // A range takes more room than a figure.
        let reserved = device.runs.iter().map(|run| words::reserved(run).len()).max().unwrap_or(0).max(RESERVED);
        writeln!(out, "{}", self.dim(&self.simulated_row(head, reserved, "trust", "settings")))?;
        for run in &device.runs {
            writeln!(out, "{}", self.simulated(run, reserved))?;
        }
        if device.runs.iter().any(|run| run.needs().is_some() && run.capacities.safe.is_none()) {
            self.legend(words::AT_MOST, out)?;
        }
        let told = device.runs.iter().flat_map(|run| [words::holes(run), words::ending(run)]);
        for line in told.flatten().chain(words::refusals(device)).chain(words::bound(device)) {
            self.words("  ", &line, out)?;
        }
        for line in words::changes(device) {
            self.words("  ", &line, out)?;
        }
        if let Some(advice) = words::advice(device) {
            writeln!(out)?;
            self.broken(2, &advice).iter().try_for_each(|line| writeln!(out, "  {}", self.bold(line)))?;
        }
        Ok(())
    }

    fn simulated(&self, run: &Run, width: usize) -> String {
        let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        let outcome = run.outcome.as_ref();
        let inactive = outcome.map_or("-".to_owned(), |outcome| Bytes(outcome.max_inactive).to_string());
        let (needs, reserved) = (words::needs(run), words::reserved(run));
        let retries = number(outcome.map(|outcome| outcome.retries));
        let allocs = number(outcome.map(|outcome| outcome.device_allocs));
        let frees = number(outcome.map(|outcome| outcome.device_frees));
        self.simulated_row(
            [&needs, &reserved, &inactive, &retries, &allocs, &frees],
            width,
            run.trust.name(),
            &words::name(run),
        )
    }

    /// A line of the table; `width` columns are those of reserved memory.
    fn simulated_row(&self, cells: [&str; 6], width: usize, trust: &str, name: &str) -> String {
        let [needs, reserved, inactive, retries, allocs, frees] = cells;
        let mut line = format!("{needs:>14} {reserved:>width$} ");
        if self.has(CALLS_FROM) {
            line += &format!("{inactive:>11} {allocs:>7} {frees:>6} ");
        }
        if self.has(RETRIES_FROM) {
            line += &format!("{retries:>8} ");
        }
        line += &format!("{trust:9} ");
        let room =
            self.width.map_or(usize::MAX, |width| width.saturating_sub(line.chars().count()).max(BEFORE_NAME / 3));
        line + &shorten_end(&safe(name), room)
    }
}
