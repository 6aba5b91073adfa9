//! Reads the events of a trace with several threads.
//!
//! The file is cut where the next event seems to start: at a comma, white space with a raw newline, and a brace. JSON allows
//! no raw newline in a string, so such a comma is not in a string. Whether it is between two events is known after the bytes
//! before it were read: they must end exactly there. If they do not, or if anything else is unusual, the unread bytes are put
//! back and a single thread continues, so errors are the same either way.
//!
//! Each chunk is read into its own part. Parts are joined in the order of the file, so the result depends neither on the
//! threads nor on where the file was cut.

use super::cursor::{Cursor, Parsed, Stop};
use super::feed::Feed;
use crate::error::Error;
use crate::input::window::unwrap_io;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

const CHUNK: usize = 1 << 20;
/// The most threads. Reading and joining keep no more threads busy.
const MAX_THREADS: usize = 8;
/// Chunks in memory for each thread: one being read and one waiting.
const CHUNKS_PER_THREAD: usize = 2;

/// How far the events were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// To the bracket that ends them.
    Closed,
    /// Up to the position of the feed. `at_start` says whether no event was read.
    Open { at_start: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After an event.
    Between,
    /// At this position, after the last event and its bracket.
    Closed(usize),
    /// Anywhere else.
    Elsewhere,
}

/// A piece of the file and what was read from it.
struct Chunk<P> {
    bytes: Vec<u8>,
    /// How many of the bytes are filled.
    len: usize,
    part: P,
    end: End,
}

struct Source<'r, R> {
    reader: &'r mut R,
    /// Bytes that were read but belong to the next chunk.
    rest: Vec<u8>,
    next: usize,
    ended: bool,
    error: Option<Error>,
}

pub trait Part: Default + Send {
    /// Reads the next event, with the comma before it unless it is the `first`; returns false after the last event.
    fn event(&mut self, cursor: &mut Cursor<'_>, first: bool) -> Parsed<bool>;
    fn goes_with(&self, next: &Self) -> bool;
    /// Appends the next events, which were read separately.
    fn append(&mut self, next: Self);
}

/// Reads events into `whole`, as long as each is on its own lines.
pub fn read_events<R: Read + Send, P: Part>(feed: &mut Feed<R>, whole: &mut P, threads: usize) -> Progress {
    let threads = threads.min(MAX_THREADS);
    let begin = feed.offset();
    let rest = feed.take_ahead();
    let error = feed.take_pending();
    let source = Source { reader: feed.reader(), rest, next: 0, ended: error.is_some(), error };
    let source = Mutex::new(source);
    let stop = AtomicBool::new(false);
    let (give_back, buffers) = channel();
    for _ in 0..threads * CHUNKS_PER_THREAD {
        // The other end is below.
        let _ = give_back.send(Vec::new());
    }
    let buffers = Mutex::new(buffers);
    let mut joiner = Joiner { whole, read: 0, at_start: true, left: None, closed: false };
    thread::scope(|scope| {
        let (done, chunks) = channel();
        for _ in 0..threads {
            let (source, stop, buffers, done) = (&source, &stop, &buffers, done.clone());
            scope.spawn(move || work(source, stop, buffers, &done));
        }
        drop(done);
        joiner.join_all(&chunks, give_back, &stop);
    });
    let Joiner { read, at_start, left, closed, .. } = joiner;
    let Source { rest, error, .. } = source.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut left = left.unwrap_or_default();
    left.extend_from_slice(&rest);
    feed.put_back(left, begin + read, error);
    if closed { Progress::Closed } else { Progress::Open { at_start } }
}

/// Processes one chunk after the other, until there is none or it is told to stop.
fn work<R: Read, P: Part>(
    source: &Mutex<Source<'_, R>>,
    stop: &AtomicBool,
    buffers: &Mutex<Receiver<Vec<u8>>>,
    done: &Sender<(usize, Chunk<P>)>,
) {
    loop {
        // Buffers are returned while parts are being joined, and no longer after that.
        let buffer = buffers.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut bytes) = buffer else { return };
        let (index, len) = {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match source.next_chunk(&mut bytes) {
                0 => return,
                len => {
                    source.next += 1;
                    (source.next - 1, len)
                }
            }
        };
        let mut part = P::default();
        let end = read_chunk(&bytes[..len], index == 0, &mut part);
        if done.send((index, Chunk { bytes, len, part, end })).is_err() {
            return;
        }
    }
}

impl<R: Read> Source<'_, R> {
    /// Fills `bytes` up to a comma that seems to be between two events, or to the end of the input; returns the length.
    fn next_chunk(&mut self, bytes: &mut Vec<u8>) -> usize {
        let wanted = CHUNK.max(self.rest.len() * 2);
        if bytes.len() < wanted {
            bytes.resize(wanted, 0);
        }
        let mut len = self.rest.len();
        bytes[..len].copy_from_slice(&self.rest);
        self.rest.clear();
        while len < wanted && !self.ended {
            match self.reader.read(&mut bytes[len..wanted]) {
                Ok(0) => self.ended = true,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(unwrap_io(error));
                    self.ended = true;
                }
            }
        }
        let cut = if self.ended { len } else { cut(&bytes[..len]).unwrap_or(len) };
        self.rest.extend_from_slice(&bytes[cut..len]);
        cut
    }
}

/// The last comma that seems to be between two events: it is followed by white space with a newline, and a brace. The comma
/// at the start of the slice does not count.
fn cut(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    while let Some(newline) = bytes[..end].iter().rposition(|&byte| byte == b'\n') {
        end = newline;
        let next = bytes[newline..].iter().find(|byte| !byte.is_ascii_whitespace());
        let before = bytes[..newline].iter().rposition(|byte| !byte.is_ascii_whitespace());
        if next == Some(&b'{')
            && let Some(comma @ 1..) = before.filter(|&before| bytes[before] == b',')
        {
            return Some(comma);
        }
    }
    None
}

/// Reads the events of a chunk, which starts with the first event or with the comma before an event.
fn read_chunk<P: Part>(bytes: &[u8], mut first: bool, part: &mut P) -> End {
    let mut cursor = Cursor::new(bytes);
    let mut done = 0;
    loop {
        match part.event(&mut cursor, first) {
            Ok(true) => (first, done) = (false, cursor.at()),
            Ok(false) => return End::Closed(cursor.at()),
            Err(Stop::More) if !first && bytes[done..].trim_ascii().is_empty() => return End::Between,
            Err(_) => return End::Elsewhere,
        }
    }
}

/// Joins parts in the order of the file.
struct Joiner<'w, P> {
    whole: &'w mut P,
    read: u64,
    at_start: bool,
    /// Bytes that were read from the file but not joined, once joining is over.
    left: Option<Vec<u8>>,
    closed: bool,
}

impl<P: Part> Joiner<'_, P> {
    fn join_all(&mut self, chunks: &Receiver<(usize, Chunk<P>)>, give_back: Sender<Vec<u8>>, stop: &AtomicBool) {
        let mut give_back = Some(give_back);
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        // Ends when all threads have ended: without buffers, or at the end of the file.
        for (index, chunk) in chunks {
            waiting.insert(index, chunk);
            while let Some(chunk) = waiting.remove(&next) {
                next += 1;
                let Some(bytes) = self.join(chunk) else { continue };
                if let Some(give_back) = &give_back {
                    // Threads that have ended need no buffer.
                    let _ = give_back.send(bytes);
                }
            }
            if self.left.is_some() {
                stop.store(true, Ordering::Relaxed);
                give_back = None;
            }
        }
    }

    /// Joins a chunk; returns its buffer if more chunks follow.
    fn join(&mut self, chunk: Chunk<P>) -> Option<Vec<u8>> {
        let Chunk { bytes, len, part, end } = chunk;
        if let Some(left) = &mut self.left {
            left.extend_from_slice(&bytes[..len]);
            return None;
        }
        let is_good = end != End::Elsewhere && self.whole.goes_with(&part);
        if is_good {
            self.whole.append(part);
            self.at_start = false;
        }
        let read = match end {
            _ if !is_good => 0,
            End::Closed(at) => {
                self.closed = true;
                at
            }
            _ => {
                self.read += len as u64;
                return Some(bytes);
            }
        };
        self.read += read as u64;
        self.left = Some(bytes[read..len].to_vec());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_lies_at_a_comma_in_front_of_a_line_that_begins_with_a_brace() {
        for (text, expected) in [
            ("  {\n\"a\": 1\n  },\n  {\n \"b\"", Some(14)),
            ("{},\r\n\t {", Some(2)),
            ("{}\n,\n{", Some(3)),
            ("{}, {", None),
            ("{},\n\"a\"", None),
            ("{}\n{", None),
            ("{},\n", None),
            (",\n{", None),
            ("", None),
        ] {
            assert_eq!(cut(text.as_bytes()), expected, "{text:?}");
        }
    }
}
