//! `memviz simulate` for people.

use super::{endings, words};
use crate::analysis::simulate::{DeviceSimulation, SimulateReport};
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::next::Next;
use crate::report::common::notes::device_name;
use crate::simulation::Run;
use unicode_width::UnicodeWidthStr;

/// Screens narrower than this show no calls of the driver and no inactive bytes.
const CALLS_FROM: usize = 120;
/// Screens narrower than this show no retries.
const RETRIES_FROM: usize = 64;
/// The least widths of the columns for reserved memory and for the name of settings.
const RESERVED: usize = 11;
const NAME: usize = 12;
/// Width of all columns except "reserved" and the names: on every screen, from [`RETRIES_FROM`], and from [`CALLS_FROM`].
const NARROW: usize = 26;
const MIDDLE: usize = NARROW + 9;
const WIDE: usize = MIDDLE + 27;

pub(crate) fn document(source: Source<'_>, report: &SimulateReport) -> Document {
    let advised = report.devices.iter().filter(|device| device.changed().is_none() && device.best().is_some()).count();
    let is_shared = advised > 1 || advised == 1 && report.compared().nth(1).is_some();
    let mut document =
        Document::devices("Allocator settings for", source, report.devices.iter(), |document, device| {
            simulation(document, device, is_shared);
        });
    document.advice_for_simulation(source);
    if is_shared {
        let (text, export) = words::shared(report);
        document.gap();
        document.paragraph(text);
        document.code(2, export);
    }
    let is_simulated = report.devices.iter().any(|device| device.best().is_some());
    let sweep = Next::new("simulate", &[source.path], "--sweep", "also try the other settings");
    document.next((is_simulated && !report.sweep).then_some(sweep));
    document
}

/// One device; `is_shared` if other devices of the process need the same settings, which the end recommends.
fn simulation(document: &mut Document, device: &DeviceSimulation, is_shared: bool) {
    document.title(format!("{}: {}", device_name(device.device), words::headline(device)));
    document.facts(words::error_bar(device));
    document.facts(words::capacity(device));
    document.facts(words::releases(device));
    document.notes(words::limits(device));
    if device.runs.is_empty() {
        return;
    }
    document.gap();
    document.table(table(&device.runs));
    if let Some(columns) = words::columns(device) {
        document.legend(columns);
    }
    if device.runs.iter().any(|run| run.outcome.is_some()) {
        document.wide(CALLS_FROM, |document| document.legend(words::INACTIVE));
    }
    if device.runs.iter().any(|run| run.outcome.as_ref().is_some_and(|outcome| outcome.retries > 0)) {
        document.wide(RETRIES_FROM, |document| document.legend(words::RETRIES));
    }
    document.legends(words::beyond(device));
    if device.runs.iter().any(|run| run.needs().is_some() && run.capacities.safe.is_none()) {
        document.legend(words::AT_MOST);
    }
    document.facts(endings::holes(&device.runs));
    document.facts(endings::endings(&device.runs));
    document.facts(endings::refusals(device));
    document.facts(words::bound(device));
    document.facts(words::changes(device));
    let best = device.best().filter(|_| !is_shared && device.changed().is_none());
    let best = best.map(|best| (String::new(), Some(words::export(&best.alloc_conf))));
    if let Some((advice, export)) = words::advice(device).or(best) {
        document.gap();
        if !advice.is_empty() {
            document.toned(Tone::Bold, 2, advice);
        }
        document.code(2, export);
    }
}

fn table(runs: &[Run]) -> Table {
    // A range is wider than a figure.
    let reserved = runs.iter().map(|run| words::reserved(run).len()).max().unwrap_or(0).max(RESERVED);
    let mut table = Table::new([
        Column::right(14, "needs"),
        Column::right(reserved, "reserved"),
        Column::right(11, "inactive").from(CALLS_FROM),
        Column::right(7, "allocs").from(CALLS_FROM),
        Column::right(6, "frees").from(CALLS_FROM),
        Column::right(8, "retries").from(RETRIES_FROM),
        Column::left(9, "certainty"),
        Column::label("settings").gap(1).cut(Cut::Wrapped).least(NAME),
    ])
    .below(6);
    for run in runs {
        let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        let outcome = run.outcome.as_ref();
        let cells = [
            words::needs(run),
            words::reserved(run),
            outcome.map_or("-".to_owned(), |outcome| Bytes(outcome.max_inactive).to_string()),
            number(outcome.map(|outcome| outcome.device_allocs)),
            number(outcome.map(|outcome| outcome.device_frees)),
            number(outcome.map(|outcome| outcome.retries)),
            words::trust(run).to_owned(),
        ];
        let name = words::name(run);
        let row = table.row(cells, Cell::code(name.clone()));
        row.is_said = Some(whole_from(reserved + name.width()));
        row.below(&[name]);
    }
    table
}

/// The least width from which every screen shows a name whole; `used` is the width of the name and of "reserved".
fn whole_from(used: usize) -> usize {
    if WIDE + used > CALLS_FROM {
        WIDE + used
    } else if MIDDLE + used > RETRIES_FROM {
        MIDDLE + used
    } else {
        NARROW + used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_cut_are_shown_below() {
        let taken = |width: usize| match width {
            CALLS_FROM.. => WIDE,
            RETRIES_FROM.. => MIDDLE,
            _ => NARROW,
        };
        for used in 20..90 {
            let from = whole_from(used);
            assert!((from..200).all(|width| taken(width) + used <= width), "{used}");
            assert!(taken(from - 1) + used > from - 1, "{used}");
        }
    }
}
