//! The report as one picture.

use super::findings::findings;
use super::{FIRST_SITES, Page, figures, verdict};
use crate::analysis::peak::DevicePeak;
use crate::facts::grouping::attribution::Row;
use crate::model::bytes::Bytes;
use crate::report::common::notes::{self, device_name};
use crate::report::common::picture::{self, Cell, Picture};
use crate::report::common::words::{NOTHING, starred};
use crate::report::percent;

pub fn page(page: &Page<'_>) -> Picture {
    let mut parts = vec![picture::heading(page.source, page.title())];
    if page.overview.peak.devices.is_empty() {
        parts.push(picture::remark(&figures::recording(page)));
        parts.push(picture::remark(NOTHING));
        return picture::stacked(parts);
    }
    if let Some((sentence, is_bad)) = verdict::verdict(page) {
        parts.push(picture::verdict(&sentence, is_bad, &verdict::others(page)));
    }
    let remedies = verdict::remedies(page);
    if !remedies.is_empty() {
        parts.push(picture::caption("What to do"));
        parts.extend(verdict::meaning(page).map(picture::remark));
        let lines: Vec<String> = remedies.into_iter().map(|remedy| remedy.text).collect();
        parts.push(picture::list(&lines));
    }
    let timelines = page.first_pictures();
    parts.push(picture::caption(timelines.caption));
    parts.extend(timelines.pictures);
    if let Some(first) = page.first_peak() {
        parts.push(picture::caption(&format!(
            "{}: what holds the memory, {}",
            device_name(first.device),
            notes::place(first)
        )));
        parts.push(picture::table(&["bytes", "share", "blocks", first.attribution.by.name()], &sites(first)));
    }
    for section in page.more_pictures() {
        parts.push(picture::caption(section.caption));
        parts.extend(section.pictures);
    }
    parts.extend(
        findings(page).iter().map(|finding| picture::statement(&finding.title, finding.is_failure, &finding.lines)),
    );
    parts.push(picture::caption("Figures"));
    let rows: Vec<_> = figures::rows(page).into_iter().map(figure_cells).collect();
    parts.push(picture::table(&figures::COLUMNS, &rows));
    parts.push(picture::remark(figures::INACTIVE));
    parts.push(picture::remark(&format!("recording: {}", figures::recording(page))));
    picture::stacked(parts)
}

/// The largest rows of a device.
fn sites(peak: &DevicePeak) -> Vec<Vec<Cell>> {
    let mut top = peak.attribution.clone();
    top.rows.retain(|row| row.bytes > 0);
    top.keep_top(FIRST_SITES);
    let total = top.total_bytes;
    let cells = |row: &Row| {
        let share = format!("{:.1}%", percent(row.bytes, total));
        let numbers = [Bytes(row.bytes).to_string(), share, row.blocks.to_string()].map(Cell::Number);
        numbers.into_iter().chain([Cell::Code(starred(&row.label, row.inferred))]).collect()
    };
    top.rows.iter().map(cells).collect()
}

/// Numbers, between the name of the device and the column about its history.
fn figure_cells(row: [String; figures::COLUMNS.len()]) -> Vec<Cell> {
    let last = row.len() - 1;
    let cell = |(index, cell)| if index == 0 || index == last { Cell::Text(cell) } else { Cell::Number(cell) };
    row.into_iter().enumerate().map(cell).collect()
}
