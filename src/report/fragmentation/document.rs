//! `memviz fragmentation` for people.

use crate::analysis::fragmentation::over_time::OverTimeRow;
use crate::analysis::fragmentation::{Chosen, DeviceFragmentation, FragmentationReport, PoolFragmentation};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::{OTHER, Row};
use crate::facts::grouping::private_pools::PrivatePool;
use crate::facts::segments::figures::{Figures, SizeClass};
use crate::facts::segments::pinning::{Pinning, PinningRow};
use crate::model::HOST_DEVICE;
use crate::model::bytes::Bytes;
use crate::replay::History;
use crate::report::common::document::{
    Cell, Column, Cut, Document, Reader, Table, Tone, attributed, more_rows, shortened,
};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name, signed};
use crate::report::common::words;
use crate::report::simulate::words as simulate;
use crate::report::{Source, percent};
use crate::sorting::SortRows;

/// Screens narrower than this show fewer columns in tables.
const WIDE: usize = 72;
/// From this width on, rows show how much each block keeps reserved.
const DETAILS_FROM: usize = 140;
/// Rows of non-releasable memory on a screen.
const PINNING: usize = 3;
/// Pools on a screen.
const POOLS: usize = 4;
/// Columns of the bar that shows the inactive share over time.
const SHARE_BAR: usize = 20;

pub(crate) fn document(source: Source<'_>, report: &FragmentationReport) -> Document {
    let devices = report.devices.iter();
    let mut document = Document::devices("GPU memory fragmentation of", source, devices, fragmentation);
    document.next(next(source, report));
    document
}

/// The commands to run next if live blocks keep much free memory reserved: settings that reserve less, and the picture of the
/// instant.
fn next(source: Source<'_>, report: &FragmentationReport) -> Vec<Next> {
    let Some(device) = report.devices.iter().find(|device| device.figures.pins_much()) else { return Vec::new() };
    let settings = Next::new("simulate", &[source.path], "--sweep", "memory needed under other allocator settings");
    // A picture shows the same instant if none is requested.
    let at =
        device.moment.entry.filter(|_| device.chosen.is_none()).map_or(String::new(), |it| format!("--at entry:{it} "));
    let map = Next::new(
        "fragmentation",
        &[source.path],
        &format!("{at}-o segments.svg"),
        "the segments that have free blocks",
    );
    // Only if others were simulated, and one is better. Whether one serves a request that failed is what `oom` answers.
    let is_better = device.settings.as_ref().is_some_and(|settings| settings.better.is_some());
    let helps = is_better && device.chosen != Some(Chosen::Failure);
    helps.then_some(settings).into_iter().chain([map]).map(Next::clear).collect()
}

/// Whether the pool ID of segments is missing although the file has those of others: they were released before the dump, in a
/// recording whose entries do not name pools.
fn lacks_id(pool: &PoolFragmentation, all: &[PoolFragmentation]) -> bool {
    pool.pool.is_none() && all.iter().any(|other| other.pool.is_some())
}

pub(crate) fn figure_table() -> Table {
    Table::new([Column::left(18, ""), Column::right(11, "bytes"), Column::label("").cut(Cut::End)]).head(None).indent(2)
}

/// The figures, a line each; at most 50 columns wide.
pub(crate) fn figures(table: &mut Table, figures: &Figures) {
    figure(table, "reserved", figures.reserved, words::count(figures.segments, "segment"));
    let mut line = |name: &str, bytes: u64| {
        figure(table, name, bytes, format!("{:5.1}%", percent(bytes, figures.reserved)));
    };
    line("allocated", figures.allocated);
    if figures.pending_free > 0 {
        line("pending free", figures.pending_free);
    }
    line("inactive", figures.inactive);
    line("  non-releasable", figures.pinned_free);
    line("  releasable", figures.releasable);
    figure(table, "largest free block", figures.largest_free_block, "across all pools");
    let rounding = figures.rounding();
    let share = rounding as f64 * 100.0 / figures.active().max(1) as f64;
    figure(table, "rounding loss", rounding, format!("{share:5.1}% of active"));
}

pub(crate) fn figure(table: &mut Table, name: &str, bytes: impl Into<i128>, comment: impl Into<String>) {
    table.row([Cell::from(name), Cell::size(bytes)], Cell::from(comment).toned(Tone::Dim));
}

fn fragmentation(document: &mut Document, device: &DeviceFragmentation) {
    let share = device.figures.inactive_share() * 100.0;
    let (name, inactive) = (device_name(device.device), Bytes(device.figures.inactive));
    let place = notes::position(&device.moment, device.entries, &device.completeness);
    let place = match (device.is_peak, device.chosen) {
        // The peak may have been before.
        (true, _) if device.moment.instant == 0 => {
            format!("{place}, where allocated memory is highest in the recording")
        }
        (true, _) => format!("at the peak of allocated memory, {place}"),
        (false, Some(Chosen::Failure)) => format!("at the first failed request, {place}"),
        (false, Some(Chosen::MostInactive)) => format!("where the most memory is inactive, {place}"),
        (false, None) => place,
    };
    if device.figures.reserved == 0 && device.counters.reserved == 0 && device.over_time.is_none() {
        document.heading(format!("{name}: nothing is reserved"), place);
        return document.notes(notes::fragmentation(device));
    }
    document.heading(format!("{name}: inactive {inactive}, {share:.1}% of reserved"), place);
    document.notes(notes::fragmentation(device));
    let mut table = figure_table();
    figures(&mut table, &device.figures);
    document.table(table);
    if device.figures.pending_free > 0 {
        document.legend("pending free: the program freed it, but another stream may still be using it");
    }
    if device.device != HOST_DEVICE {
        document.all(|document| {
            document.legend(
                "releasable: what torch.cuda.empty_cache() can return to the device; non-releasable: what live blocks keep reserved",
            );
        });
    }
    if let Some(rows) = &device.over_time {
        return over_time(document, rows);
    }
    let most = &device.most_inactive;
    if most.instant != device.moment.instant && most.inactive_bytes > device.figures.inactive as i64 {
        let (place, at) = match History::entry_before(most.instant) {
            Some(entry) => (format!("entry {entry}"), format!("entry:{entry}")),
            None => (notes::START.to_owned(), "start".to_owned()),
        };
        let (inactive, reserved) = (signed(most.inactive_bytes), signed(most.reserved_bytes));
        document.fact(format!(
            "inactive memory is highest at {place}: {inactive} of {reserved} reserved (--at {at} shows it)"
        ));
    }
    document.facts(device.settings.as_ref().map(simulate::settings_then));
    pools(document, device);
    document.pinning(device.by, &device.pinning, PINNING);
    let lost: Vec<SizeClass> = device.used_blocks.iter().filter(|class| class.rounding() > 0).copied().collect();
    let total = lost.iter().map(|class| class.rounding() as u64).fold(0, u64::wrapping_add);
    document.all(|document| {
        classes(document, "Free blocks by size", &device.free_blocks, device.figures.inactive, |class| class.bytes);
        classes(document, "Rounding loss by block size", &lost, total, |class| class.rounding() as u64);
    });
    let rows = device.free_blocks.len() + lost.len();
    if rows > 0 {
        document.brief(|document| {
            let rows = more_rows(rows);
            document.toned(Tone::Dim, 0, format!("Free blocks and rounding loss by block size: {rows}"));
        });
    }
}

/// The properties by which the allocator separates blocks.
fn pools(document: &mut Document, device: &DeviceFragmentation) {
    // Pinned host memory has one pool, without such properties.
    if device.pools.is_empty() || device.device == HOST_DEVICE {
        return;
    }
    let mut table = Table::new([
        Column::right(11, "reserved"),
        Column::right(11, "allocated").in_markdown(),
        Column::right(11, "inactive"),
        Column::right(14, "non-releasable").from(WIDE),
        Column::right(11, "releasable").in_markdown(),
        Column::right(12, "largest free").from(WIDE),
        Column::right(11, "segments").in_markdown(),
        Column::right(11, "rounding loss").in_markdown(),
        Column::label("pool").cut(Cut::Wrapped),
    ]);
    for (place, pool) in device.pools.iter().enumerate() {
        let Figures { reserved, allocated, inactive, pinned_free, releasable, largest_free_block, .. } = pool.figures;
        let bytes = [reserved, allocated, inactive, pinned_free, releasable, largest_free_block];
        let bytes = bytes.map(Cell::size).into_iter();
        let others = [Cell::from(pool.figures.segments.to_string()), Cell::size(pool.figures.rounding())];
        let name = words::pool(pool.segment_type, pool.stream, pool.pool, pool.expandable);
        let row = table.row(bytes.chain(others), words::starred(&name, lacks_id(pool, &device.pools)));
        if place >= POOLS && device.pools.len() > POOLS + 1 {
            row.reader = Reader::OfAll;
        }
    }
    if device.pools.len() > POOLS + 1 {
        table.short("", more_rows(device.pools.len() - POOLS)).reader = Reader::OfScreen;
    }
    document.gap();
    document.table(table);
    if device.pools.iter().any(|pool| lacks_id(pool, &device.pools)) {
        document.legend("* the pool ID is unknown, because the segments were released before the dump");
    }
    document.facts(device.stranded.as_ref().map(notes::stranded));
    let mut private: Vec<&PrivatePool> = device.pools.iter().filter_map(|pool| pool.private.as_ref()).collect();
    private.sort_rows_by_key(|pool| pool.pool_id);
    private.dedup_by_key(|pool| pool.pool_id);
    document.legends(private.into_iter().map(notes::private_pool));
}

impl Document {
    /// The lines that keep free memory reserved, on a screen at most this many.
    pub(crate) fn pinning(&mut self, by: GroupBy, pinning: &Pinning, most: usize) {
        if pinning.rows.is_empty() {
            return;
        }
        self.section(format!("Free memory that live blocks keep reserved, by {}", by.option()));
        let shown = |row: &PinningRow| Row {
            label: row.label.clone(),
            bytes: row.pinned_free_bytes,
            blocks: row.blocks,
            inferred: row.inferred,
            stack: row.stack.clone(),
            ..Row::default()
        };
        let rows: Vec<Row> = pinning.rows.iter().map(shown).collect();
        let mut table = attributed(by.name(), rows.iter(), pinning.pinned_free_bytes, by == GroupBy::Stack);
        for (shown, row) in table.rows.iter_mut().zip(&pinning.rows) {
            // For the rest, this is a lower bound, which says little.
            if let Some(each) = row.pinned_free_bytes.checked_div(row.blocks).filter(|_| row.label != OTHER) {
                let (each, alone) = (Bytes(each), Bytes(row.alone_free_bytes));
                let said = format!(" ({each} per block; {alone} releasable without this {})", by.option());
                shown.suffix(said, Tone::Plain, DETAILS_FROM);
            }
        }
        let total = Some(pinning.pinned_free_bytes).filter(|_| !by.is_inclusive());
        shortened(&mut table, &rows, total, most);
        table.total(Cell::size(pinning.pinned_free_bytes), "non-releasable in total");
        self.table(table);
        self.all(|document| {
            document.narrow(DETAILS_FROM, |document| {
                document.below("a wider terminal shows bytes per block and releasable bytes");
            });
        });
        if let Some(overlap) = notes::grouping(by) {
            self.below(overlap);
        }
        if pinning.rows.iter().any(|row| row.inferred) {
            self.below(notes::inferred(by));
        }
    }
}

fn classes(document: &mut Document, title: &str, classes: &[SizeClass], total: u64, bytes: impl Fn(&SizeClass) -> u64) {
    if classes.is_empty() {
        return;
    }
    document.section(title);
    let row = |class: &SizeClass| Row {
        label: words::size_class(class),
        bytes: bytes(class),
        blocks: class.blocks,
        ..Row::default()
    };
    let rows: Vec<Row> = classes.iter().map(row).collect();
    document.table(attributed("size", rows.iter(), total, false));
}

fn over_time(document: &mut Document, rows: &[OverTimeRow]) {
    let mut table = Table::new([
        Column::right(9, "entry"),
        Column::right(11, "after").from(WIDE),
        Column::right(11, "reserved"),
        Column::right(11, "inactive"),
        Column::right(7, "share"),
        Column::right(14, "non-releasable").in_markdown(),
        Column::right(12, "largest free block").in_markdown(),
        Column::label("active and inactive").from(WIDE).on_screens(),
    ]);
    let highest = rows.iter().map(|row| row.figures.reserved).max().unwrap_or(0);
    for OverTimeRow { moment, figures } in rows {
        let columns = |bytes: u64| (percent(bytes, highest) / 100.0 * SHARE_BAR as f64).round() as usize;
        let (active, reserved) = (columns(figures.active()), columns(figures.reserved));
        let cells = [
            Cell::from(moment.entry.map_or_else(|| "start".to_owned(), |entry| entry.to_string())),
            moment.since_start_us.map(notes::duration).unwrap_or_default().into(),
            Cell::size(figures.reserved),
            Cell::size(figures.inactive),
            format!("{:.1}%", figures.inactive_share() * 100.0).into(),
            Cell::size(figures.pinned_free),
            Cell::size(figures.largest_free_block),
        ];
        let bar = Cell::from("█".repeat(active)).toned(Tone::Tint);
        table.row(cells, bar.suffix("░".repeat(reserved - active), Tone::Dim, 0));
    }
    document.gap();
    document.table(table);
    if rows.iter().any(|row| row.figures.reserved > 0) {
        let hint = "--format csv prints every figure, for plotting; --points sets the approximate number of rows";
        document.screen(|document| document.toned(Tone::Dim, 0, hint));
    }
}
