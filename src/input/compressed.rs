//! Compressed input: recognised by content, decompressed on a thread of its own.

use super::limits::Limits;
use crate::error::{Error, Result};
use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How an input is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// A zip archive with one file in it.
    Zip,
}

impl Compression {
    /// Recognises a container by its first bytes.
    pub fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [b'P', b'K', 3, 4, ..] => Self::Zip,
            _ => Self::None,
        }
    }

    /// The name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Zip => "zip",
        }
    }
}

/// Bytes handed over at a time.
const CHUNK: usize = 256 << 10;
/// Chunks that may wait between the two threads.
const QUEUE: usize = 4;

/// A reader of the decompressed bytes of `reader`.
///
/// Decompression runs on its own thread, so that it overlaps with decoding. The thread ends when the reader is
/// dropped. An archive in zip format is read into memory first, since its index is at the end.
pub fn decompress(reader: Box<dyn Read + Send>, compression: Compression, limits: Limits) -> Box<dyn Read + Send> {
    if compression == Compression::None {
        return reader;
    }
    let (sender, receiver) = sync_channel(QUEUE);
    std::thread::spawn(move || {
        let mut pump = Pump { sender, format: compression.name(), limits, sent: 0 };
        if let Err(error) = pump.run(reader, compression) {
            // Nobody listens any more when the reader was dropped; then there is nobody to tell.
            let _ = pump.sender.send(Err(error));
        }
    });
    Box::new(Chunks { receiver, chunk: Vec::new(), start: 0 })
}

/// A reader of the same bytes that are read ahead on a thread of their own, unless that is so already.
pub fn ahead(mut reader: Box<dyn Read + Send>, compression: Compression) -> Box<dyn Read + Send> {
    if compression != Compression::None {
        return reader;
    }
    let (sender, receiver) = sync_channel(QUEUE);
    std::thread::spawn(move || {
        loop {
            let mut chunk = vec![0; CHUNK];
            let next = match reader.read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => {
                    chunk.truncate(length);
                    Ok(chunk)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(Error::Io(error)),
            };
            let failed = next.is_err();
            // Nobody listens any more when the reader was dropped.
            if sender.send(next).is_err() || failed {
                return;
            }
        }
    });
    Box::new(Chunks { receiver, chunk: Vec::new(), start: 0 })
}

struct Pump {
    sender: SyncSender<Result<Vec<u8>>>,
    format: &'static str,
    limits: Limits,
    sent: u64,
}

impl Pump {
    fn run(&mut self, reader: Box<dyn Read + Send>, compression: Compression) -> Result<()> {
        let counted = Counted { reader, count: 0 };
        match compression {
            Compression::Gzip => self.copy(flate2::read::MultiGzDecoder::new(counted), |gzip| gzip.get_ref().count),
            Compression::Zstd => {
                let decoder = zstd::Decoder::new(counted).map_err(|error| self.damaged(&error))?;
                self.copy(decoder, |zstd| zstd.get_ref().get_ref().count)
            }
            Compression::Zip => {
                let mut bytes = Vec::new();
                let mut counted = counted;
                counted.read_to_end(&mut bytes)?;
                let length = bytes.len() as u64;
                let mut archive =
                    zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| self.damaged(&io::Error::other(error)))?;
                let index = self.only_file(&mut archive)?;
                let file = archive.by_index(index).map_err(|error| self.damaged(&io::Error::other(error)))?;
                self.copy(file, |_| length)
            }
            Compression::None => self.copy(counted, |plain| plain.count),
        }
    }

    /// The index of the archive's one file.
    fn only_file<R: Read + io::Seek>(&self, archive: &mut zip::ZipArchive<R>) -> Result<usize> {
        let mut found = None;
        for index in 0..archive.len() {
            let file = archive.by_index(index).map_err(|error| self.damaged(&io::Error::other(error)))?;
            if file.is_file() && found.replace(index).is_some() {
                return Err(Error::NotASnapshot(
                    "expected a zip archive with one file in it, found several".to_owned(),
                ));
            }
        }
        found.ok_or_else(|| Error::NotASnapshot("expected a zip archive with one file in it, found none".to_owned()))
    }

    fn copy<R: Read>(&mut self, mut decoder: R, read_so_far: impl Fn(&R) -> u64) -> Result<()> {
        loop {
            let mut chunk = vec![0; CHUNK];
            let mut length = 0;
            while length < CHUNK {
                match decoder.read(&mut chunk[length..]) {
                    Ok(0) => break,
                    Ok(count) => length += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        // What was decoded before the damage is still good for --allow-truncated.
                        chunk.truncate(length);
                        self.sent += length as u64;
                        let _ = self.sender.send(Ok(chunk));
                        return Err(match error.kind() {
                            io::ErrorKind::UnexpectedEof => {
                                Error::Truncated { at: self.sent, within: format!("{} data", self.format) }
                            }
                            _ => self.damaged(&error),
                        });
                    }
                }
            }
            chunk.truncate(length);
            self.sent += length as u64;
            let allowed = read_so_far(&decoder).saturating_mul(self.limits.expansion);
            if self.sent > allowed.saturating_add(self.limits.base_memory) {
                let times = self.limits.expansion;
                let message = format!("{} data expands to more than {times} times its size", self.format);
                return Err(Error::Limit { at: self.sent, message });
            }
            if length == 0 || self.sender.send(Ok(chunk)).is_err() {
                return Ok(());
            }
        }
    }

    fn damaged(&self, error: &io::Error) -> Error {
        Error::Compression { format: self.format, at: self.sent, message: error.to_string() }
    }
}

/// Counts the bytes read through it.
struct Counted<R> {
    reader: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.count += count as u64;
        Ok(count)
    }
}

/// The receiving end: chunks as a reader.
struct Chunks {
    receiver: Receiver<Result<Vec<u8>>>,
    chunk: Vec<u8>,
    start: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.start == self.chunk.len() {
            match self.receiver.recv() {
                Ok(Ok(chunk)) => {
                    self.chunk = chunk;
                    self.start = 0;
                }
                Ok(Err(error)) => return Err(io::Error::other(error)),
                // The other end is done.
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len() - self.start);
        buffer[..count].copy_from_slice(&self.chunk[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}
