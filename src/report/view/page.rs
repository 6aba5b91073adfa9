//! The page itself: one file that contains everything, and needs no network.

use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::io::{self, Read, Write};

/// The page, without engine and recording, compressed with gzip. Built from `viewer`, like the engine.
const PAGE: &[u8] = include_bytes!("../../../viewer/dist/view.html.gz");
/// The engine: this library as WebAssembly, compressed with gzip, which every browser decompresses.
const ENGINE: &[u8] = include_bytes!("../../../viewer/dist/engine.wasm.gz");
/// The placeholders in the page for the engine, and for a recording.
const ENGINE_PLACE: &str = r#"<script type="application/octet-stream;ascii85" id="engine"></script>"#;
const RECORDING_PLACE: &str =
    r#"<script type="application/octet-stream;ascii85" id="recording" data-name=""></script>"#;
/// Four bytes become five characters, so groups of this many bytes are never split.
const PIECE: usize = 4 << 12;
/// At this level, large recordings become smaller than at the four levels above it, in a sixth of the time.
const LEVEL: i32 = 2;

/// A recording inside a page.
pub struct Carried<'a> {
    pub name: &'a str,
    /// How to read it: see [`super::Reading::to_json`].
    pub options: &'a str,
    /// The samples of the whole device next to it, unchanged; empty if there are none.
    pub samples: &'a str,
    /// Its findings, as the engine answers; empty if it has to find them.
    pub findings: &'a str,
    /// What is shown first, as in the page's links to itself; empty for everything.
    pub show: &'a str,
    pub content: &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    /// Whether the file is compressed with zstd, and is therefore embedded unchanged.
    pub is_packed: bool,
}

/// Writes a page with a recording, or an empty page, onto which you can drop recordings.
/// Fails if reading the recording or writing fails.
pub fn write(carried: Option<Carried<'_>>, out: &mut dyn Write) -> io::Result<()> {
    let missing = || io::Error::other("the page template has no placeholder for the engine and the recording");
    let mut page = String::new();
    GzDecoder::new(PAGE).read_to_string(&mut page)?;
    let (head, rest) = page.split_once(ENGINE_PLACE).ok_or_else(missing)?;
    let (between, tail) = rest.split_once(RECORDING_PLACE).ok_or_else(missing)?;
    out.write_all(head.as_bytes())?;
    out.write_all(br#"<script type="application/octet-stream;ascii85" id="engine">"#)?;
    let mut encoder = Ascii85::new(out);
    encoder.write_all(ENGINE)?;
    encoder.finish()?.write_all(b"</script>")?;
    out.write_all(between.as_bytes())?;
    match carried {
        None => out.write_all(RECORDING_PLACE.as_bytes())?,
        Some(Carried { name, options, samples, findings, show, content, is_packed }) => {
            write!(
                out,
                r#"<script type="application/octet-stream;ascii85" id="recording" data-name="{}" data-options="{}" data-samples="{}" data-findings="{}" data-show="{}">"#,
                attribute(name),
                attribute(options),
                attribute(samples),
                attribute(findings),
                attribute(show)
            )?;
            let mut text = Ascii85::new(out);
            if is_packed {
                content(&mut text)?;
            } else {
                let mut encoder = zstd::Encoder::new(text, LEVEL)?;
                encoder.include_checksum(true)?;
                content(&mut encoder)?;
                text = encoder.finish()?;
            }
            text.finish()?.write_all(b"</script>")?;
        }
    }
    out.write_all(tail.as_bytes())
}

/// A text between double quotes in HTML.
fn attribute(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '"', '<', '>']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// Writes bytes as Ascii85 without line breaks: a quarter longer than the bytes, while base64 is a third longer.
///
/// Four bytes become a number of five digits in base 85, with the character `!` for 0 and the characters after it for
/// other digits, but `v` instead of `<`: nothing in the text may look like a tag. If the last group has fewer bytes,
/// zeros are appended to it, and as many characters omitted.
struct Ascii85<'w> {
    out: &'w mut dyn Write,
    /// Bytes that wait for a complete group.
    waiting: Vec<u8>,
}

impl<'w> Ascii85<'w> {
    fn new(out: &'w mut dyn Write) -> Self {
        Self { out, waiting: Vec::with_capacity(2 * PIECE) }
    }

    /// Writes the last group.
    fn finish(self) -> io::Result<&'w mut dyn Write> {
        self.out.write_all(&encoded(&self.waiting))?;
        Ok(self.out)
    }
}

impl Write for Ascii85<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE);
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() >= PIECE {
            let whole = self.waiting.len() / 4 * 4;
            self.out.write_all(&encoded(&self.waiting[..whole]))?;
            self.waiting.drain(..whole);
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn encoded(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(4) * 5);
    for group in bytes.chunks(4) {
        let mut number = group.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
        number <<= 8 * (4 - group.len());
        let mut characters = [0; 5];
        for character in characters.iter_mut().rev() {
            let digit = b'!' + (number % 85) as u8;
            *character = if digit == b'<' { b'v' } else { digit };
            number /= 85;
        }
        text.extend_from_slice(&characters[..=group.len()]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_digits_of_85() {
        let cases: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"M", "9`"),
            (b"Ma", "9jn"),
            (b"Man", "9jqo"),
            (b"Man ", "9jqo^"),
            (&[0, 0, 0, 0], "!!!!!"),
            (&[255, 255, 255, 255], "s8W-!"),
            (&[0, 0, 0, 27], "!!!!v"),
        ];
        for (bytes, text) in cases {
            assert_eq!(String::from_utf8(encoded(bytes)).unwrap(), text);
        }
    }

    #[test]
    fn pieces_of_any_length_make_the_same_text() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| ((n * 31) >> 3) as u8).collect();
        for piece in [1, 2, 100, 16_383, 16_384, 100_000] {
            let mut out = Vec::new();
            let mut encoder = Ascii85::new(&mut out);
            bytes.chunks(piece).for_each(|piece| encoder.write_all(piece).unwrap());
            encoder.finish().unwrap();
            assert!(out == encoded(&bytes), "{piece}");
        }
    }

    #[test]
    fn names_cannot_leave_their_attribute() {
        assert_eq!(attribute(r#""></script><b>&"#), "&quot;&gt;&lt;/script&gt;&lt;b&gt;&amp;");
    }
}
