//! Draws answers as SVG: static pictures without scripts, references or embedded fonts, for light and dark themes.
//!
//! plotters draws axes and lines, the svg crate everything else.

pub(crate) mod bars;
pub(crate) mod chart;
mod format;
mod lines;
mod list;
pub(crate) mod pair;
pub(crate) mod plot;
#[cfg(feature = "png")]
mod png;
pub(crate) mod shape;
mod table;
pub(crate) mod titles;

pub(crate) use super::palette;
pub use format::PictureFormat;
pub(crate) use lines::Script;
pub(crate) use list::{list, statement, verdict};
pub(crate) use table::{Cell, table};

use super::notes;
use super::words::{NOTHING, count};
use crate::analysis::peak::DevicePeak;
use crate::report::Source;
use shape::{Anchor, text};
use std::io::{self, Write};
use svg::Document;
use svg::node::Blob;
use svg::node::element::{Group, Rectangle, Style};

/// Width of every picture, in pixels: the width of the column in which GitHub shows an issue, so that text keeps its size.
pub const WIDTH: u32 = 900;

/// Characters of proportional text that fit into a line.
pub(crate) const LINE_WIDTH: usize = 134;

/// A part of a page: a drawing with its height, [`WIDTH`] wide.
#[derive(Clone, Debug)]
pub struct Picture {
    pub height: f64,
    pub(crate) body: Group,
}

impl Picture {
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let height = shape::px(self.height);
        let ground = Rectangle::new().set("width", WIDTH).set("height", height.as_str());
        let drawing = format!("{}\n{}", ground.set("fill", palette::BACKGROUND.light), self.body);
        let document = Document::new()
            .set("viewBox", format!("0 0 {WIDTH} {height}"))
            .set("width", WIDTH)
            .set("height", height.as_str())
            .set("font-family", shape::SANS)
            .set("font-size", shape::FONT_SIZE)
            .add(Style::new(palette::style_sheet(&drawing)))
            .add(Blob::new(drawing));
        // Not the crate's own writer, which pads text and tooltips with line breaks.
        writeln!(out, "{document}")
    }
}

/// Parts below each other.
pub(crate) fn stacked(parts: Vec<Picture>) -> Picture {
    let mut height = 0.0;
    let mut body = Group::new();
    for part in parts {
        body = body.add(part.body.set("transform", format!("translate(0 {})", shape::px(height))));
        height += part.height;
    }
    Picture { height, body }
}

/// The file's name, what the picture shows, and what the file as a whole lacks.
pub(crate) fn heading(source: Source<'_>, what: &str) -> Picture {
    let what = text(f64::from(WIDTH) - 16.0, 28.0, Anchor::End, palette::MUTED, what);
    let (body, _) = titles::names(Group::new(), 16.0, 28.0, &[source.path]);
    let (mut body, mut y) = (body.add(what), 32.0);
    for note in notes::file(source.recording) {
        (body, y) = if note.is_plain { remarks(body, y, &[note.text]) } else { warnings(body, y, &[note.text]) };
    }
    Picture { height: y + 8.0, body }
}

/// Devices that are drawn, so that a picture stays small enough to be attached.
pub(crate) const MAX_PANELS: usize = 6;

/// Panels of the first [`MAX_PANELS`] devices, and a note about the rest.
pub(crate) fn panels<D>(devices: &[D], notes: bool, panel: impl Fn(&D, Room) -> Picture) -> Vec<Picture> {
    let room = Room { devices: devices.len().min(MAX_PANELS), notes };
    let mut panels: Vec<Picture> = devices.iter().take(MAX_PANELS).map(|device| panel(device, room)).collect();
    let more = devices.len().saturating_sub(MAX_PANELS);
    if more > 0 {
        panels.push(remark(&format!(
            "{} not drawn; --device selects the devices to draw",
            count(more as u64, "more device")
        )));
    }
    if devices.is_empty() {
        panels.push(remark(NOTHING));
    }
    panels
}

/// The share of a page that a device's panel may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub devices: usize,
    /// Whether to state what the history lacks; a report states it once.
    pub notes: bool,
}

/// The heading of a device, the limits of its history; returns where the heading ends.
pub(crate) fn device_heading(device: &DevicePeak, room: Room) -> (Group, f64) {
    let title = format!("{} ({})", notes::headline(device), notes::place(device));
    let lines = if room.notes { notes::device(device) } else { Vec::new() };
    let (body, y) = titles::title(Group::new(), 0.0, &title);
    warnings(body, y, &lines)
}

/// A separate sentence.
pub(crate) fn remark(line: &str) -> Picture {
    let mut body = Group::new();
    let mut y = 0.0;
    for line in Script::Body.lines(line) {
        y += 18.0;
        body = body.add(text(16.0, y, Anchor::Start, palette::MUTED, &line));
    }
    Picture { height: y + 22.0, body }
}

/// The title of a section.
pub(crate) fn caption(content: &str) -> Picture {
    let mut body = Group::new();
    let mut y = 30.0;
    for line in Script::Caption.lines(content) {
        let title = text(16.0, y, Anchor::Start, palette::TEXT, &line).set("font-size", 15).set("font-weight", 600);
        body = body.add(title);
        y += 19.0;
    }
    Picture { height: y - 11.0, body }
}

/// Adds warnings below `y`, on one or more lines each, and returns where they end.
pub(crate) fn warnings(body: Group, y: f64, notes: &[String]) -> (Group, f64) {
    let notes: Vec<String> = notes.iter().map(|note| format!("! {note}")).collect();
    lines(body, y, &notes, palette::TEXT)
}

/// Like [`warnings`], for notes that do not limit figures.
pub(crate) fn remarks(body: Group, y: f64, notes: &[String]) -> (Group, f64) {
    lines(body, y, notes, palette::MUTED)
}

fn lines(mut body: Group, mut y: f64, notes: &[String], color: palette::Color) -> (Group, f64) {
    for line in notes.iter().flat_map(|note| Script::Body.lines(note)) {
        y += 17.0;
        body = body.add(text(16.0, y, Anchor::Start, color, &line));
    }
    (body, y)
}
