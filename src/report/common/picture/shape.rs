//! Building blocks: numbers, text that fits, shapes with a tooltip.

use super::palette::{self, Color};
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::notes::safe;
use svg::node::element::{Group, Rectangle, Text, Title};

pub const FONT_SIZE: u32 = 12;
/// Proportional text.
pub const SANS: &str = "ui-sans-serif,system-ui,-apple-system,'Segoe UI',sans-serif";
/// Code, and numbers in columns.
pub const MONO: &str = "ui-monospace,Menlo,Consolas,monospace";
pub const MONO_SIZE: u32 = 11;
/// Width of a character of [`MONO`] at [`MONO_SIZE`]; the widest of these fonts take 0.602 em.
pub const MONO_WIDTH: f64 = 11.0 * 0.603;

/// A coordinate with one decimal, or none if that is zero.
pub fn px(value: f64) -> String {
    let tenths = (value * 10.0).round() as i64;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        _ => format!("{:.1}", tenths as f64 / 10.0),
    }
}

/// The alignment of text relative to its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A line of text on the baseline `y`. The caller makes sure that it fits.
pub fn text(x: f64, y: f64, anchor: Anchor, color: Color, content: &str) -> Text {
    let text = Text::new(safe(content)).set("x", px(x)).set("y", px(y)).set("fill", color.light);
    match anchor {
        Anchor::Start => text,
        Anchor::Middle => text.set("text-anchor", "middle"),
        Anchor::End => text.set("text-anchor", "end"),
    }
}

/// A line of code, cut at its end if it is wider than `width`.
pub fn code(x: f64, y: f64, width: f64, content: &str) -> Text {
    let content = shorten_end(&safe(content), (width / MONO_WIDTH + 0.01) as usize);
    text(x, y, Anchor::Start, palette::TEXT, &content).set("font-family", MONO).set("font-size", MONO_SIZE)
}

pub fn rectangle(x: f64, y: f64, width: f64, height: f64, color: Color) -> Rectangle {
    Rectangle::new()
        .set("x", px(x))
        .set("y", px(y))
        .set("width", px(width))
        .set("height", px(height))
        .set("fill", color.light)
}

/// Longest line of a tooltip, in characters, and in bytes of the file: a character that is escaped takes up to six.
const TITLE: usize = 160;
const TITLE_BYTES: usize = 200;

/// A group whose parts share a tooltip.
pub fn titled(title: &str) -> Group {
    // Escaped line by line, since a line break is a control character.
    let line = |line: &str| {
        let line = safe(line);
        let mut room = TITLE;
        let mut shown = shorten(&line, room);
        while written(&shown) > TITLE_BYTES {
            room = room * 3 / 4;
            shown = shorten(&line, room);
        }
        shown
    };
    let lines: Vec<String> = title.lines().map(line).collect();
    Group::new().add(Title::new(lines.join("\n")))
}

fn written(text: &str) -> usize {
    let escaped = text.bytes().filter(|byte| b"<>&\"'".contains(byte)).count();
    text.len() + 5 * escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        assert_eq!([0.0, 1.0, 1.04, 1.06, -0.04, -2.5, 99.95].map(px), ["0", "1", "1", "1.1", "0", "-2.5", "100"]);
    }

    #[test]
    fn hostile_text_is_escaped() {
        let shown = code(0.0, 0.0, 1000.0, "</text><script>alert(\"1\")</script>&\u{202e}\u{0}").to_string();
        assert!(shown.contains("&lt;script&gt;"), "{shown}");
        assert!(!shown.contains(['\u{202e}', '\u{0}']), "{shown}");
        let long = titled(&"<&>".repeat(100)).to_string();
        assert!(long.len() < 2 * TITLE_BYTES, "{long}");
        let title = titled("a\"b\u{1b}\nc").to_string();
        assert!(title.contains("a\"b\\u{1b}\nc"), "{title}");
    }
}
