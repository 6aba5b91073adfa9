//! The report as one picture.

use super::findings::findings;
use super::{Page, figures};
use crate::analysis::{Attribution, Row};
use crate::model::bytes::Bytes;
use crate::report::common::notes::device_name;
use crate::report::common::picture::{self, Cell, Picture};
use crate::report::common::words::starred;
use crate::report::percent;

pub fn page(page: &Page<'_>) -> Picture {
    let mut parts =
        vec![picture::heading(page.source, "GPU memory report"), picture::remark(&figures::recording(page))];
    if page.overview.peak.devices.is_empty() {
        parts.push(picture::remark("no memory was allocated on any device while recording"));
        return picture::stacked(parts);
    }
    let rows: Vec<_> = figures::rows(page).into_iter().map(figure_cells).collect();
    parts.push(picture::table(&figures::COLUMNS, &rows));
    parts.extend(findings(page).iter().map(|finding| picture::statement(&finding.title, &finding.lines)));
    let (devices, sites_shown) = page.tables();
    for (caption, pictures) in page.pictures() {
        parts.push(picture::caption(caption));
        parts.extend(pictures);
        if caption.starts_with("Live memory") {
            parts.extend(devices.iter().flat_map(|device| {
                let name = format!("{}: what holds the memory at the peak", device_name(device.device));
                [picture::caption(&name), sites(&device.attribution, sites_shown)]
            }));
        }
    }
    picture::stacked(parts)
}

fn sites(attribution: &Attribution, shown: usize) -> Picture {
    let mut top = attribution.clone();
    top.keep_top(shown);
    let largest = top.rows.iter().map(|row| row.bytes).max().unwrap_or(0);
    let row = |row: &Row| {
        vec![
            Cell::Number(Bytes(row.bytes).to_string()),
            Cell::Number(format!("{:.1}%", percent(row.bytes, top.total_bytes))),
            Cell::Bar(percent(row.bytes, largest) / 100.0),
            Cell::Number(row.blocks.to_string()),
            Cell::Code(starred(&row.label, row.inferred)),
        ]
    };
    let rows: Vec<_> = top.rows.iter().map(row).collect();
    let by = top.by.name();
    let by = if top.rows.iter().any(|row| row.inferred) { format!("{by} (* inferred)") } else { by.to_owned() };
    picture::table(&["bytes", "share", "", "blocks", &by], &rows)
}

/// Numbers, between the device's name and what its history lacks.
fn figure_cells(row: [String; figures::COLUMNS.len()]) -> Vec<Cell> {
    let last = row.len() - 1;
    let cell = |(index, cell)| if index == 0 || index == last { Cell::Text(cell) } else { Cell::Number(cell) };
    row.into_iter().enumerate().map(cell).collect()
}
