//! `memviz fragmentation` as Markdown.

use super::text::pool_name;
use crate::analysis::fragmentation::over_time::OverTimeRow;
use crate::analysis::fragmentation::{DeviceFragmentation, FragmentationReport};
use crate::facts::grouping::GroupBy;
use crate::facts::segments::pinning::PinningRow;
use crate::model::bytes::Bytes;
use crate::report::common::markdown::{cell, code, escape, star};
use crate::report::common::notes::{self, device_name, signed};
use crate::report::common::words;
use crate::report::simulate::words as simulate;
use crate::report::{Source, percent};
use std::io::{self, Write};

pub(crate) fn write(source: Source<'_>, report: &FragmentationReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## GPU memory fragmentation of {}\n", code(source.path))?;
    for line in notes::source(&source.recording.snapshot) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "No memory was allocated on any device while recording.")?;
    }
    for device in &report.devices {
        device_section(device, out)?;
    }
    Ok(())
}

fn device_section(device: &DeviceFragmentation, out: &mut dyn Write) -> io::Result<()> {
    let figures = &device.figures;
    let share = figures.inactive_share() * 100.0;
    let (name, inactive) = (device_name(device.device), Bytes(figures.inactive));
    writeln!(out, "### {name}: inactive {inactive}, {share:.1}% of reserved\n")?;
    let place = notes::position(&device.moment, device.entries, &device.completeness);
    let peak = if device.is_peak { "At the peak of allocated, " } else { "At " };
    writeln!(out, "{peak}{}.\n", escape(&place))?;
    for line in notes::fragmentation(device) {
        writeln!(out, "> {}\n", escape(&line))?;
    }
    if let Some(stranded) = &device.stranded {
        writeln!(out, "{}\n", escape(&notes::stranded(stranded)))?;
    }
    if let Some(rows) = &device.over_time {
        return over_time(rows, out);
    }
    writeln!(
        out,
        "| Pool | Segments | Reserved | Allocated | Inactive | Pinned | Releasable | Largest free block | Rounding loss |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    let lines = device.pools.iter().map(|pool| (pool_name(pool, &device.pools), &pool.figures));
    for (name, figures) in lines.chain([("**all**".to_owned(), figures)]) {
        write!(out, "| {name} | {} |", figures.segments)?;
        for bytes in [
            figures.reserved,
            figures.allocated,
            figures.inactive,
            figures.pinned_free,
            figures.releasable,
            figures.largest_free_block,
        ] {
            write!(out, " {} |", Bytes(bytes))?;
        }
        writeln!(out, " {} |", signed(figures.rounding()))?;
    }
    writeln!(out)?;
    if let Some(settings) = &device.settings {
        writeln!(out, "{}.\n", escape(&simulate::settings_then(settings)))?;
    }
    if let Some(note) = notes::grouping(device.by) {
        writeln!(out, "> {}\n", escape(note))?;
    }
    pinning(device.by, &device.pinning.rows, device.pinning.pinned_free_bytes, out)?;
    if !device.free_blocks.is_empty() {
        writeln!(out, "| Free blocks of | Blocks | Bytes |\n|---|--:|--:|")?;
        for class in &device.free_blocks {
            writeln!(out, "| {} | {} | {} |", words::size_class(class), class.blocks, Bytes(class.bytes))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Who pins free memory.
pub(crate) fn pinning(by: GroupBy, rows: &[PinningRow], total: u64, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "| Pinned free bytes | Share | Blocks | Alone | {} |\n|--:|--:|--:|--:|---|", by.name())?;
    for row in rows {
        let (bytes, share) = (Bytes(row.pinned_free_bytes), percent(row.pinned_free_bytes, total));
        let alone = Bytes(row.alone_free_bytes);
        writeln!(
            out,
            "| {bytes} | {share:.1}% | {} | {alone} | {} |",
            row.blocks,
            cell(&words::starred(&row.label, row.inferred))
        )?;
    }
    writeln!(out, "| **{}** | | | | **total** |\n", Bytes(total))?;
    star(rows.iter().any(|row| row.inferred), by, out)
}

fn over_time(rows: &[OverTimeRow], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| Entry | After | Reserved | Inactive | Share | Pinned | Largest free block |")?;
    writeln!(out, "|--:|--:|--:|--:|--:|--:|--:|")?;
    for OverTimeRow { moment, figures } in rows {
        let entry = moment.entry.map_or_else(|| "start".to_owned(), |entry| entry.to_string());
        let after = moment.since_start_us.map(notes::duration).unwrap_or_default();
        let share = figures.inactive_share() * 100.0;
        let [reserved, inactive, pinned, largest] =
            [figures.reserved, figures.inactive, figures.pinned_free, figures.largest_free_block].map(Bytes);
        writeln!(out, "| {entry} | {after} | {reserved} | {inactive} | {share:.1}% | {pinned} | {largest} |")?;
    }
    writeln!(out)
}
