//! `memviz nsys` for people.

use super::words;
use crate::analysis::nsys::{NsysMemory, NsysPeak, NsysReport};
use crate::report::common::document::{Cell, Column, Cut, Document, Table};
use crate::report::common::words::count;

/// Number of rows and ranges for people: the largest.
const MOST_ROWS: usize = 15;
const MOST_RANGES: usize = 8;
/// Narrower screens show memory only at the peak, and only what ranges allocated.
const WIDE: usize = 72;
/// Memory that no profile contains.
const NOT_RECORDED: &str =
    "Nsight Systems does not record the memory of CUDA contexts or the driver, so more memory is in use than shown.";

pub(super) fn document(path: &str, report: &NsysReport) -> Document {
    let mut document = Document::about("Memory in", path);
    document.notes(words::file_notes(report));
    if let Some(share) = &report.pytorch {
        for line in words::pytorch(share) {
            document.paragraph(line);
        }
    }
    if !report.doubts.is_empty() || report.pytorch.is_some() {
        document.gap();
    }
    document.each(report.memories.iter(), one);
    if report.memories.iter().any(|memory| memory.place.device().is_some()) {
        document.gap();
        document.paragraph(NOT_RECORDED);
    }
    document
}

fn one(document: &mut Document, memory: &NsysMemory) {
    document.title(words::headline(memory));
    document.notes(words::notes(memory));
    if let Ok(peak) = &memory.peak {
        document.curve(peak.curve_bytes.iter().map(|&bytes| i64::try_from(bytes).unwrap_or(i64::MAX)).collect());
        document.gap();
        document.table(held(memory, peak));
    } else {
        document.gap();
        document.table(allocated(memory));
    }
    let left = memory.rows.len().saturating_sub(MOST_ROWS);
    if left > 0 {
        document.legend(format!("and {}; --format csv lists all rows", count(left as u64, "smaller row")));
    }
    if !memory.ranges.is_empty() && memory.place.device().is_some() {
        document.section("NVTX ranges with the most memory");
        document.gap();
        document.table(ranges(memory));
    }
}

/// The memory of each holder at the peak and at the end.
fn held(memory: &NsysMemory, peak: &NsysPeak) -> Table {
    let mut table = Table::new([
        Column::right(11, "at peak"),
        Column::right(11, "at end").gap(2).from(WIDE),
        Column::right(11, "allocations").gap(2),
        Column::left(0, "").gap(2).cut(Cut::Wrapped),
    ]);
    for row in memory.rows.iter().take(MOST_ROWS) {
        let cells = [Cell::size(row.peak_bytes), Cell::size(row.end_bytes), row.allocations.to_string().into()];
        table.row(cells, Cell::from(words::row(row)));
    }
    let sums = [Cell::size(peak.bytes), Cell::size(peak.end_bytes), memory.allocations.to_string().into()];
    table.row(sums, Cell::from("total"));
    table
}

/// Which code allocated how much, if the order of events is unknown.
fn allocated(memory: &NsysMemory) -> Table {
    let mut table = Table::new([
        Column::right(11, "allocated"),
        Column::right(11, "allocations").gap(2),
        Column::left(0, "").gap(2).cut(Cut::Wrapped),
    ]);
    for row in memory.rows.iter().take(MOST_ROWS) {
        table.row([Cell::size(row.allocated_bytes), row.allocations.to_string().into()], Cell::from(words::row(row)));
    }
    let sums = [Cell::size(memory.allocated_bytes), memory.allocations.to_string().into()];
    table.row(sums, Cell::from("total"));
    table
}

fn ranges(memory: &NsysMemory) -> Table {
    let mut table = Table::new([
        Column::right(11, "highest"),
        Column::right(11, "allocated").gap(2),
        Column::right(11, "freed").gap(2).from(WIDE),
        Column::right(7, "ranges").gap(2).from(WIDE),
        Column::label(""),
    ]);
    for range in memory.ranges.iter().take(MOST_RANGES) {
        let bytes = [range.highest_bytes, range.allocated_bytes, range.freed_bytes].map(Cell::size);
        table.row(bytes.into_iter().chain([range.count.to_string().into()]), Cell::code(words::short(&range.name)));
    }
    table
}
