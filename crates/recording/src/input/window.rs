//! A sliding window over a byte stream.
//!
//! The pickle machine needs slices, while the input is a stream that may not fit in memory. The window contains the unread
//! bytes of one chunk that fits the processor's second-level cache; reading more reuses the same memory.

use crate::error::{Error, Result};
use std::io::Read;

/// Bytes requested from the stream at a time: few enough to stay in the second-level cache between copying and decoding.
const CHUNK: usize = 256 << 10;

/// Unread bytes of a stream, and their position in it.
pub struct Window<R> {
    reader: R,
    buffer: Vec<u8>,
    /// First unread byte in `buffer`.
    start: usize,
    /// End of the valid bytes in `buffer`.
    end: usize,
    /// Stream offset of `buffer[0]`.
    base: u64,
    /// Whether the stream has ended.
    ended: bool,
    /// The error after the valid bytes, for the next caller that needs more bytes.
    failed: Option<Error>,
}

impl<R: Read> Window<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; CHUNK], start: 0, end: 0, base: 0, ended: false, failed: None }
    }

    /// Offset of the next unread byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The bytes ahead: `count` or more, unless the stream ends or fails before.
    ///
    /// A failure is not reported here: the error is for a caller that needs the bytes.
    #[inline]
    pub fn look_ahead(&mut self, count: usize) -> &[u8] {
        if self.end - self.start < count
            && self.failed.is_none()
            && let Err(error) = self.fill(count)
        {
            self.failed = Some(error);
        }
        self.ahead()
    }

    /// A failure that occurred in [`Window::look_ahead`] and was not reported yet.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// Bytes that are available without reading more.
    #[inline]
    pub fn ahead(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The stream after the bytes ahead.
    pub fn reader(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Puts bytes, which are at `offset` of the stream, in front of it. The bytes that were ahead are dropped.
    pub fn put_back(&mut self, bytes: Vec<u8>, offset: u64) {
        self.base = offset;
        self.start = 0;
        self.end = bytes.len();
        self.buffer = bytes;
        self.buffer.resize(self.end.max(CHUNK), 0);
    }

    /// Consumes `count` bytes of [`Window::ahead`].
    #[inline]
    pub fn skip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Reads until `count` bytes are ahead; returns false if the stream ends before.
    ///
    /// Memory grows with the bytes that are actually there, never with `count`.
    pub fn fill(&mut self, count: usize) -> Result<bool> {
        while self.end - self.start < count && !self.ended {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.base += self.start as u64;
                self.end -= self.start;
                self.start = 0;
            }
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unwrap_io(error)),
            }
        }
        Ok(self.end - self.start >= count)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        if self.end - self.start < N && !self.fill(N)? {
            return Err(self.truncated("a pickle instruction"));
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + N]);
        self.start += N;
        Ok(bytes)
    }

    /// The next `length` bytes, at most `limit` of them.
    pub fn slice(&mut self, length: u64, limit: u64) -> Result<&[u8]> {
        if length > limit {
            let at = self.offset();
            let message = format!("an item of {length} bytes is longer than the limit of {limit}");
            return Err(Error::Limit { at, message });
        }
        let length = length as usize;
        if !self.fill(length)? {
            return Err(self.truncated(&format!("an item of {length} bytes")));
        }
        self.start += length;
        Ok(&self.buffer[self.start - length..self.start])
    }

    /// The bytes up to the next newline, which is consumed but not returned; at most `limit` of them.
    pub fn line(&mut self, limit: u64) -> Result<&[u8]> {
        let mut searched = 0;
        loop {
            if let Some(length) = self.ahead()[searched..].iter().position(|&byte| byte == b'\n') {
                let start = self.start;
                self.start += searched + length + 1;
                return Ok(&self.buffer[start..self.start - 1]);
            }
            searched = self.end - self.start;
            if searched as u64 > limit {
                let message = format!("a line is longer than the limit of {limit} bytes");
                return Err(Error::Limit { at: self.offset(), message });
            }
            if !self.fill(searched + 1)? {
                return Err(self.truncated("a line of text"));
            }
        }
    }

    pub fn truncated(&self, within: &str) -> Error {
        Error::Truncated { at: self.base + self.end as u64, within: within.to_owned() }
    }
}

/// Readers of this crate wrap their own errors into [`std::io::Error`]; this unwraps them.
pub fn unwrap_io(error: std::io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(inner) => inner,
        Err(error) => Error::Io(error),
    }
}
