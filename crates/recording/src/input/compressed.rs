//! Compressed input, recognized by content.

use super::window::unwrap_io;
use crate::error::Result;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

names! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Compression {
        /// Not at all.
        None = "plain",
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstd = "zstd",
        /// A zip archive that contains one file.
        Zip = "zip",
    }
}

impl Compression {
    /// Recognizes a compression by its first bytes.
    pub fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame, with which the files of some programs start.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [b'P', b'K', 3, 4, ..] => Self::Zip,
            _ => Self::None,
        }
    }
}

/// Bytes sent at a time.
const CHUNK: usize = 256 << 10;
/// Chunks that may wait between the two threads.
const QUEUE: usize = 4;

/// A reader of the same bytes that reads ahead on a separate thread. The thread ends when the reader is dropped.
pub fn ahead(reader: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    let (sender, chunks) = handover();
    std::thread::spawn(move || sender.send_all(reader));
    Box::new(chunks)
}

/// A sender and a receiver on two threads. A few buffers are reused, so that their pages are mapped only once.
pub fn handover() -> (ChunkSender, Chunks) {
    let (sender, receiver) = sync_channel(QUEUE);
    let (giver_back, used) = channel();
    (ChunkSender { sender, used }, Chunks { receiver, giver_back, chunk: Vec::new(), start: 0 })
}

/// The sending end.
pub struct ChunkSender {
    sender: SyncSender<Result<Vec<u8>>>,
    used: Receiver<Vec<u8>>,
}

impl ChunkSender {
    /// Sends one result. If the reader was dropped, nobody receives it, and the error does not matter.
    #[cfg(all(feature = "compressed", not(target_family = "wasm")))]
    pub fn send(&self, chunk: Result<Vec<u8>>) {
        let _ = self.sender.send(chunk);
    }

    /// Sends what `reader` returns until it ends or fails, or the receiver is gone.
    pub fn send_all(&self, mut reader: impl Read) {
        loop {
            let mut chunk = self.used.try_recv().unwrap_or_default();
            chunk.resize(CHUNK, 0);
            let next = match reader.read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => {
                    chunk.truncate(length);
                    Ok(chunk)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(unwrap_io(error)),
            };
            let failed = next.is_err();
            if self.sender.send(next).is_err() || failed {
                return;
            }
        }
    }
}

/// The receiving end: chunks as a reader.
pub struct Chunks {
    receiver: Receiver<Result<Vec<u8>>>,
    giver_back: Sender<Vec<u8>>,
    chunk: Vec<u8>,
    start: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.start == self.chunk.len() {
            match self.receiver.recv() {
                Ok(Ok(chunk)) => {
                    // Nobody receives it once everything is read.
                    let _ = self.giver_back.send(std::mem::replace(&mut self.chunk, chunk));
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
