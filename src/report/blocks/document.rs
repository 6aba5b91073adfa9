//! `memviz blocks` for people: some blocks in full, or a row for each of many.

use crate::analysis::blocks::{Block, BlocksReport, DeviceBlocks};
use crate::facts::time::moment::Moment;
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Document, Table};
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::words::{count, starred};

/// Up to this many blocks are shown in full.
const IN_FULL: usize = 3;

pub(crate) fn document(source: Source<'_>, report: &BlocksReport) -> Document {
    Document::devices("Blocks of", source, report.devices.iter(), device)
}

fn device(document: &mut Document, device: &DeviceBlocks) {
    let what = format!("{}: {}, {}", device_name(device.device), blocks(device.found), Bytes(device.total_bytes));
    match &device.at {
        Some(at) => document.heading(what, notes::position(at, device.entries, &device.completeness)),
        None => document.title(what),
    }
    document.notes(notes::limits(&device.completeness, &device.baseline));
    document.notes(notes::anomalies(&device.anomalies));
    if device.found == 0 {
        return document.fact(if device.at.is_some() { "no such block at this instant" } else { "no such block" });
    }
    if device.blocks.len() <= IN_FULL && device.found == device.blocks.len() {
        device.blocks.iter().for_each(|block| in_full(document, device, block));
        return;
    }
    document.table(table(device));
    if device.blocks.iter().any(|block| block.inferred) {
        document.legend("* inferred: the forward line, or the category");
    }
}

fn blocks(number: usize) -> String {
    count(number as u64, "block")
}

fn table(device: &DeviceBlocks) -> Table {
    let mut table = Table::new([
        Column::right(11, "bytes"),
        Column::right(7, "id"),
        Column::right(14, "address").gap(2).from(110),
        Column::right(9, "allocated").gap(2),
        Column::right(9, "freed").gap(2),
        Column::left(16, "category").gap(2).from(90),
        Column::label("site"),
    ]);
    for block in &device.blocks {
        let entry = |moment: &Option<Moment>| {
            let entry = moment.as_ref().and_then(|moment| moment.entry);
            entry.map_or_else(|| "-".to_owned(), |entry| entry.to_string())
        };
        let cells = [
            Bytes(block.bytes).to_string(),
            block.id.to_string(),
            // A trace records only the total of what is older.
            if block.address == 0 { "-".to_owned() } else { format!("{:#x}", block.address) },
            entry(&block.allocated),
            entry(&block.freed),
            block.category.to_owned(),
        ];
        table.row(cells, Cell::code(starred(&block.site, block.inferred)));
    }
    let rest = device.found.saturating_sub(device.blocks.len());
    if rest > 0 {
        let listed = device.blocks.iter().fold(0, |sum: u64, block| sum.wrapping_add(block.bytes));
        let bytes = Bytes(device.total_bytes.wrapping_sub(listed)).to_string();
        table.short(bytes, count(rest as u64, "more block"));
    }
    table
}

/// All known facts about a block.
fn in_full(document: &mut Document, device: &DeviceBlocks, block: &Block) {
    let position = |moment: &Moment| notes::position(moment, device.entries, &device.completeness);
    document.section(format!("Block {} at {:#x}", block.id, block.address));
    document.fact(format!("{}, {} requested", Bytes(block.bytes), Bytes(block.requested)));
    document.fact(format!("{}: {}", block.category, block.evidence));
    let phase = block.phase.map(|phase| format!(", {phase}")).unwrap_or_default();
    // Annotated steps have names; programs start to count them at 0 or 1.
    let is_named = block.allocated.as_ref().is_some_and(|moment| !moment.annotations.is_empty());
    let step = block.step.filter(|_| !is_named).map(|step| format!(" of step {step}")).unwrap_or_default();
    let allocated = block.allocated.as_ref().map_or_else(|| "before the recording".to_owned(), position);
    document.fact(format!("allocated: {allocated}{phase}{step}"));
    let freed = block.freed.as_ref().map_or_else(|| "not while recording".to_owned(), position);
    document.fact(format!("freed: {freed}"));
    let (freed, completed) = (&block.freed, &block.completed);
    if let Some(completed) = completed.as_ref().filter(|&completed| freed.as_ref() != Some(completed)) {
        document.fact(format!("usable again: {}", position(completed)));
    }
    let stream = block.stream.map(|stream| format!("stream {stream}"));
    let pool = block.pool.map(|pool| format!("private pool {pool:?}"));
    let place: Vec<String> = stream.into_iter().chain(pool).collect();
    document.facts((!place.is_empty()).then(|| place.join(", ")));
    document.fact(format!("allocated by {}", starred(&safe(&block.site), block.inferred)));
    document.frames(4, &block.stack);
    if !block.freed_by.is_empty() {
        document.fact(format!("freed by {}", safe(&block.freed_by)));
        document.frames(4, &block.free_stack);
    }
}
