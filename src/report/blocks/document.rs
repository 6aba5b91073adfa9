//! `memviz blocks` for people: some blocks in full, or a row for each of many.

use crate::analysis::blocks::{Block, BlocksReport, DeviceBlocks, Tensor};
use crate::facts::time::moment::Moment;
use crate::facts::training::Category;
use crate::model::bytes::Bytes;
use crate::report::Source;
use crate::report::common::document::{Cell, Column, Document, Table};
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::words::{category, count, starred};
use unicode_width::UnicodeWidthStr;

/// Up to this many blocks are shown in full.
const IN_FULL: usize = 3;
const CATEGORY: usize = 19;
/// The least widths of screens that show categories, and addresses.
const CATEGORY_FROM: usize = 90;
const ADDRESS_FROM: usize = 110;
/// Widths of the columns before the site: on every screen, and from the two widths on.
const NARROW: usize = 46;
const MIDDLE: usize = NARROW + CATEGORY + 2;
const WIDE: usize = MIDDLE + 16;

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
    let has = |moment: fn(&Block) -> &Option<Moment>| device.blocks.iter().any(|block| moment(block).is_none());
    let before =
        has(|block| &block.allocated).then_some("alloc entry -: before the recording").filter(|_| device.entries > 0);
    let live = has(|block| &block.freed)
        .then_some("free entry -: not freed during the recording")
        .filter(|_| device.entries > 0);
    document.legends(before.into_iter().chain(live));
    document.narrow(CATEGORY_FROM, |document| document.legends(inferred(&device.blocks, false)));
    document.wide(CATEGORY_FROM, |document| document.legends(inferred(&device.blocks, true)));
}

/// The meaning of the stars, where categories are shown or not.
fn inferred(blocks: &[Block], with_category: bool) -> Option<&'static str> {
    let site = blocks.iter().any(|block| block.site_inferred);
    let category = blocks.iter().any(|block| with_category && block.category_inferred);
    Some(match (category, site) {
        (true, true) => "* after a category: the category is inferred; after a site: the forward line is inferred",
        (true, false) => "* inferred: the category",
        (false, true) => "* inferred: the forward line",
        (false, false) => return None,
    })
}

/// A category in a column: the entries next to it show which blocks are from before the recording.
fn brief(name: &str) -> &str {
    if name == Category::BeforeRecording.name() { Category::Unknown.name() } else { category(name) }
}

fn blocks(number: usize) -> String {
    count(number as u64, "block")
}

fn table(device: &DeviceBlocks) -> Table {
    let mut table = Table::new([
        Column::right(11, "bytes"),
        Column::right(7, "id"),
        Column::right(14, "address").gap(2).from(ADDRESS_FROM),
        Column::right(11, "alloc entry").gap(2),
        Column::right(10, "free entry").gap(2),
        Column::left(CATEGORY, "category").gap(2).from(CATEGORY_FROM),
        Column::label("site"),
    ])
    .below(6);
    for block in &device.blocks {
        let entry = |moment: &Option<Moment>| {
            let entry = moment.as_ref().and_then(|moment| moment.entry);
            entry.map_or_else(|| "-".to_owned(), |entry| entry.to_string())
        };
        let cells = [
            Cell::size(block.bytes),
            block.id.to_string().into(),
            // A trace records only the total of what is older.
            if block.address == 0 { "-".into() } else { format!("{:#x}", block.address).into() },
            entry(&block.allocated).into(),
            entry(&block.freed).into(),
            starred(brief(block.category), block.category_inferred).into(),
        ];
        let site = starred(&block.site, block.site_inferred);
        let row = table.row(cells, Cell::code(site.clone()));
        // A site that does not fit next to the figures has a line of its own.
        row.is_said = Some(match site.width() {
            width if WIDE + width > ADDRESS_FROM => WIDE + width,
            width if MIDDLE + width > CATEGORY_FROM => MIDDLE + width,
            width => NARROW + width,
        });
        row.below(&[site]);
    }
    let rest = device.found.saturating_sub(device.blocks.len());
    if rest > 0 {
        let listed = device.blocks.iter().fold(0, |sum: u64, block| sum.wrapping_add(block.bytes));
        let bytes = Bytes(device.total_bytes.wrapping_sub(listed)).to_string();
        table.short(bytes, count(rest as u64, "more block"));
    }
    table
}

/// The tensors in a block, and how certain that is.
fn tensors(block: &Block) -> Option<String> {
    let tensor = |tensor: &Tensor| {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        safe(&format!("{}[{}] of {}", tensor.dtype, shape.join(", "), tensor.operator))
    };
    let listed: Vec<String> = block.tensors.iter().map(tensor).collect();
    let place = if block.shares_address { "; other blocks of this size had this address" } else { "" };
    (!listed.is_empty()).then(|| format!("tensor, logged by torch-snapkit: {}{place}", listed.join(", ")))
}

fn in_full(document: &mut Document, device: &DeviceBlocks, block: &Block) {
    let position = |moment: &Moment| notes::position(moment, device.entries, &device.completeness);
    let address = if block.address == 0 { ", address unknown".to_owned() } else { format!(" at {:#x}", block.address) };
    document.section(format!("Block {}{address}", block.id));
    document.fact(format!("{}, {} requested", Bytes(block.bytes), Bytes(block.requested_bytes)));
    let use_of = starred(category(block.category), block.category_inferred);
    let evidence = if block.category == Category::BeforeRecording.name() {
        String::new()
    } else {
        format!(" ({})", block.evidence)
    };
    document.fact(format!("category: {use_of}{evidence}"));
    if let Some(tensors) = tensors(block) {
        document.fact(tensors);
    }
    let phase = block.phase.map(|phase| format!(", phase {phase}")).unwrap_or_default();
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
    let pool = block.pool_id.map(|pool| format!("private pool {pool:?}"));
    let place: Vec<String> = stream.into_iter().chain(pool).collect();
    document.facts((!place.is_empty()).then(|| place.join(", ")));
    document.fact(format!("allocated by {}", starred(&safe(&block.site), block.site_inferred)));
    document.facts(block.code.as_deref().map(|code| format!("  {}", safe(code))));
    document.frames(4, &block.stack);
    if let Some(line) = &block.freed_by {
        document.fact(format!("freed by {}", safe(line)));
        document.frames(4, &block.free_stack);
    }
    document.legends(inferred(std::slice::from_ref(block), true));
}
