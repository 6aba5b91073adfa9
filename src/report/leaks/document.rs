//! `memviz leaks` for people.

use super::words;
use crate::analysis::leaks::growth::Verdict;
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow};
use crate::facts::grouping::GroupBy;
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Document, Table, Tone};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name};
use crate::report::common::words::{count, starred};

/// Narrower screens do not show how much is live.
const LIVE_FROM: usize = 48;
/// Rows whose stacks are shown below the table, unless stacks are what was requested.
const STACKS: usize = 3;

pub(crate) fn document(source: Source<'_>, report: &LeakReport) -> Document {
    let mut document = Document::devices("GPU memory leaks of", source, report.devices.iter(), leaks);
    let grows = report.devices.iter().flat_map(|device| &device.rows).any(|row| row.verdict.grows());
    let curve = Next::new("timeline", &[source.path], "-o timeline.svg", "memory over time, by site");
    document.next(grows.then_some(curve));
    document
}

fn leaks(document: &mut Document, device: &DeviceLeaks) {
    document.title(format!("{}: {}", device_name(device.device), words::headline(device)));
    document.facts(words::steps(device));
    document.notes(words::limits(device));
    if let Some(course) = words::course(device) {
        document.fact(course);
        document.curve(device.ends.iter().map(|end| end.allocated_bytes).collect());
    }
    document.facts(words::full(device));
    document.cures(&device.of_growth(), false);
    if device.rows.is_empty() {
        return;
    }
    document.gap();
    document.table(table(device));
    let (narrow, wide) = words::requested(&device.rows);
    document.narrow(LIVE_FROM, |document| document.legends(narrow));
    document.wide(LIVE_FROM, |document| document.legend(wide));
    document.legends(words::legend(device));
    document.legends(notes::other_lines(&device.library_below));
    let growing: Vec<&LeakRow> = device.rows.iter().filter(|row| row.verdict.grows()).collect();
    let shown = if device.by == GroupBy::Stack { growing.len() } else { STACKS.min(growing.len()) };
    let (first, others) = growing.split_at(shown);
    for row in first {
        stack(document, row);
    }
    if !others.is_empty() {
        document.screen(|document| {
            document.gap();
            document.toned(
                Tone::Dim,
                0,
                match others.len() {
                    1 => "--by stack also shows the stack of the other row".to_owned(),
                    more => format!("--by stack also shows the stacks of the other {more} rows"),
                },
            );
        });
        document.aside(|document| others.iter().for_each(|row| stack(document, row)));
    }
}

fn table(device: &DeviceLeaks) -> Table {
    let mut table = Table::new([
        Column::right(11, "per step"),
        Column::right(7, "blocks").gap(2).from(72),
        Column::right(11, "live").gap(2).from(LIVE_FROM),
        Column::left(7, "verdict").gap(2),
        Column::label(device.by.name()),
    ]);
    for row in &device.rows {
        let grown = |rate: String| if row.verdict.grows() { format!("+{rate}") } else { "-".to_owned() };
        let (bytes, blocks) = (grown(Bytes(row.rate.bytes).to_string()), grown(words::blocks(row.rate.blocks)));
        let cells = [bytes, blocks, Bytes(row.live_bytes).to_string(), words::verdict(row.verdict).to_owned()];
        let shown = table.row(cells, Cell::code(starred(&row.label, row.inferred)));
        if row.verdict == Verdict::Leak {
            shown.cell(3, Tone::Warn);
        }
    }
    if device.left_out > 0 {
        table.short("", format!("{}; --top shows them", count(device.left_out, "more row")));
    }
    table
}

fn stack(document: &mut Document, row: &LeakRow) {
    document.fold(starred(&row.label, row.inferred), |document| {
        document.fact(words::behavior(row));
        document.facts(row.oldest.as_ref().map(|oldest| format!("oldest surviving block: {}", words::oldest(oldest))));
        document.facts(row.holder.as_ref().map(|holder| format!("mostly held by {}", notes::safe(holder))));
        if row.stack.is_empty() {
            document.toned(Tone::Plain, 4, "no stack was recorded");
        }
        document.frames(4, &row.stack);
    });
}
