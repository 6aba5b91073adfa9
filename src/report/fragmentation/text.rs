//! `memviz fragmentation` as text.

use crate::analysis::fragmentation::over_time::OverTimeRow;
use crate::analysis::fragmentation::{DeviceFragmentation, FragmentationReport, PoolFragmentation};
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::attribution::Row;
use crate::facts::grouping::private_pools::PrivatePool;
use crate::facts::segments::figures::{Figures, SizeClass};
use crate::facts::segments::pinning::{Pinning, PinningRow};
use crate::model::HOST_DEVICE;
use crate::model::bytes::Bytes;
use crate::replay::History;
use crate::report::common::fit::shorten_end;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, device_name, signed};
use crate::report::common::text::TextStyle;
use crate::report::common::words;
use crate::report::simulate::words as simulate;
use crate::report::{Source, percent};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this show fewer columns in tables.
const WIDE: usize = 72;
/// From this width on rows say how much each block pins.
const DETAILS_FROM: usize = 140;
/// Columns of the bar that shows the inactive share over time.
const SHARE_BAR: usize = 20;

pub(crate) fn write(
    text: TextStyle,
    source: Source<'_>,
    report: &FragmentationReport,
    out: &mut dyn Write,
) -> io::Result<()> {
    text.devices(source, &report.devices, out, TextStyle::fragmentation_device)?;
    text.next(&next(source, report), out)
}

/// What to type next, where blocks in use pin much: settings under which less is, and the picture of the instant.
fn next(source: Source<'_>, report: &FragmentationReport) -> Vec<Next> {
    let Some(device) = report.devices.iter().find(|device| device.figures.pins_much()) else { return Vec::new() };
    let settings = Next::new("simulate", &[source.path], "--sweep", "what it needs under other allocator settings");
    let at = match device.moment.entry {
        Some(entry) if !device.is_peak => format!("--at entry:{entry} "),
        _ => String::new(),
    };
    let map =
        Next::new("fragmentation", &[source.path], &format!("{at}-o segments.svg"), "every segment and its blocks");
    // Without a history there is nothing to play, and no more where others were played and none is better.
    let may_help = device.settings.as_ref().is_none_or(|settings| settings.better.is_some());
    let is_played = !device.completeness.no_entries && may_help;
    is_played.then_some(settings).into_iter().chain([map]).collect()
}

/// What segments are called that serve the same requests. Where the file has the pools of others, theirs is not recorded.
pub(super) fn pool_name(pool: &PoolFragmentation, all: &[PoolFragmentation]) -> String {
    let name = words::pool(pool.segment_type, pool.stream, pool.pool, pool.expandable);
    let is_unlike = pool.pool.is_none() && all.iter().any(|other| other.pool.is_some());
    if is_unlike { format!("{name}, pool not recorded") } else { name }
}

impl TextStyle {
    fn fragmentation_device(&self, device: &DeviceFragmentation, out: &mut dyn Write) -> io::Result<()> {
        let figures = &device.figures;
        let share = figures.inactive_share() * 100.0;
        let (name, inactive) = (device_name(device.device), Bytes(figures.inactive));
        let title = format!("{name}: inactive {inactive}, {share:.1}% of reserved");
        let place = notes::position(&device.moment, device.entries, &device.completeness);
        let place = if device.is_peak { format!("at the peak of allocated, {place}") } else { place };
        if figures.reserved == 0 && device.counters.reserved == 0 && device.over_time.is_none() {
            self.heading(&format!("{name}: nothing is reserved"), &place, out)?;
            return self.notes(&notes::fragmentation(device), out);
        }
        self.heading(&title, &place, out)?;
        self.notes(&notes::fragmentation(device), out)?;
        self.figures(&device.figures, out)?;
        if let Some(rows) = &device.over_time {
            return self.over_time(rows, out);
        }
        let most = &device.most_inactive;
        if most.instant != device.moment.instant && most.inactive > 0 {
            let at = History::entry_before(most.instant).map_or("start".to_owned(), |entry| format!("entry:{entry}"));
            let (inactive, reserved) = (signed(most.inactive), signed(most.reserved));
            let line = format!("inactive is highest at --at {at}: {inactive} of {reserved}");
            self.words("  ", &line, out)?;
        }
        if let Some(settings) = &device.settings {
            self.words("  ", &simulate::settings_then(settings), out)?;
        }
        self.pools(device, out)?;
        self.pinning(device.by, &device.pinning, out)?;
        self.size_classes(device, out)
    }

    /// The figures, a line each; at most 50 columns wide.
    pub(crate) fn figures(&self, figures: &Figures, out: &mut dyn Write) -> io::Result<()> {
        let of_reserved = |bytes: u64| format!("{:5.1}%", percent(bytes, figures.reserved));
        let mut line =
            |name: &str, bytes: u64, comment: &str| self.figure(name, &Bytes(bytes).to_string(), comment, out);
        line("reserved", figures.reserved, &words::count(figures.segments, "segment"))?;
        line("allocated", figures.allocated, &of_reserved(figures.allocated))?;
        if figures.pending_free > 0 {
            line("pending free", figures.pending_free, &of_reserved(figures.pending_free))?;
        }
        line("inactive", figures.inactive, &of_reserved(figures.inactive))?;
        line("  pinned", figures.pinned_free, &of_reserved(figures.pinned_free))?;
        line("  releasable", figures.releasable, &of_reserved(figures.releasable))?;
        line("largest free block", figures.largest_free_block, "")?;
        let rounding = figures.rounding();
        let share = rounding as f64 * 100.0 / figures.active().max(1) as f64;
        self.figure("rounding loss", &signed(rounding), &format!("{share:5.1}% of active"), out)
    }

    /// A figure with its name and a comment.
    pub(crate) fn figure(&self, name: &str, bytes: &str, comment: &str, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", format!("  {name:18} {bytes:>11}  {}", self.dim(comment)).trim_end())
    }

    /// What the allocator keeps apart.
    fn pools(&self, device: &DeviceFragmentation, out: &mut dyn Write) -> io::Result<()> {
        // Pinned host memory knows one pool, and nothing is kept apart.
        if device.pools.is_empty() || device.device == HOST_DEVICE {
            return Ok(());
        }
        let wide = self.has(WIDE);
        let line = |reserved: &str, inactive: &str, pinned: &str, largest: &str| {
            let pinned = if wide { format!(" {pinned:>11}") } else { String::new() };
            format!("{reserved:>11} {inactive:>11}{pinned} {largest:>12}  ")
        };
        let head = line("reserved", "inactive", "pinned", "largest free");
        writeln!(out, "\n{}", self.dim(&format!("{head}pool")))?;
        let mut private: Vec<&PrivatePool> = device.pools.iter().filter_map(|pool| pool.private.as_ref()).collect();
        for pool in &device.pools {
            let [reserved, inactive, pinned, largest] = [
                pool.figures.reserved,
                pool.figures.inactive,
                pool.figures.pinned_free,
                pool.figures.largest_free_block,
            ]
            .map(|bytes| Bytes(bytes).to_string());
            let line = line(&reserved, &inactive, &pinned, &largest);
            let name = pool_name(pool, &device.pools);
            let room = self.room(line.width());
            writeln!(out, "{line}{}", shorten_end(&name, room))?;
        }
        if let Some(stranded) = &device.stranded {
            self.words("  ", &notes::stranded(stranded), out)?;
        }
        private.sort_by_key(|pool| pool.id);
        private.dedup_by_key(|pool| pool.id);
        for pool in private {
            let line = notes::private_pool(pool);
            self.broken(2, &line).iter().try_for_each(|line| writeln!(out, "  {}", self.dim(line)))?;
        }
        Ok(())
    }

    /// Who pins free memory.
    pub(crate) fn pinning(&self, by: GroupBy, pinning: &Pinning, out: &mut dyn Write) -> io::Result<()> {
        if pinning.rows.is_empty() {
            return Ok(());
        }
        let what = format!("Free memory that live blocks pin, by {}", by.name());
        writeln!(out, "\n{}", self.bold(&what))?;
        notes::grouping(by).map_or(Ok(()), |note| self.remark(note, out))?;
        self.pinning_rows(&pinning.rows, pinning.pinned_free_bytes, by == GroupBy::Stack, out)?;
        let total = Bytes(pinning.pinned_free_bytes);
        writeln!(out, "{total:>11}  {}", self.dim("pinned in total"))?;
        if pinning.rows.iter().any(|row| row.inferred) { self.star(notes::inferred(by), out) } else { Ok(()) }
    }

    /// Rows of a pinning, with their stacks if wanted.
    fn pinning_rows(&self, rows: &[PinningRow], total: u64, stacks: bool, out: &mut dyn Write) -> io::Result<()> {
        let details = self.has(DETAILS_FROM);
        let largest = rows.iter().map(|row| row.pinned_free_bytes).max().unwrap_or(0);
        for row in rows {
            let mut label = words::starred(&row.label, row.inferred);
            // What the rest pins alone is a lower bound, which says little.
            if details && row.blocks > 0 && row.label != OTHER {
                let each = Bytes(row.pinned_free_bytes / row.blocks);
                let alone = Bytes(row.alone_free_bytes);
                label += &format!(" ({each} per block; {alone} pinned by it alone)");
            }
            let shown = Row {
                label,
                bytes: row.pinned_free_bytes,
                blocks: row.blocks,
                stack: row.stack.clone(),
                ..Row::default()
            };
            self.row(&shown, total, largest, out)?;
            if stacks {
                self.stack(&shown, out)?;
            }
        }
        Ok(())
    }

    fn size_classes(&self, device: &DeviceFragmentation, out: &mut dyn Write) -> io::Result<()> {
        let free = |class: &SizeClass| class.bytes;
        self.classes("Free blocks by size", &device.free_blocks, device.figures.inactive, free, out)?;
        let lost: Vec<SizeClass> = device.used_blocks.iter().filter(|class| class.rounding() > 0).copied().collect();
        let total = lost.iter().map(|class| class.rounding() as u64).fold(0, u64::wrapping_add);
        self.classes("Rounding loss by block size", &lost, total, |class| class.rounding() as u64, out)
    }

    fn classes(
        &self,
        title: &str,
        classes: &[SizeClass],
        total: u64,
        bytes: impl Fn(&SizeClass) -> u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if classes.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{}", self.bold(title))?;
        let largest = classes.iter().map(&bytes).max().unwrap_or(0);
        for class in classes {
            let label = words::size_class(class);
            let (bytes, blocks) = (bytes(class), class.blocks);
            self.row(&Row { label, bytes, blocks, ..Row::default() }, total, largest, out)?;
        }
        Ok(())
    }

    fn over_time(&self, rows: &[OverTimeRow], out: &mut dyn Write) -> io::Result<()> {
        let width = self.room(0);
        let wide = width >= WIDE;
        let line = |entry: &str, since: &str, reserved: &str, inactive: &str, share: &str| {
            let since = if wide { format!(" {since:>11}") } else { String::new() };
            format!("{entry:>9}{since} {reserved:>11} {inactive:>11} {share:>7}")
        };
        let head = line("entry", "after", "reserved", "inactive", "share");
        writeln!(
            out,
            "\n{}",
            self.dim(format!("{head}  {}", if wide { "active and inactive" } else { "" }).trim_end())
        )?;
        let highest = rows.iter().map(|row| row.figures.reserved).max().unwrap_or(0);
        for row in rows {
            let figures = &row.figures;
            let entry = row.moment.entry.map_or_else(|| "start".to_owned(), |entry| entry.to_string());
            let since = row.moment.since_start_us.map(notes::duration).unwrap_or_default();
            let share = format!("{:.1}%", figures.inactive_share() * 100.0);
            let (reserved, inactive) = (Bytes(figures.reserved).to_string(), Bytes(figures.inactive).to_string());
            let mut line = line(&entry, &since, &reserved, &inactive, &share);
            if wide {
                let columns = |bytes: u64| (percent(bytes, highest) / 100.0 * SHARE_BAR as f64).round() as usize;
                let (active, reserved) = (columns(figures.active()), columns(figures.reserved));
                line += &format!("  {}{}", self.tint(&"█".repeat(active)), self.dim(&"░".repeat(reserved - active)));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        if rows.iter().any(|row| row.figures.reserved > 0) {
            let hint = "--format csv has every figure for plotting; --points sets how many rows";
            writeln!(out, "{}", self.dim(&shorten_end(hint, width)))?;
        }
        Ok(())
    }
}
