//! The pages of a database file, and which of them were used.

use super::MAGIC;
use crate::error::{Error, Result};
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Bytes of the header at the beginning of the first page.
pub(super) const HEADER: usize = 100;
/// Bytes read ahead: consecutive pages are usually requested in order.
const AHEAD: usize = 1 << 18;
/// Text in UTF-8.
const UTF_8: u32 = 1;

/// A database file as numbered pages of equal size; the first page is 1.
#[derive(Debug)]
pub(super) struct Pages<R> {
    file: BufReader<R>,
    position: u64,
    size: usize,
    /// Bytes of a page, without those at its end that are reserved for extensions.
    pub usable: usize,
    count: u32,
}

impl<R: Read + Seek> Pages<R> {
    pub(super) fn open(file: R) -> Result<Self> {
        let mut file = BufReader::with_capacity(AHEAD, file);
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut header = Vec::with_capacity(HEADER);
        file.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
        if header.is_empty() {
            return Err(Error::Empty);
        }
        if !header.starts_with(MAGIC) || header.len() < HEADER {
            return Err(Error::NotASnapshot("expected an SQLite database, found something else".to_owned()));
        }
        let size = match u16_at(&header, 16) {
            1 => 1 << 16,
            size => usize::from(size),
        };
        if !size.is_power_of_two() || size < 512 {
            return Err(Error::malformed(16, format!("expected a page size that is a power of two, found {size}")));
        }
        let usable = size - usize::from(header[20]);
        if usable < 480 {
            return Err(Error::malformed(
                20,
                format!("expected at least 480 bytes for data in a page, found {usable}"),
            ));
        }
        let encoding = u32_at(&header, 56);
        if encoding > UTF_8 {
            return Err(Error::malformed(56, "expected text in UTF-8, found UTF-16"));
        }
        let found = u32::try_from(length / size as u64).unwrap_or(u32::MAX);
        let (changed, counted_at) = (u32_at(&header, 24), u32_at(&header, 92));
        let told = Some(u32_at(&header, 28)).filter(|&told| told > 0 && changed == counted_at);
        if let Some(told) = told.filter(|&told| told > found) {
            let message = format!("expected {told} pages of {size} bytes, found {found}: the database is cut off");
            return Err(Error::malformed(length, message));
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(Self { file, position: 0, size, usable, count: told.unwrap_or(found) })
    }

    /// Reads a page, without the bytes at its end that are reserved for extensions.
    pub(super) fn read(&mut self, number: u32, into: &mut Vec<u8>) -> Result<()> {
        let start = self.start(number);
        let distance = start.cast_signed() - self.position.cast_signed();
        self.file.seek_relative(distance)?;
        into.clear();
        self.file.by_ref().take(self.usable as u64).read_to_end(into)?;
        self.position = start + into.len() as u64;
        if into.len() < self.usable {
            return Err(Error::malformed(self.position, format!("the file ends inside page {number}")));
        }
        Ok(())
    }

    pub(super) fn start(&self, number: u32) -> u64 {
        u64::from(number.saturating_sub(1)) * self.size as u64
    }

    /// No pages yet.
    pub(super) fn none_seen(&self) -> Seen {
        Seen { bits: vec![0; self.count as usize / 64 + 1], count: self.count }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.count) * self.size as u64
    }
}

#[derive(Debug)]
pub(super) struct Seen {
    bits: Vec<u64>,
    count: u32,
}

impl Seen {
    /// Assigns a page to a table; page `from` refers to it.
    pub(super) fn take(&mut self, number: u32, from: u32) -> Result<()> {
        let wrong = |what: &str| Error::NotASnapshot(format!("damaged SQLite database: page {from} refers to {what}"));
        if number == 0 || number > self.count {
            return Err(wrong(&format!("page {number} of {}", self.count)));
        }
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.bits[word] & bit != 0 {
            return Err(wrong(&format!("page {number}, which is already in use")));
        }
        self.bits[word] |= bit;
        Ok(())
    }
}

/// A number of two bytes; 0 past the end.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&bytes| u16::from_be_bytes(bytes))
}

/// A number of four bytes; 0 past the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&bytes| u32::from_be_bytes(bytes))
}
