//! `memviz peak` for people.

use super::operators;
use crate::analysis::peak::{DevicePeak, PeakReport};
use crate::analysis::triage::{Finding, can_checkpoint};
use crate::facts::code::sites::NO_STACK;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::{Attribution, Row};
use crate::replay::OperatorUsage;
use crate::report::common::document::{Cell, Column, Document, Table, Tone, attributed, counters, pending, shortened};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name};
use crate::report::common::words::count;
use crate::report::triage::words as triage_words;
use crate::report::{Source, percent};

/// Width of a column about operators, and the room for an operator's name.
const OPERATOR_COLUMN: usize = 14;
const OPERATOR_NAME: usize = 22;
/// Share of allocations without a stack, in percent, from which on the reason is given.
const WORTH_A_HINT: f64 = 1.0;

pub(crate) fn document(source: Source<'_>, report: &PeakReport) -> Document {
    let is_snapshot = source.recording.snapshot.notes.format.has_segments();
    let devices = report.devices.iter();
    let mut document = Document::devices("GPU memory peak of", source, devices, |document, device| {
        document.peak(device, is_snapshot, usize::MAX);
    });
    report.comparison.iter().for_each(|comparison| document.comparison(comparison));
    document.next(next(source, report));
    document
}

/// The commands to run next: why requests failed, and how to use less memory.
fn next(source: Source<'_>, report: &PeakReport) -> Option<Next> {
    let mut categories = report.devices.iter().filter(|device| device.attribution.by == GroupBy::Category);
    let activations = categories.find_map(|device| {
        let found = Finding::activations(&device.attribution)?;
        let devices = source.recording.devices();
        let is_useful = found.is_older() || can_checkpoint(&devices, devices.get(device.device)?);
        is_useful.then_some((device.device, found))
    });
    let activations = activations.map(|(device, finding)| {
        let line = triage_words::finding(&finding);
        let of = if report.devices.len() > 1 { format!("{}: ", device_name(device)) } else { String::new() };
        Next::new(line.command, &[source.path], "", format!("{of}{}", line.text))
    });
    // The reason why a request failed also shows how to make room.
    Next::oom(source).or(activations)
}

impl Document {
    /// The memory of a device at an instant; on a screen, at most this many rows.
    pub(crate) fn peak(&mut self, device: &DevicePeak, is_snapshot: bool, most: usize) {
        if device.is_empty() {
            self.title(notes::headline(device));
            return self.notes(notes::device(device));
        }
        self.heading(notes::headline(device), notes::place(device));
        self.notes(notes::device(device));
        if let Some(ranges) = &device.ranges {
            return self.ranges(device, ranges);
        }
        let dump = [("at dump time", device.at)];
        let instants = [("here", device.at), ("maximum", device.maxima.into()), ("end", device.end)];
        let shown: &[_] = if device.completeness.no_entries { &dump } else { &instants };
        self.table(counters(shown));
        self.legends(pending(shown));
        self.gap();
        self.attribution(&device.attribution, is_snapshot, most);
        self.operators(&device.operators);
    }

    /// Rows, on a screen at most this many, and their total. For snapshots, this explains why there are rows without a stack, since
    /// that can be changed.
    pub(crate) fn attribution(&mut self, attribution: &Attribution, is_snapshot: bool, most: usize) {
        let by = attribution.by;
        // Nearly all categories are inferred, which the last line states.
        let told = |row: &Row| Row { inferred: row.inferred && by != GroupBy::Category, ..row.clone() };
        let rows: Vec<Row> = attribution.rows.iter().map(told).collect();
        let mut table = attributed(by.name(), rows.iter(), attribution.total_bytes, by == GroupBy::Stack);
        shortened(&mut table, &rows, Some(attribution.total_bytes).filter(|_| !by.is_inclusive()), most);
        let what = match (attribution.total_bytes, by.is_inclusive()) {
            (0, _) => "nothing is allocated".to_owned(),
            _ if let Some(micros) = attribution.mean_over_us => {
                format!("on average over {}, by {}", notes::duration(micros as i64), by.option())
            }
            (_, true) => format!("held in total, by {}", by.option()),
            _ => format!("total, by {}", by.option()),
        };
        if attribution.dropped > 0 {
            let rows = count(attribution.dropped as u64, "more row");
            table.short("", format!("{rows}; --top shows them"));
        }
        table.total(Cell::size(attribution.total_bytes), what);
        self.table(table);
        let star = attribution.rows.iter().any(|row| row.inferred).then(|| notes::inferred_rows(by).to_owned());
        let older = notes::older_lines(attribution).map(str::to_owned);
        let below = notes::grouping(by)
            .map(str::to_owned)
            .into_iter()
            .chain(star)
            .chain(older)
            .chain(notes::library_below(attribution));
        let below = below.chain(notes::private_pools(attribution));
        below.for_each(|line| self.below(line));
        let anonymous: u64 = attribution.rows.iter().filter(|row| row.label == NO_STACK).map(|row| row.bytes).sum();
        if is_snapshot && percent(anonymous, attribution.total_bytes) >= WORTH_A_HINT {
            self.below(notes::NO_STACKS);
        }
    }

    /// A note about rows, below their labels.
    pub(crate) fn below(&mut self, text: impl Into<String>) {
        self.toned(Tone::Dim, 13, text);
    }

    /// Memory that each operator allocated and freed: as many columns as there is room for.
    fn operators(&mut self, operators: &[OperatorUsage]) {
        if operators.is_empty() {
            return;
        }
        self.section("Over the whole recording");
        let columns = operators::COLUMNS.iter().enumerate().map(|(index, name)| {
            let from = if index == 0 { 0 } else { OPERATOR_NAME + OPERATOR_COLUMN * (index + 1) };
            Column::right(OPERATOR_COLUMN, name).gap(0).from(from)
        });
        let mut table = Table::new(columns.chain([Column::label("operator")]));
        for operator in operators.iter().take(operators::ROWS) {
            table.row(operators::cells(operator), Cell::code(&operator.name));
        }
        let more = operators.len().saturating_sub(operators::ROWS);
        if more > 0 {
            table.short("", count(more, "more operator"));
        }
        self.table(table);
    }
}
