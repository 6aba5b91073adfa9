//! Items of a JSON stream, one after the other. Each item is in memory as a whole while it is read.

use super::cursor::{Cursor, Parsed, Stop};
use crate::error::{Error, Result};
use crate::input::window::Window;
use std::io::Read;

/// The longest item. PyTorch's events have a few hundred bytes; the longest, with the shapes of many tensors, about ten
/// thousand.
const MAX_ITEM: usize = 16 << 20;

/// A stream that is read item by item.
pub struct Feed<R> {
    window: Window<R>,
    /// The error after the bytes in the window.
    pending: Option<Error>,
}

impl<R: Read> Feed<R> {
    pub fn new(reader: R) -> Self {
        Self { window: Window::new(reader), pending: None }
    }

    /// The stream after the bytes that were read ahead.
    pub fn reader(&mut self) -> &mut R {
        self.window.reader()
    }

    /// Takes the bytes that were read ahead, for a caller that continues with [`Feed::reader`] and puts the rest back.
    pub fn take_ahead(&mut self) -> Vec<u8> {
        let ahead = self.window.ahead().to_vec();
        self.window.skip(ahead.len());
        ahead
    }

    /// Takes the error after those bytes.
    pub fn take_pending(&mut self) -> Option<Error> {
        self.pending.take()
    }

    /// Puts back bytes at `offset` of the stream, and the error after them.
    pub fn put_back(&mut self, bytes: Vec<u8>, offset: u64, pending: Option<Error>) {
        self.window.put_back(bytes, offset);
        self.pending = pending;
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// The result of `find` on the bytes ahead, without consuming them; reads more until `find` returns something.
    pub fn look<T>(&mut self, find: impl Fn(&[u8]) -> Option<T>) -> Result<Option<T>> {
        loop {
            if let Some(found) = find(self.window.ahead()) {
                return Ok(Some(found));
            }
            let held = self.window.ahead().len();
            if held >= MAX_ITEM {
                return Err(Self::too_long(self.offset()));
            }
            match self.read_on(held, "") {
                Ok(()) => {}
                Err(Error::Truncated { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one item. If the window contains only a part of it, it is read again after more bytes arrived, so `read` must
    /// not count anything before the item is complete.
    pub fn item<T>(&mut self, within: &str, read: impl Fn(&mut Cursor<'_>) -> Parsed<T>) -> Result<T> {
        let mut found = None;
        self.items(within, |cursor| {
            found = Some(read(cursor)?);
            Ok(false)
        })?;
        found.ok_or_else(|| self.window.truncated(within))
    }

    /// Reads items until `read` returns false. Like in [`Feed::item`], an item may be read twice.
    pub fn items(&mut self, within: &str, mut read: impl FnMut(&mut Cursor<'_>) -> Parsed<bool>) -> Result<()> {
        loop {
            let ahead = self.window.ahead();
            let held = ahead.len();
            let mut cursor = Cursor::new(ahead);
            let mut done = 0;
            let stop = loop {
                match read(&mut cursor) {
                    Ok(true) => done = cursor.at(),
                    Ok(false) => {
                        let read = cursor.at();
                        self.window.skip(read);
                        return Ok(());
                    }
                    Err(stop) => break stop,
                }
            };
            let base = self.window.offset();
            match stop {
                Stop::Bad(bad) => return Err(Error::malformed(base + bad.0 as u64, bad.1)),
                Stop::Limit(limit) => return Err(Error::Limit { at: base + limit.0 as u64, message: limit.1 }),
                Stop::More => {}
            }
            self.window.skip(done);
            let left = held - done;
            if left >= MAX_ITEM {
                return Err(Self::too_long(base + done as u64));
            }
            self.read_on(left, within)?;
        }
    }

    fn too_long(at: u64) -> Error {
        Error::Limit { at, message: format!("an item is longer than the limit of {MAX_ITEM} bytes") }
    }

    /// Whether only white space is left.
    pub fn is_at_end(&mut self) -> Result<bool> {
        loop {
            let ahead = self.window.ahead();
            let blank = ahead.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if blank < ahead.len() {
                return Ok(false);
            }
            self.window.skip(blank);
            match self.read_on(0, "") {
                Ok(()) => {}
                Err(Error::Truncated { .. }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads more bytes than the `left` bytes that are ahead: twice as many, so that a long item is restarted only a few
    /// times.
    fn read_on(&mut self, left: usize, within: &str) -> Result<()> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let read = self.window.fill(left * 2 + 1);
        let grown = self.window.ahead().len() > left;
        match read {
            Ok(_) if grown => Ok(()),
            Ok(_) => Err(self.window.truncated(within)),
            Err(error) if grown => {
                self.pending = Some(error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
