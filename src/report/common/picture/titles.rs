//! Titles: what a picture shows, on as many lines as needed.

use super::shape::{Anchor, text};
use super::{Script, palette};
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::safe;
use crate::report::common::source::file_names;
use svg::node::element::Group;

/// Height of a line of a panel's title.
const LINE: f64 = 17.0;
/// Characters of a file's name that leave room for the text at the right.
const NAME: usize = 60;

/// Adds the title of a panel below `y`, and returns where it ends.
pub(crate) fn title(mut body: Group, y: f64, content: &str) -> (Group, f64) {
    let mut y = y + 3.0;
    for line in Script::Title.lines(content) {
        y += LINE;
        let line = text(16.0, y, Anchor::Start, palette::TEXT, &line);
        body = body.add(line.set("font-weight", 600).set("font-size", 14));
    }
    (body, y)
}

/// Names of files as titles show them.
pub(crate) fn shown(paths: &[&str]) -> Vec<String> {
    file_names(paths).iter().map(|name| shorten_end(&safe(name), NAME)).collect()
}
