//! A snapshot as JSON (`json.dump(torch.cuda.memory._snapshot(), file)`), as the pickle of the same values.
//!
//! The page of PyTorch reads both, too. Tokens become instructions of a pickle while they are read, so that one reader knows the
//! layouts and limits of snapshots. Offsets in errors about values count the bytes of this pickle.

use super::cursor::{Cursor, MAX_DEPTH, Parsed, Stop, missing, unescape};
use super::feed::Feed;
use crate::error::{Error, Result};
use std::io::{self, Read};

/// Keys with which a snapshot, or a list of segments, can start in JSON. Profiler traces have none of them.
const FIRST_KEYS: [&[u8]; 11] = [
    b"segments",
    b"device_traces",
    b"allocator_settings",
    b"external_annotations",
    b"host_segments",
    b"host_traces",
    b"address",
    b"device",
    b"active_size",
    b"allocated_size",
    b"segment_pool_id",
];

/// Whether JSON with these first bytes is a snapshot or a list of segments, rather than a profiler trace.
pub fn begins(begin: &[u8]) -> bool {
    let text = begin.trim_ascii_start();
    let object = text.strip_prefix(b"[").map_or(text, <[u8]>::trim_ascii_start);
    let key = object.strip_prefix(b"{").and_then(|rest| rest.trim_ascii_start().strip_prefix(b"\""));
    key.is_some_and(|key| {
        FIRST_KEYS.iter().any(|name| key.strip_prefix(*name).is_some_and(|rest| rest.starts_with(b"\"")))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// What a token does to the open containers.
enum Step {
    Opens(Container),
    Closes,
    /// A value that is complete.
    Value,
}

/// The pickle of a JSON text, as a reader. Errors of this crate are wrapped into [`io::Error`].
pub struct JsonPickle<R> {
    feed: Feed<R>,
    /// Open containers, and whether each is still empty.
    open: Vec<(Container, bool)>,
    /// Instructions, of which the first `given` bytes were returned.
    ready: Vec<u8>,
    given: usize,
    ended: bool,
    /// The error after the instructions that are ready.
    pending: Option<Error>,
}

impl<R: Read> JsonPickle<R> {
    pub fn new(reader: R) -> Self {
        Self {
            feed: Feed::new(reader),
            open: Vec::new(),
            ready: b"\x80\x02".to_vec(),
            given: 0,
            ended: false,
            pending: None,
        }
    }

    /// Converts tokens until there is something to return.
    fn advance(&mut self) -> Result<()> {
        const ENOUGH: usize = 64 << 10;
        self.ready.clear();
        self.given = 0;
        let Self { feed, open, ready, ended, .. } = self;
        feed.items("the snapshot", |cursor| {
            let before = ready.len();
            let step = token(cursor, open.last().copied(), ready).inspect_err(|_| ready.truncate(before))?;
            if let Some((_, empty)) = open.last_mut() {
                *empty = false;
            }
            match step {
                Step::Opens(_) if open.len() == MAX_DEPTH => {
                    let message = format!("objects and arrays are nested more than {MAX_DEPTH} deep");
                    return Err(Stop::Limit(Box::new((cursor.at(), message))));
                }
                Step::Opens(container) => open.push((container, true)),
                Step::Closes => drop(open.pop()),
                Step::Value => {}
            }
            if !matches!(step, Step::Opens(_)) {
                match open.last() {
                    Some((Container::Object, _)) => ready.push(SETITEM),
                    Some((Container::Array, _)) => ready.push(APPEND),
                    None => *ended = true,
                }
            }
            Ok(!*ended && ready.len() < ENOUGH)
        })?;
        if self.ended {
            self.ready.push(STOP);
            super::trace::end(&mut self.feed)?;
        }
        Ok(())
    }
}

const SETITEM: u8 = b's';
const APPEND: u8 = b'a';
const STOP: u8 = b'.';

/// Converts the next token, in an object together with its key, and appends the instructions to `out`.
fn token(cursor: &mut Cursor<'_>, parent: Option<(Container, bool)>, out: &mut Vec<u8>) -> Parsed<Step> {
    match parent {
        Some((Container::Object, empty)) => match cursor.key(empty)? {
            None => return Ok(Step::Closes),
            Some(key) => string(cursor.at(), &key, out)?,
        },
        Some((Container::Array, empty)) if !cursor.element(empty, b']')? => return Ok(Step::Closes),
        Some((Container::Array, _)) | None => {}
    }
    match cursor.peek()? {
        b'{' => {
            cursor.expect(b'{', "an object")?;
            out.push(b'}');
            return Ok(Step::Opens(Container::Object));
        }
        b'[' => {
            cursor.expect(b'[', "an array")?;
            out.push(b']');
            return Ok(Step::Opens(Container::Array));
        }
        b'"' => {
            let text = unescape(cursor.string("a string")?);
            string(cursor.at(), text.as_bytes(), out)?;
        }
        _ => {
            let at = cursor.at();
            match cursor.scalar("a value")? {
                b"null" => out.push(b'N'),
                b"true" => out.push(b'\x88'),
                b"false" => out.push(b'\x89'),
                // Python writes these.
                b"NaN" => out.extend_from_slice(b"Fnan\n"),
                b"Infinity" => out.extend_from_slice(b"Finf\n"),
                b"-Infinity" => out.extend_from_slice(b"F-inf\n"),
                number => {
                    let digits = number.strip_prefix(b"-").unwrap_or(number);
                    let is_integer = digits.iter().all(u8::is_ascii_digit);
                    let is_number = match digits {
                        [b'0', b'0'..=b'9', ..] => false,
                        [b'0'..=b'9', ..] => {
                            is_integer || std::str::from_utf8(number).is_ok_and(|text| text.parse::<f64>().is_ok())
                        }
                        _ => false,
                    };
                    if !is_number {
                        return cursor.bad(at, "a value");
                    }
                    out.push(if is_integer { b'L' } else { b'F' });
                    out.extend_from_slice(number);
                    out.push(b'\n');
                }
            }
        }
    }
    Ok(Step::Value)
}

fn string(at: usize, text: &[u8], out: &mut Vec<u8>) -> Parsed<()> {
    let Ok(length) = u32::try_from(text.len()) else { return missing(at, "a string of less than 4 GiB") };
    out.push(b'X');
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text);
    Ok(())
}

impl<R: Read> Read for JsonPickle<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            let failed = match self.pending.take() {
                None if self.ended => None,
                None => self.advance().err(),
                pending => pending,
            };
            match failed {
                Some(error) if self.given == self.ready.len() => return Err(io::Error::other(error)),
                failed => self.pending = failed,
            }
        }
        let count = buffer.len().min(self.ready.len() - self.given);
        buffer[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pickle(text: &str) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let result = JsonPickle::new(text.as_bytes()).read_to_end(&mut bytes);
        result.map(|_| bytes).map_err(|error| crate::input::window::unwrap_io(error).to_string())
    }

    #[test]
    fn tokens_become_instructions() {
        let text = r#" {"a": [1, -2.5, null, true], "b\n": {}, "": "x"} "#;
        let expected = b"\x80\x02}X\x01\0\0\0a]L1\naF-2.5\naNa\x88asX\x02\0\0\0b\n}sX\0\0\0\0X\x01\0\0\0xs.";
        assert_eq!(pickle(text).as_deref(), Ok(&expected[..]));
    }

    #[test]
    fn broken_json_is_refused_with_its_place() {
        for (text, words) in [
            ("{\"segments\": [1,]}", "byte 16"),
            ("{\"segments\": 01}", "byte 13: expected a value, found 01"),
            ("{\"segments\": nul}", "expected a value, found nul"),
            ("{\"segments\": []} []", "expected the end of the file"),
            ("{\"segments\": [", "byte 14: the file ends in the middle of the snapshot"),
            ("{\"segments\" []}", "expected \":\""),
        ] {
            let error = pickle(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert!(pickle(&deep).expect_err("too deep").contains("nested"));
    }

    #[test]
    fn traces_do_not_begin_like_snapshots() {
        for begin in ["{\"segments\": [", " {\n  \"device_traces\"", "[{\"device\": 0", "[\n {\"address\":"] {
            assert!(begins(begin.as_bytes()), "{begin}");
        }
        for begin in ["{\"schemaVersion\"", "[{\"ph\":", "{\"deviceProperties\"", "{\"traceEvents\"", "[[0", "{}", "[]"]
        {
            assert!(!begins(begin.as_bytes()), "{begin}");
        }
    }
}
