//! Tables.

use super::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, SANS, code, rectangle, text, titled};
use super::{Picture, WIDTH, palette};
use crate::report::common::notes::safe;
use svg::node::element::Group;
use unicode_width::UnicodeWidthStr;

#[derive(Clone, Debug)]
pub enum Cell {
    Text(String),
    Number(String),
    /// A bar as long as a share of 1.
    Bar(f64),
    /// Code, which takes the remaining room and is cut in its middle.
    Code(String),
}

const LINE: f64 = 17.0;
const BAR: f64 = 160.0;
const BETWEEN: f64 = 22.0;

pub fn table(header: &[&str], rows: &[Vec<Cell>]) -> Picture {
    let mut body = Group::new().set("font-size", MONO_SIZE).set("font-family", MONO);
    let mut left = 16.0;
    for (column, name) in header.iter().enumerate() {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(width).fold(name.width() as f64 * MONO_WIDTH, f64::max);
        let widest = widest.min(f64::from(WIDTH) - 16.0 - left);
        let is_number = rows.first().is_some_and(|row| matches!(row.get(column), Some(Cell::Number(_))));
        let (x, anchor) = if is_number { (left + widest, Anchor::End) } else { (left, Anchor::Start) };
        body = body.add(text(x, 12.0, anchor, palette::MUTED, name).set("font-family", SANS));
        for (index, row) in rows.iter().enumerate() {
            let y = 12.0 + LINE * (index + 1) as f64;
            if let Some(cell) = row.get(column) {
                body = draw(body, cell, left, widest, y);
            }
        }
        left += widest + BETWEEN;
    }
    Picture { height: LINE * (rows.len() + 1) as f64 + 14.0, body }
}

fn width(cell: &Cell) -> f64 {
    match cell {
        Cell::Text(content) | Cell::Number(content) | Cell::Code(content) => content.width() as f64 * MONO_WIDTH,
        Cell::Bar(_) => BAR,
    }
}

fn draw(body: Group, cell: &Cell, left: f64, width: f64, y: f64) -> Group {
    let mono = |x, anchor, content: &str| text(x, y, anchor, palette::TEXT, content);
    match cell {
        Cell::Text(content) => body.add(mono(left, Anchor::Start, content)),
        Cell::Number(content) => body.add(mono(left + width, Anchor::End, content)),
        Cell::Bar(share) => {
            body.add(rectangle(left, y - 9.0, (BAR * share.clamp(0.0, 1.0)).max(0.5), 10.0, palette::FIGURE))
        }
        Cell::Code(content) => body.add(titled(&safe(content)).add(code(left, y, width, content))),
    }
}
