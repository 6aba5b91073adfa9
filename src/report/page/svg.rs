//! The report as one picture.

use super::findings::findings;
use super::{Page, figures, verdict};
use crate::report::common::picture::{self, Cell, Picture};

pub fn page(page: &Page<'_>) -> Picture {
    let mut parts = vec![picture::heading(page.source, "GPU memory report")];
    if page.overview.peak.devices.is_empty() {
        parts.push(picture::remark(&figures::recording(page)));
        parts.push(picture::remark("no memory was allocated on any device while recording"));
        return picture::stacked(parts);
    }
    if let Some((sentence, is_bad)) = verdict::verdict(page) {
        parts.push(picture::verdict(&sentence, is_bad, &verdict::others(page)));
    }
    let first = page.first_pictures();
    parts.push(picture::caption(first.caption));
    parts.extend(first.pictures);
    let remedies = verdict::remedies(page);
    if !remedies.is_empty() {
        parts.push(picture::caption("What to do"));
        parts.push(picture::list(&remedies));
    }
    for section in page.more_pictures() {
        parts.push(picture::caption(section.caption));
        parts.extend(section.pictures);
    }
    parts.extend(findings(page).iter().map(|finding| picture::statement(&finding.title, &finding.lines)));
    parts.push(picture::caption("Figures"));
    let rows: Vec<_> = figures::rows(page).into_iter().map(figure_cells).collect();
    parts.push(picture::table(&figures::COLUMNS, &rows));
    parts.push(picture::remark(&format!("{}; {}", figures::INACTIVE, figures::recording(page))));
    picture::stacked(parts)
}

/// Numbers, between the device's name and what its history lacks.
fn figure_cells(row: [String; figures::COLUMNS.len()]) -> Vec<Cell> {
    let last = row.len() - 1;
    let cell = |(index, cell)| if index == 0 || index == last { Cell::Text(cell) } else { Cell::Number(cell) };
    row.into_iter().enumerate().map(cell).collect()
}
