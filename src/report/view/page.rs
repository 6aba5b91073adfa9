//! The page itself: one file that contains everything, and needs no network.

use std::borrow::Cow;
use std::io::{self, Write};

/// The page, without engine and recording. Built from `viewer`, as the engine is.
const PAGE: &str = include_str!("../../../viewer/dist/view.html");
/// The engine: this library as WebAssembly, compressed with gzip, which every browser undoes.
const ENGINE: &[u8] = include_bytes!("../../../viewer/dist/engine.wasm.gz");
/// The placeholders in the page for the engine and for a recording.
const ENGINE_PLACE: &str = r#"<script type="application/octet-stream;base64" id="engine"></script>"#;
const RECORDING_PLACE: &str = r#"<script type="application/octet-stream;base64" id="recording" data-name=""></script>"#;
/// Three bytes become four, so whole groups of this many need no padding in between.
const PIECE: usize = 3 << 12;
/// Large recordings take less at this level than at the four above it, at a sixth of the time.
const LEVEL: i32 = 2;

/// A recording that a page carries.
pub struct Carried<'a> {
    /// What it is called.
    pub name: &'a str,
    /// How to read it: see [`super::Reading::to_json`].
    pub options: &'a str,
    /// The samples of the whole device next to it, unchanged; empty if there are none.
    pub samples: &'a str,
    /// What is shown first, as the page has it in links to itself; nothing for all.
    pub show: &'a str,
    /// Writes the file.
    pub content: &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    /// Whether the file is compressed with zstd, and is therefore embedded unchanged.
    pub is_packed: bool,
}

/// Writes a page with a recording, or an empty one, which recordings are dropped on.
///
/// # Errors
/// If reading the recording or writing fails.
pub fn write(carried: Option<Carried<'_>>, out: &mut dyn Write) -> io::Result<()> {
    let missing = || io::Error::other("the page has no place for the engine and a recording");
    let (head, rest) = PAGE.split_once(ENGINE_PLACE).ok_or_else(missing)?;
    let (between, tail) = rest.split_once(RECORDING_PLACE).ok_or_else(missing)?;
    out.write_all(head.as_bytes())?;
    out.write_all(br#"<script type="application/octet-stream;base64" id="engine">"#)?;
    let mut encoder = Base64::new(out);
    encoder.write_all(ENGINE)?;
    encoder.finish()?.write_all(b"</script>")?;
    out.write_all(between.as_bytes())?;
    match carried {
        None => out.write_all(RECORDING_PLACE.as_bytes())?,
        Some(Carried { name, options, samples, show, content, is_packed }) => {
            write!(
                out,
                r#"<script type="application/octet-stream;base64" id="recording" data-name="{}" data-options="{}" data-samples="{}" data-show="{}">"#,
                attribute(name),
                attribute(options),
                attribute(samples),
                attribute(show)
            )?;
            let mut text = Base64::new(out);
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

/// Writes bytes on as base64 (RFC 4648) without line breaks.
struct Base64<'w> {
    out: &'w mut dyn Write,
    /// Bytes that wait for a whole group.
    waiting: Vec<u8>,
}

impl<'w> Base64<'w> {
    fn new(out: &'w mut dyn Write) -> Self {
        Self { out, waiting: Vec::with_capacity(2 * PIECE) }
    }

    /// Writes the last group, padded.
    fn finish(self) -> io::Result<&'w mut dyn Write> {
        self.out.write_all(&encoded(&self.waiting))?;
        Ok(self.out)
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE);
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() >= PIECE {
            let whole = self.waiting.len() / 3 * 3;
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
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let characters = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize]);
        let told = group.len() + 1;
        text.extend_from_slice(&characters[..told]);
        text.extend(std::iter::repeat_n(b'=', 4 - told));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in cases {
            assert_eq!(encoded(bytes.as_bytes()), text.as_bytes());
        }
        assert_eq!(encoded(&[0xfb, 0xff, 0xbf]), b"+/+/");
    }

    #[test]
    fn pieces_of_any_length_make_the_same_text() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| ((n * 31) >> 3) as u8).collect();
        for piece in [1, 2, 100, 12_287, 12_288, 100_000] {
            let mut out = Vec::new();
            let mut encoder = Base64::new(&mut out);
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
