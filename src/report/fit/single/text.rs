//! `memviz fit` of one recording as text.

use super::words;
use crate::analysis::fit::{FIRST, FitCure, FitPlans, FitTogether};
use crate::model::bytes::Bytes;
use crate::play::plans::{DevicePlans, Plan};
use crate::report::Source;
use crate::report::common::cures::change;
use crate::report::common::fit::broken;
use crate::report::common::notes::{device_name, safe};
use crate::report::common::text::TextStyle;
use std::io::{self, Write};

/// Terminals narrower than this do without what is allocated and retries.
const DETAILS_FROM: usize = 100;
/// Columns of the name of a plan at their least.
const NAME: usize = 20;

pub(crate) fn write(text: TextStyle, sources: &[Source<'_>], report: &FitPlans, out: &mut dyn Write) -> io::Result<()> {
    let Some((&last, others)) = sources.split_last() else { return Ok(()) };
    others.iter().try_for_each(|&source| text.file_notes(source, out))?;
    let cures = report.cures.iter().zip(report.together.iter().map(Option::as_ref));
    let devices: Vec<(&DevicePlans, Cures<'_>)> = report.plans.devices.iter().zip(cures).collect();
    text.devices(last, &devices, out, |text, &(device, cures), out| text.plans(device, cures, out))
}

/// The cures of a device, and what several of them do at once.
type Cures<'c> = (&'c Vec<FitCure>, Option<&'c FitTogether>);

impl TextStyle {
    fn plans(&self, device: &DevicePlans, (cures, together): Cures<'_>, out: &mut dyn Write) -> io::Result<()> {
        let title = format!("{}: {}", device_name(device.device), words::headline_with(device, cures, together));
        for (index, line) in self.broken(2, &title).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.bold(line))?;
        }
        words::facts(device).iter().try_for_each(|line| self.words("  ", line, out))?;
        self.notes(&words::limits(device), out)?;
        self.fit_cures(cures, together, out)?;
        let Some(as_it_is) = &device.as_it_is else { return Ok(()) };
        writeln!(out)?;
        let head = ["needs", "reserved", "allocated", "retries", "runs again"];
        writeln!(out, "{}", self.dim(&self.plan_row(head, "trust", "changes")))?;
        for plan in std::iter::once(as_it_is).chain(&device.plans).chain(&device.nearest) {
            writeln!(out, "{}", self.plan(device, plan))?;
        }
        if !words::changes(device).is_empty() {
            self.legend(words::TIMES, out)?;
            words::uncertain(device).iter().try_for_each(|line| self.legend(line, out))?;
        }
        for change in words::changes(device) {
            let (place, line) = words::code(change);
            writeln!(out)?;
            self.words("  ", &format!("{}: {place}", change.change), out)?;
            writeln!(out, "    {}", self.tint(&line))?;
        }
        if let Some(export) = device.best().and_then(words::export) {
            writeln!(out, "\n  {}", self.bold(&export))?;
        }
        let assumed = words::assumptions(device).into_iter().map(|line| format!("assumed: {line}"));
        let below: Vec<String> = assumed.chain(words::not_played(device)).collect();
        if !below.is_empty() {
            writeln!(out)?;
        }
        below.iter().try_for_each(|line| self.legend(line, out))
    }

    /// The first few cures, each with whether it is enough, and all of them.
    fn fit_cures(&self, cures: &[FitCure], together: Option<&FitTogether>, out: &mut dyn Write) -> io::Result<()> {
        if cures.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  {}", self.bold("What to change first"))?;
        for (number, cure) in (1..).zip(cures.iter().take(FIRST)) {
            for (index, line) in self.broken(7, &change(&cure.advice)).iter().enumerate() {
                let mark = if index == 0 { format!("{number}.") } else { "  ".to_owned() };
                writeln!(out, "    {mark} {line}")?;
            }
            self.words("       ", &words::cure(cure), out)?;
        }
        together.map_or(Ok(()), |together| self.words("    ", &words::together(together), out))
    }

    fn plan(&self, device: &DevicePlans, plan: &Plan) -> String {
        let needs = Bytes(device.measure(plan)).to_string();
        let (reserved, allocated) = (Bytes(plan.outcome.max_reserved), Bytes(plan.outcome.max_allocated));
        let cells = [
            &needs,
            &reserved.to_string(),
            &allocated.to_string(),
            &plan.outcome.retries.to_string(),
            &words::time(plan),
        ];
        self.plan_row(cells.map(String::as_str), device.trust(plan).name(), &words::name(plan))
    }

    /// A line of the table, and more where the name does not fit into one.
    fn plan_row(&self, cells: [&str; 5], trust: &str, name: &str) -> String {
        let [needs, reserved, allocated, retries, time] = cells;
        let mut line = format!("{needs:>12} ");
        if self.has(DETAILS_FROM) {
            line += &format!("{reserved:>11} {allocated:>11} {retries:>7} ");
        }
        line += &format!("{time:>10} {trust:9} ");
        let used = line.chars().count();
        let indent = format!("\n{}", " ".repeat(used));
        line + &broken(&safe(name), self.room(used).max(NAME)).join(&indent)
    }
}
