//! Titles: what a picture shows, on as many lines as needed.

use super::shape::{Anchor, text};
use super::{Script, WIDTH, palette};
use crate::report::common::fit::shorten_middle;
use crate::report::common::notes::safe;
use crate::report::common::source::file_names;
use svg::node::element::Group;

const LINE: f64 = 17.0;
const TITLE: f64 = 14.0;
/// From the name of a file to that of the next.
pub(crate) const NAMES: f64 = 22.0;
/// Characters of a file's name that fit at the smallest size.
const NAME: usize = 84;
/// Sizes of a file's name: long ones are smaller, so that they fit next to the text at the right.
const LARGEST: f64 = 16.0;
const SMALLEST: f64 = 11.0;
/// Room for the text at the right.
const ASIDE: f64 = 170.0;

/// Adds the title of a panel below `y`, and returns where it ends.
pub(crate) fn title(mut body: Group, y: f64, content: &str) -> (Group, f64) {
    let mut y = y + 3.0;
    for line in Script::Title.lines(content) {
        y += LINE;
        let line = text(16.0, y, Anchor::Start, palette::TEXT, &line);
        body = body.add(line.set("font-weight", 600).set("font-size", TITLE));
    }
    (body, y)
}

/// Names of files as titles show them. Of a longer one, both ends remain: compared files often share a prefix.
pub(crate) fn shown(paths: &[&str]) -> Vec<String> {
    file_names(paths).iter().map(|name| shorten_middle(&safe(name), NAME)).collect()
}

/// Names of files from `left` on, at `first` and [`NAMES`] below each other, all in one size; returns the last baseline.
pub(crate) fn names(mut body: Group, left: f64, first: f64, paths: &[&str]) -> (Group, f64) {
    let names = shown(paths);
    let widest = names.iter().map(|name| Script::Title.width(name) / TITLE).fold(1.0, f64::max);
    let size = ((f64::from(WIDTH) - left - ASIDE) / widest).clamp(SMALLEST, LARGEST).floor();
    let mut y = first - NAMES;
    for name in names {
        y += NAMES;
        let name = text(left, y, Anchor::Start, palette::TEXT, &name);
        body = body.add(name.set("font-size", size).set("font-weight", 600));
    }
    (body, y)
}
