//! A statement, followed by its facts.

use super::shape::{Anchor, text};
use super::{Picture, Script, palette};
use crate::report::common::notes::safe;
use svg::node::element::Group;

const LINE: f64 = 17.0;

/// Height of a line of a verdict.
const VERDICT_LINE: f64 = 23.0;

/// The main sentence of a page, and lines below it.
pub fn verdict(sentence: &str, is_bad: bool, lines: &[String]) -> Picture {
    let mut body = Group::new();
    let mut y = 4.0;
    let color = if is_bad { palette::ALARM } else { palette::TEXT };
    for line in Script::Verdict.lines(sentence) {
        y += VERDICT_LINE;
        body = body.add(text(16.0, y, Anchor::Start, color, &line).set("font-weight", 600).set("font-size", 18));
    }
    for line in lines {
        y += LINE;
        body = body.add(text(16.0, y, Anchor::Start, palette::TEXT, &safe(line)));
    }
    Picture { height: y + 8.0, body }
}

pub fn statement(title: &str, is_failure: bool, lines: &[String]) -> Picture {
    let color = if is_failure { palette::ALARM } else { palette::TEXT };
    let mut body = Group::new();
    let mut y = 22.0;
    for line in Script::Title.lines(title) {
        body = body.add(text(16.0, y, Anchor::Start, color, &line).set("font-weight", 600).set("font-size", 14));
        y += LINE;
    }
    let (body, y) = items(body, y, lines);
    Picture { height: y - LINE + 12.0, body }
}

pub fn list(lines: &[String]) -> Picture {
    let (body, y) = items(Group::new(), 14.0, lines);
    Picture { height: y - LINE + 12.0, body }
}

/// Adds lines with a bullet each from the baseline `y` on, and returns where the next one would be.
fn items(mut body: Group, mut y: f64, lines: &[String]) -> (Group, f64) {
    for line in lines {
        for (index, part) in Script::Body.lines(line).iter().enumerate() {
            let part = if index == 0 { format!("\u{2022} {part}") } else { part.clone() };
            let x = if index == 0 { 16.0 } else { 26.0 };
            body = body.add(text(x, y, Anchor::Start, palette::TEXT, &part));
            y += LINE;
        }
    }
    (body, y)
}
