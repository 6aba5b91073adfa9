//! Pages of `_memory_viz.py trace_plot` (and `segment_plot`), which contain the whole pickle.
//!
//! The page passes a list to PyTorch's viewer: `[{"name": "snapshot.pickle", "base64": "gASV..."}]`. The base64 is found and
//! decoded while the page is being read, in memory of a fixed size.

use super::window::unwrap_io;
use crate::error::Error;
use std::io::{self, Read};

const CHUNK: usize = 64 << 10;
/// The key before a recording. PyTorch writes it in double quotes; a browser also accepts other quotes, or none.
const KEY: &[u8] = b"base64";
/// The name of the drawn blocks in pages from before PyTorch 2.1.
const ALLOC_DATA: &[u8] = b"alloc_data = {";
/// What precedes the recording in the page of `memviz view`.
const OWN: &[u8] = b"id=\"recording\" data-name=";
/// How recordings start in base64: pickles of protocols 2 to 5, gzip, zstd and zip.
const BEGINNINGS: [&[u8]; 7] = [b"gAJ", b"gAN", b"gAS", b"gAW", b"H4sI", b"KLUv", b"UEsD"];
/// A base64 text with this many characters that starts like a recording is one.
const LENGTH: usize = 64;
/// How a picture in a page starts.
const PICTURE: &[u8] = b"data:image/png;base64";

/// The six bits of each base64 character.
const SIX_BITS: [u8; 256] = six_bits();
/// A byte that is not part of base64.
const NONE: u8 = 0xff;

const fn six_bits() -> [u8; 256] {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [NONE; 256];
    let mut value = 0;
    while value < alphabet.len() {
        table[alphabet[value] as usize] = value as u8;
        value += 1;
    }
    table
}

/// The recording in a page, as a reader. Errors of this crate are wrapped into [`io::Error`].
pub struct PageReader<R> {
    page: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Offset in the page of `buffer[0]`.
    base: u64,
    state: State,
    /// Decoded bytes that are not yet returned.
    decoded: Vec<u8>,
    given: usize,
    /// The known characters of a group of four.
    group: [u8; 4],
    group_len: usize,
    padding: usize,
    /// The last group, decoded. It is held back, since zeros at the very end are padding, which PyTorch adds.
    last: Option<[u8; 3]>,
    has_picture: bool,
    /// How many bytes of [`ALLOC_DATA`] were just matched; stays at the maximum after a full match.
    alloc_data: usize,
    /// The same for [`OWN`].
    own: usize,
    /// The text outside of [`KEY`] that may be a recording.
    text: Text,
    has_other: bool,
}

/// A base64 text after a quote or a tag, as far as it was read.
#[derive(Default)]
struct Text {
    begins: [u8; 4],
    length: usize,
    is_base64: bool,
}

impl Text {
    /// Processes the next byte of the page. Returns whether the text is now known to be a recording.
    fn see(&mut self, byte: u8) -> bool {
        if matches!(byte, b'"' | b'\'' | b'`' | b'>') {
            *self = Self { is_base64: true, ..Self::default() };
            return false;
        }
        if !self.is_base64 {
            return false;
        }
        self.is_base64 = SIX_BITS[usize::from(byte)] != NONE;
        if let Some(begins) = self.begins.get_mut(self.length) {
            *begins = byte;
        }
        self.length += 1;
        self.length == LENGTH && self.is_base64 && BEGINNINGS.iter().any(|begins| self.begins.starts_with(begins))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before or after a recording: this many bytes of the key and of a picture's start were just matched.
    Searching {
        key: usize,
        picture: usize,
        found: bool,
    },
    /// After the key, before its colon.
    Colon {
        found: bool,
    },
    /// After the colon, before the opening quote.
    Quote {
        found: bool,
    },
    Inside,
    Ended,
}

impl State {
    fn searching(found: bool) -> Self {
        Self::Searching { key: 0, picture: 0, found }
    }
}

/// The number of matched bytes of `text` after `count` matched bytes and then `byte`. Neither text repeats its first byte in
/// a way that matters, so a new match can only start at this byte.
fn matched(text: &[u8], count: usize, byte: u8) -> usize {
    if text.get(count) == Some(&byte) { count + 1 } else { usize::from(text.first() == Some(&byte)) }
}

/// The error for a page with more than one recording.
fn several() -> Error {
    Error::NotASnapshot("the page contains more than one recording; memviz reads one at a time".to_owned())
}

impl<R: Read> PageReader<R> {
    pub fn new(page: R) -> Self {
        Self {
            page,
            buffer: vec![0; CHUNK].into_boxed_slice(),
            start: 0,
            end: 0,
            base: 0,
            state: State::searching(false),
            decoded: Vec::with_capacity(CHUNK),
            given: 0,
            group: [0; 4],
            group_len: 0,
            padding: 0,
            last: None,
            has_picture: false,
            alloc_data: 0,
            own: 0,
            text: Text::default(),
            has_other: false,
        }
    }

    /// Whether it is a page of `memviz view`, as far as it was read.
    pub fn is_own(&self) -> bool {
        self.own == OWN.len()
    }

    /// Reads more of the page; false at its end.
    fn fill(&mut self) -> io::Result<bool> {
        self.base += self.end as u64;
        (self.start, self.end) = (0, 0);
        loop {
            match self.page.read(&mut self.buffer) {
                Ok(count) => {
                    self.end = count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Processes the bytes in the buffer until something is decoded or none are left.
    fn advance(&mut self) -> Result<(), Error> {
        while self.start < self.end {
            let byte = self.buffer[self.start];
            if self.state != State::Inside {
                self.look_around(byte)?;
            }
            self.state = match self.state {
                State::Searching { key, picture, found } => {
                    let (key, picture) = (matched(KEY, key, byte), matched(PICTURE, picture, byte));
                    self.has_picture |= picture == PICTURE.len();
                    if key == KEY.len() { State::Colon { found } } else { State::Searching { key, picture, found } }
                }
                State::Colon { found } | State::Quote { found } if byte.is_ascii_whitespace() => {
                    if matches!(self.state, State::Colon { .. }) {
                        State::Colon { found }
                    } else {
                        State::Quote { found }
                    }
                }
                State::Colon { found } if matches!(byte, b'"' | b'\'' | b'`') => State::Colon { found },
                State::Colon { found } if byte == b':' => State::Quote { found },
                State::Quote { found: false } if byte == b'"' && self.has_other => return Err(several()),
                State::Quote { found: false } if byte == b'"' => State::Inside,
                State::Quote { found: false } if matches!(byte, b'\'' | b'`') => {
                    let message = "the recording in the page is quoted differently from how PyTorch writes it";
                    return Err(Error::NotASnapshot(message.to_owned()));
                }
                State::Quote { found: true } if matches!(byte, b'"' | b'\'' | b'`') => {
                    return Err(several());
                }
                State::Colon { found } | State::Quote { found } => {
                    State::Searching { key: matched(KEY, 0, byte), picture: matched(PICTURE, 0, byte), found }
                }
                State::Inside => {
                    self.decode()?;
                    if !self.decoded.is_empty() {
                        return Ok(());
                    }
                    continue;
                }
                State::Ended => return Ok(()),
            };
            self.start += 1;
        }
        Ok(())
    }

    /// Looks for other contents of a page, and for recordings under other names than [`KEY`].
    fn look_around(&mut self, byte: u8) -> Result<(), Error> {
        if self.alloc_data < ALLOC_DATA.len() {
            self.alloc_data = matched(ALLOC_DATA, self.alloc_data, byte);
        }
        if self.own < OWN.len() {
            self.own = matched(OWN, self.own, byte);
        }
        self.has_other |= self.text.see(byte);
        let is_found = |state| matches!(state, State::Searching { found: true, .. } | State::Colon { found: true });
        if self.has_other && is_found(self.state) { Err(several()) } else { Ok(()) }
    }

    /// Decodes the part of the recording in the buffer.
    fn decode(&mut self) -> Result<(), Error> {
        while self.start < self.end {
            let byte = self.buffer[self.start];
            let value = SIX_BITS[usize::from(byte)];
            let at = self.base + self.start as u64;
            self.start += 1;
            match byte {
                b'"' => {
                    if self.group_len > 0 {
                        return Err(Error::malformed(at, "expected groups of four characters in the page's base64"));
                    }
                    let last = self.last.take().unwrap_or_default();
                    let used = last[..3 - self.padding].iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
                    self.decoded.extend_from_slice(&last[..used]);
                    self.state = State::searching(true);
                    return Ok(());
                }
                // JSON may escape a slash with a backslash.
                b'\\' => continue,
                b'=' if self.group_len >= 2 => self.padding += 1,
                _ if value == NONE || self.padding > 0 => {
                    return Err(Error::malformed(at, format!("expected base64, found byte 0x{byte:02x}")));
                }
                _ => {}
            }
            self.group[self.group_len] = value & 0x3f;
            self.group_len += 1;
            if self.group_len == 4 {
                let [a, b, c, d] = self.group;
                if let Some(before) = self.last.replace([a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]) {
                    self.decoded.extend_from_slice(&before);
                }
                self.group_len = 0;
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Error> {
        match self.state {
            State::Searching { found: true, .. } | State::Colon { found: true } | State::Quote { found: true } => Ok(()),
            State::Inside => Err(Error::Truncated { at: self.base, within: "the recording in the page".to_owned() }),
            _ if self.has_picture => Err(Error::Foreign(
                "an HTML page that contains only a picture, like the pages that export_memory_timeline writes; export to .raw.json.gz instead"
                    .to_owned(),
            )),
            _ if self.own == OWN.len() => Err(Error::Foreign(
                "a page of memviz view: open it in a browser; memviz reads the recording that it was made from".to_owned(),
            )),
            _ if self.alloc_data == ALLOC_DATA.len() => Err(Error::Foreign(
                "a page of an old _memory_viz.py, which contains only drawing data and no snapshot; memviz reads the pickle \
                 that it was made from, and trace_plot pages of PyTorch 2.1 or later"
                    .to_owned(),
            )),
            _ => Err(Error::Foreign(
                "an HTML page without a recording; memviz reads pages that _memory_viz.py trace_plot writes, and the pickle that the \
                 page was made from"
                    .to_owned(),
            )),
        }
    }
}

impl<R: Read> Read for PageReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.decoded.len() && self.state != State::Ended {
            self.decoded.clear();
            self.given = 0;
            if self.start == self.end && !self.fill()? {
                let end = self.end();
                self.state = State::Ended;
                return end.map(|()| 0).map_err(io::Error::other);
            }
            self.advance().map_err(io::Error::other)?;
        }
        let count = buffer.len().min(self.decoded.len() - self.given);
        buffer[..count].copy_from_slice(&self.decoded[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

/// Reads the rest of a page after its recording, and refuses a second recording.
pub fn check_rest(reader: &mut impl Read) -> Result<(), Error> {
    io::copy(reader, &mut io::sink()).map(|_| ()).map_err(unwrap_io)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns a few bytes at a time.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(page: &str) -> Result<Vec<u8>, String> {
        let mut results = [1, 2, 3, 7, CHUNK].map(|size| {
            let mut bytes = Vec::new();
            let result = PageReader::new(Drops(page.as_bytes(), size)).read_to_end(&mut bytes);
            result.map(|_| bytes).map_err(|error| unwrap_io(error).to_string())
        });
        results.sort();
        assert_eq!(results.first(), results.last(), "how the page arrives makes a difference");
        results[0].clone()
    }

    #[test]
    fn the_recording_is_found_and_decoded() {
        for (base64, bytes) in [
            ("", &b""[..]),
            ("AAAA", b""),
            ("YWJjAAAA", b"abc"),
            ("YQAAYQAA", b"a\0\0a"),
            ("YQ==", b"a"),
            ("YWI=", b"ab"),
            ("YWJj", b"abc"),
            ("+/\\/+", &[251, 255, 254]),
        ] {
            let page = format!("<html>\"\"base6\"base64\" no {{\"name\": \"x\", \"base64\" :\n \"{base64}\"}}]</html>");
            assert_eq!(read(&page).as_deref(), Ok(bytes), "{base64}");
        }
    }

    #[test]
    fn other_pages_are_named() {
        let says = |page: &str, words: &str| {
            let error = read(page).expect_err(page);
            assert!(error.contains(words) && !error.contains('\n'), "{page}: {error}");
        };
        says("<html><img src='data:image/png;base64,iVBO'/></html>", "a picture");
        says("<html></html>", "without a recording");
        says("<script> allo alloc_data = {\"actions\": [0]}", "an old _memory_viz.py");
        says("<p>{\"base64\": 1}", "without a recording");
        says("<p>{\"base64\": \"YQ==\"}, {\"base64\": \"YQ==\"}", "more than one");
        says("<p>{\"base64\": \"YQ==\"}, {'base64': 'YQ=='}", "more than one");
        says("<p>{\"base64\": \"YQ==\"}, {base64 : `YQ==`}", "more than one");
        says("<p>{'base64': 'YQ=='}, {\"base64\": \"YQ==\"}", "quoted differently");
        let other = format!("gASV{}", "A".repeat(100));
        says(&format!("<p>{{\"base64\": \"YQ==\"}}, {{\"other\": '{other}'}}"), "more than one");
        says(&format!("<p>{{\"other\": \"{other}\"}}, {{\"base64\": \"YQ==\"}}"), "more than one");
        says(&format!("<p>{{\"base64\": \"YQ==\"}}<script>{other}</script>"), "more than one");
        says("<script id=\"recording\" data-name=\"a\">gASV</script>", "a page of memviz view");
        says("<p>{\"base64\": \"YWJj", "in the middle of the recording");
        says("<p>{\"base64\": \"YW!j\"", "found byte 0x21");
        says("<p>{\"base64\": \"YW=j\"", "found byte 0x6a");
        says("<p>{\"base64\": \"YWJ\"", "groups of four");
    }
}
