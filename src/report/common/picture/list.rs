//! A statement with what is behind it.

use super::shape::{Anchor, text};
use super::{LINE_WIDTH, Picture, palette};
use crate::report::common::fit::broken;
use crate::report::common::notes::safe;
use svg::node::element::Group;

/// Height of a line.
const LINE: f64 = 17.0;

/// A title that asks for attention, and lines below it.
pub fn statement(title: &str, lines: &[String]) -> Picture {
    let mut body = Group::new();
    let mut y = 22.0;
    for line in broken(&safe(title), LINE_WIDTH) {
        body =
            body.add(text(16.0, y, Anchor::Start, palette::ALARM, &line).set("font-weight", 600).set("font-size", 14));
        y += LINE;
    }
    for line in lines {
        for (index, part) in broken(&safe(line), LINE_WIDTH).iter().enumerate() {
            let part = if index == 0 { format!("\u{2022} {part}") } else { part.clone() };
            let x = if index == 0 { 16.0 } else { 26.0 };
            body = body.add(text(x, y, Anchor::Start, palette::TEXT, &part));
            y += LINE;
        }
    }
    Picture { height: y - LINE + 12.0, body }
}
