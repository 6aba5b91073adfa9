//! `memviz leaks` for people.

use super::words;
use crate::analysis::leaks::growth::Verdict;
use crate::analysis::leaks::{DeviceLeaks, LeakReport, LeakRow};
use crate::facts::grouping::GroupBy;
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Document, Reader, Table, Tone, more_rows};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name};
use crate::report::common::words::{count, starred};

/// Narrower screens do not show how much is live.
const LIVE_FROM: usize = 48;
/// Rows whose stacks are shown below the table, unless stacks are what was requested.
const STACKS: usize = 3;
/// Rows on a screen.
const ROWS: usize = 6;

pub(crate) fn document(source: Source<'_>, report: &LeakReport) -> Document {
    let mut document = Document::devices("GPU memory leaks of", source, report.devices.iter(), leaks);
    let piles_up =
        |device: &DeviceLeaks| device.rows.iter().any(|row| row.verdict.grows()) || !device.of_growth().is_empty();
    let grows = report.devices.iter().any(piles_up);
    let curve = Next::new("timeline", &[source.path], "-o timeline.svg", "memory over time, by site");
    let has_holders = grows && source.recording.snapshot.notes.holders.is_some();
    let holders = || Next::new("peak", &[source.path], "--by holder", "which variables keep it");
    document.next(has_holders.then(holders).into_iter().chain(grows.then_some(curve)));
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
    let first = &device.rows[..most(device)];
    document.brief(|document| document.legends(words::legend(device, first)));
    document.all(|document| document.legends(words::legend(device, &device.rows)));
    document.legends(notes::other_lines(&device.library_below));
    let growing: Vec<&LeakRow> = device.rows.iter().filter(|row| row.verdict.grows()).collect();
    let shown = if device.by == GroupBy::Stack { growing.len() } else { STACKS.min(growing.len()) };
    let (first, others) = growing.split_at(shown);
    document.brief(|document| brief_stacks(document, device, &growing));
    document.all(|document| first.iter().for_each(|row| stack(document, device, row)));
    if !others.is_empty() {
        let hint = match others.len() {
            1 => "--by stack also shows the stack of the other row".to_owned(),
            more => format!("--by stack also shows the stacks of the other {more} rows"),
        };
        document.all(|document| {
            document.screen(|document| {
                document.gap();
                document.toned(Tone::Dim, 0, hint);
            });
        });
        document.aside(|document| others.iter().for_each(|row| stack(document, device, row)));
    }
}

/// How many rows a screen shows: a line that counts one row could be that row.
fn most(device: &DeviceLeaks) -> usize {
    if device.rows.len() <= ROWS + 1 { device.rows.len() } else { ROWS }
}

/// The stack that most of the growth comes from, unless what to change has its line, and how many more there are.
fn brief_stacks(document: &mut Document, device: &DeviceLeaks, growing: &[&LeakRow]) {
    let first = growing.first().filter(|_| device.of_growth().is_empty() || device.by == GroupBy::Stack);
    if let Some(row) = first {
        stack(document, device, row);
    }
    let more = growing.len() - usize::from(first.is_some());
    if more > 0 {
        let what = if first.is_some() { "more stack" } else { "stack" };
        let them = if more == 1 { "it" } else { "them" };
        document.gap();
        document.toned(Tone::Dim, 0, format!("{}; --all shows {them}", count(more as u64, what)));
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
    let most = most(device);
    for (place, row) in device.rows.iter().enumerate() {
        let [bytes, blocks] = if row.verdict.grows() {
            [Cell::marked("+", row.rate.bytes), format!("+{}", words::blocks(row.rate.blocks)).into()]
        } else {
            ["-".into(), "-".into()]
        };
        let cells = [bytes, blocks, Cell::size(row.live_bytes), words::verdict(row.verdict).into()];
        let shown = table.row(cells, Cell::code(starred(&row.label, row.inferred)));
        if row.verdict == Verdict::Leak {
            shown.cell(3, Tone::Warn);
        }
        if place >= most {
            shown.reader = Reader::OfAll;
        }
    }
    if device.rows.len() > most {
        table.short("", more_rows(device.rows.len() - most)).reader = Reader::OfScreen;
    }
    if device.left_out > 0 {
        table.short("", format!("{}; --top shows them", count(device.left_out, "more row")));
    }
    table
}

fn stack(document: &mut Document, device: &DeviceLeaks, row: &LeakRow) {
    document.fold(starred(&row.label, row.inferred), |document| {
        document.fact(words::behavior(device, row));
        document.facts(
            row.oldest.as_ref().map(|oldest| format!("oldest surviving block: {}", words::oldest(device, oldest))),
        );
        document.facts(row.holder.as_ref().map(|holder| format!("mostly held by {}", notes::safe(holder))));
        if row.stack.is_empty() {
            document.toned(Tone::Plain, 4, "no stack was recorded");
        }
        document.frames(4, &row.stack);
    });
}
