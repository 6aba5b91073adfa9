//! Text of several lines, none wider than a picture.

use super::WIDTH;
use super::shape::FONT_SIZE;
use crate::report::common::fit::broken_by;
use crate::report::common::notes::safe;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Script {
    Body,
    /// A label of a mark, and a tick of an axis.
    Label,
    Title,
    Caption,
    /// The main sentence of a page.
    Verdict,
}

/// Left and right of the text, in pixels; the left has room for a dot.
const MARGINS: u32 = 16 + 26;
/// The width of a bold character relative to a plain one, in hundredths.
const BOLD: usize = 112;

impl Script {
    /// Its size in pixels, and whether it is bold.
    fn font(self) -> (usize, bool) {
        match self {
            Self::Body => (FONT_SIZE as usize, false),
            Self::Label => (FONT_SIZE as usize, true),
            Self::Title => (14, true),
            Self::Caption => (15, true),
            Self::Verdict => (18, true),
        }
    }

    /// Text on as many lines as needed.
    pub fn lines(self, text: &str) -> Vec<String> {
        broken_by(&safe(text), (WIDTH - MARGINS) as usize, |text| self.pixels(text))
    }

    pub fn width(self, text: &str) -> f64 {
        self.pixels(text) as f64
    }

    /// Rounded up, so that no text is longer than this.
    fn pixels(self, text: &str) -> usize {
        let (size, bold) = self.font();
        let scale = size * if bold { BOLD } else { 100 };
        (text.chars().map(thousandths).sum::<usize>() * scale).div_ceil(100_000)
    }
}

/// The width of a character, in thousandths of the font's size, in the widest of the fonts that browsers use for
/// `sans-serif`: pictures contain no font, so the drawn text may be narrower.
fn thousandths(character: char) -> usize {
    match character {
        ' ' => 320,
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 330,
        'f' | 'r' | 't' | 'J' | '(' | ')' | '[' | ']' | '"' | '/' | '\\' | '-' => 420,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '=' | '+' | '<' | '>' => 900,
        'A'..='Z' => 730,
        _ if character.is_ascii() => 630,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_are_wider() {
        let lines = |text: &str| Script::Body.lines(&[text; 40].join(" ")).len();
        assert!(lines("PYTORCH_CUDA_ALLOC_CONF") > lines("pytorch_cuda_alloc_conf"));
        assert!(lines("Million") < lines("MMMMMMM"));
        assert_eq!(Script::Body.lines("a short line"), ["a short line"]);
    }
}
