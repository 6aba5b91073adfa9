//! Bars of memory against a device: the memory of each of several ways to run a program.

use super::palette::{self, Color};
use super::plot::vertical;
use super::shape::{Anchor, MONO, MONO_SIZE, MONO_WIDTH, px, rectangle, text, titled};
use super::{Script, WIDTH};
use crate::model::bytes::Bytes;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::safe;
use svg::node::element::Group;
use unicode_width::UnicodeWidthStr;

/// One way to run a program.
pub(crate) struct Bar {
    pub name: String,
    /// Bytes of the device that it needs; `None` if it fails, or if unknown.
    pub needed: Option<u64>,
    pub reserved: Option<u64>,
    pub figures: [String; 2],
    pub fails: bool,
}

const LEFT: f64 = 16.0;
/// Right end of the longest bar, at most.
const RIGHT: f64 = 690.0;
/// The gap between the longest bar and the figures.
const BESIDE: f64 = 14.0;
/// Height of a bar, the gap below it, and the total height for one setting or plan.
const HEIGHT: f64 = 10.0;
const GAP: f64 = 2.0;
const ROW: f64 = 48.0;
/// Height of the line above the bars that names the device.
const HEAD: f64 = 22.0;
/// Maximum length of a name, in characters.
const NAME: usize = 100;

const NEEDED: Color = palette::FIGURE;
const RESERVED: Color = palette::OTHER;

/// The bars with their legend; returns where it ends.
pub(crate) fn bars(bars: &[Bar], device: Option<u64>) -> (Group, f64) {
    let all = bars.iter().flat_map(|bar| [bar.needed, bar.reserved]).chain([device]).flatten();
    let longest = all.max().unwrap_or(0).max(1) as f64;
    let widest = bars.iter().flat_map(|bar| &bar.figures).map(|figure| figure.width()).max().unwrap_or(0);
    let room = f64::from(WIDTH) - LEFT - widest as f64 * MONO_WIDTH;
    let right = RIGHT.min(room - BESIDE);
    let x = |bytes: u64| LEFT + (right - LEFT) * bytes as f64 / longest;
    let mut group = Group::new();
    let bottom = HEAD + ROW * bars.len() as f64;
    for (index, bar) in bars.iter().enumerate() {
        group = group.add(row(bar, HEAD + ROW * index as f64, device, right + BESIDE, x));
    }
    if let Some(device) = device {
        let label = format!("{} for the allocator", Bytes(device));
        let half = Script::Label.width(&label) / 2.0;
        let middle = x(device).max(LEFT + half).min(f64::from(WIDTH) - LEFT - half);
        group = group.add(text(middle, HEAD - 10.0, Anchor::Middle, palette::TEXT, &label));
    }
    let exceeds = |bytes: &Option<u64>| bytes.zip(device).is_some_and(|(bytes, device)| bytes > device);
    let is_exceeded = bars.iter().any(|bar| [bar.needed, bar.reserved].iter().any(exceeds));
    legend(group, bottom + 14.0, is_exceeded)
}

/// A bar whose top is at `top`, with its figures at `figures_at`.
fn row(bar: &Bar, top: f64, device: Option<u64>, figures_at: f64, x: impl Fn(u64) -> f64) -> Group {
    let name = shorten_end(&safe(&bar.name), NAME);
    let mut row = titled(&format!("{}\n{}", bar.name, bar.figures.join(", "))).add(text(
        LEFT,
        top + 12.0,
        Anchor::Start,
        palette::TEXT,
        &name,
    ));
    for (line, (bytes, color)) in [(bar.needed, NEEDED), (bar.reserved, RESERVED)].into_iter().enumerate() {
        let y = top + 17.0 + (HEIGHT + GAP) * line as f64;
        if let Some(bytes) = bytes {
            let within = bytes.min(device.unwrap_or(bytes));
            row = row.add(rectangle(LEFT, y, (x(within) - LEFT).max(1.0), HEIGHT, color).set("data-bytes", bytes));
            // The part that exceeds the device.
            if within < bytes {
                row = row.add(rectangle(x(within), y, x(bytes) - x(within), HEIGHT, palette::ALARM));
            }
        }
        if let Some(device) = device {
            row = row.add(vertical(x(device), y - 1.0, y + HEIGHT + 1.0, palette::TEXT));
        }
        let color = if bar.fails && line == 0 { palette::ALARM } else { palette::TEXT };
        let figures = text(figures_at, y + HEIGHT - 1.0, Anchor::Start, color, &bar.figures[line]);
        row = row.add(figures.set("font-family", MONO).set("font-size", MONO_SIZE));
    }
    row
}

/// The meaning of the colors; returns where it ends.
fn legend(mut group: Group, y: f64, is_exceeded: bool) -> (Group, f64) {
    let mut left = LEFT;
    let exceeding = is_exceeded.then_some(("more than the device has", palette::ALARM));
    let colors = [("needed to serve every request", NEEDED), ("maximum reserved", RESERVED)];
    for (name, color) in colors.into_iter().chain(exceeding) {
        let square = rectangle(left, y - 9.5, 11.0, 11.0, color);
        group = group.add(square).add(text(left + 17.0, y, Anchor::Start, palette::MUTED, name));
        left += 17.0 + Script::Body.width(name) + 22.0;
    }
    (group, y + 10.0)
}

pub(crate) fn below(body: Group, y: f64, all: &[Bar], device: Option<u64>) -> (Group, f64) {
    let (group, height) = bars(all, device);
    let top = y + 10.0;
    (body.add(group.set("transform", format!("translate(0 {})", px(top)))), top + height)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    #[test]
    fn the_legend_explains_red_only_where_a_bar_exceeds_the_device() {
        let of = |needed| Bar {
            name: "unchanged".to_owned(),
            needed: Some(needed),
            reserved: None,
            figures: [String::new(), String::new()],
            fails: false,
        };
        let explains = |device| bars(&[of(10)], device).0.to_string().contains("more than the device has");
        assert!(explains(Some(9)) && !explains(Some(10)) && !explains(None));
    }

    #[test]
    fn long_figures_stay_inside() {
        let figures = ["564.00 MiB needed", "768.00 MiB to 876.00 MiB reserved"].map(str::to_owned);
        let [needed, reserved] = [564 << 20, 876 << 20].map(Some);
        let bar = Bar { name: "recorded".to_owned(), needed, reserved, figures: figures.clone(), fails: false };
        let drawn = bars(&[bar], None).0.to_string();
        let document = Document::parse(&drawn).unwrap();
        for figure in &figures {
            let is_figure = |node: &roxmltree::Node<'_, '_>| {
                node.has_tag_name("text") && node.text().is_some_and(|text| text.trim() == figure)
            };
            let node = document.descendants().find(is_figure).unwrap();
            let start: f64 = node.attribute("x").unwrap().parse().unwrap();
            let end = start + figure.width() as f64 * MONO_WIDTH;
            assert!(end <= f64::from(WIDTH), "{figure} ends at {end}");
        }
    }
}
