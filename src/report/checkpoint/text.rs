//! `memviz checkpoint` as text.

use super::words;
use crate::analysis::checkpoint::Candidate;
use crate::analysis::checkpoint::{CheckpointReport, DeviceCheckpoint};
use crate::model::Format;
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::code_change;
use crate::report::common::fit::shorten;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, safe, signed};
use crate::report::common::text::TextStyle;
use crate::report::fit::single::words as plan;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this do without what a candidate holds and costs.
const COSTS_FROM: usize = 80;

pub(crate) fn write(
    text: TextStyle,
    source: Source<'_>,
    report: &CheckpointReport,
    out: &mut dyn Write,
) -> io::Result<()> {
    let format = source.recording.snapshot.notes.format;
    text.devices(source, &report.devices, out, |text, device, out| text.checkpoint_device(device, format, out))?;
    let saves = report.devices.iter().flat_map(|device| &device.candidates).any(|candidate| candidate.saved_bytes > 0);
    let picture = Next::new("checkpoint", &[source.path], "-o checkpoint.svg", "memory before and after");
    text.next(if saves { std::slice::from_ref(&picture) } else { &[] }, out)
}

impl TextStyle {
    fn checkpoint_device(&self, device: &DeviceCheckpoint, format: Format, out: &mut dyn Write) -> io::Result<()> {
        self.heading(&words::headline(device), &words::place(device), out)?;
        self.notes(&words::limits(device), out)?;
        words::facts(device).iter().try_for_each(|fact| self.words("  ", fact, out))?;
        let below = device.fit.as_ref().map_or(Vec::new(), plan::below);
        below.iter().try_for_each(|line| self.words("  ", line, out))?;
        if let Some(reason) = words::reason(device, format) {
            return self.words("  ", &reason, out);
        }
        let Some((best, others)) = device.candidates.split_first() else {
            return self.words("  ", &words::more(device.left_out), out);
        };
        writeln!(out)?;
        self.best(device, best, out)?;
        self.others(device, others, out)
    }

    /// One candidate in full.
    fn best(&self, device: &DeviceCheckpoint, best: &Candidate, out: &mut dyn Write) -> io::Result<()> {
        let title = format!("Checkpoint {}: {}", best.label, words::effect(device, best));
        for (index, line) in self.broken(2, &title).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.bold(line))?;
        }
        self.words("  ", &words::held(best), out)?;
        words::cost(device, best).iter().try_for_each(|cost| self.words("  ", cost, out))?;

        let (place, code) = code_change::change(&best.change);
        self.words("  ", &format!("{place}:"), out)?;
        // Code is to be copied as it is, however narrow the terminal.
        writeln!(out, "    {}", self.tint(code))?;

        writeln!(out)?;
        self.words("", &words::new_peak(device, best), out)?;
        let total = u64::try_from(best.predicted_peak_bytes).unwrap_or(0);
        let rows = words::limit_rows(best);
        let largest = rows.iter().map(|row| row.bytes).max().unwrap_or(0);
        rows.iter().try_for_each(|row| self.row(row, total, largest, out))?;
        writeln!(out, "{:>11}  {}", signed(best.predicted_peak_bytes), self.dim("predicted peak, by site"))?;
        if rows.iter().any(|row| row.inferred) {
            self.star(notes::INFERRED_SITE, out)?;
        }

        writeln!(out)?;
        writeln!(out, "{}", self.dim(&format!("{:>11} {:>11}  calls checkpointed", "peak", "saved")))?;
        for (which, plan) in words::plan(best) {
            let saved = signed(device.peak_bytes.saturating_sub(plan.predicted_peak_bytes));
            writeln!(out, "{:>11} {saved:>11}  {which}", signed(plan.predicted_peak_bytes))?;
        }
        Ok(())
    }

    /// The other candidates, a line each.
    fn others(&self, device: &DeviceCheckpoint, others: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
        if others.is_empty() && device.left_out == 0 {
            return Ok(());
        }
        writeln!(out)?;
        let title = format!("Other candidates ({})", words::ALTERNATIVES);
        self.broken(0, &title).iter().try_for_each(|line| writeln!(out, "{}", self.bold(line)))?;
        if !others.is_empty() {
            let head = self.candidate_columns(["peak", "saved", "held", "runs again", "calls"]);
            writeln!(out, "{}", self.dim(&format!("{head}  forward function")))?;
        }
        for candidate in others {
            let time = candidate.recompute_us.map_or("-".to_owned(), notes::duration);
            let columns = self.candidate_columns([
                &signed(candidate.predicted_peak_bytes),
                &signed(candidate.saved_bytes),
                &Bytes(candidate.activation_bytes).to_string(),
                &time,
                &format!("{}x", candidate.calls),
            ]);
            let room = self.room(columns.width() + 2);
            writeln!(out, "{columns}  {}", shorten(&safe(&candidate.label), room))?;
        }
        if device.left_out > 0 {
            writeln!(out, "{:>11}  {}", "", self.dim(&words::more(device.left_out)))?;
        }
        Ok(())
    }

    fn candidate_columns(&self, [peak, saved, held, time, calls]: [&str; 5]) -> String {
        if self.has(COSTS_FROM) {
            format!("{peak:>11} {saved:>11} {held:>11} {time:>11} {calls:>6}")
        } else {
            format!("{peak:>11} {saved:>11} {calls:>6}")
        }
    }
}
