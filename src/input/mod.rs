//! Bytes on disk to the model.
//!
//! In: a path or a byte stream, plain or compressed, from anybody. Out: a [`Snapshot`], or an error that says what was
//! expected, what was found and where. Nothing in a file is ever executed.

mod compressed;
mod limits;
mod pickle;
mod snapshot;
mod window;

pub use compressed::Compression;
pub use limits::Limits;

use crate::error::{Error, Result};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Snapshot, TraceEntries};
use pickle::machine::{DecodeOptions, decode};
use pickle::recording::{Batch, Rows};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};

/// How to read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Bounds on what a file may cost.
    pub limits: Limits,
    /// Analyse a file that was cut off, as a killed job leaves it, up to the cut.
    pub allow_truncated: bool,
    /// Counts the bytes taken from the file (compressed ones, if it is compressed), for a progress bar.
    pub progress: Option<Arc<AtomicU64>>,
}

/// A snapshot and how it was stored.
#[derive(Clone, Debug)]
pub struct Input {
    /// What the file says.
    pub snapshot: Snapshot,
    /// How it was compressed.
    pub compression: Compression,
    /// Size of the file or stream in bytes, compressed if it is.
    pub bytes: u64,
}

/// Sees trace entries while the file is still being read, on a thread of its own.
///
/// What a list is for shows only at the end of the file, so an observer is told in which rows the entries end up, and
/// compares those with [`crate::model::DeviceTrace::rows`] later.
pub trait EntryObserver: Send {
    /// `entries` follow one another in list `list` and become the rows from `first_row` on.
    fn observe(&mut self, list: u32, first_row: usize, entries: &[TraceEntry]);
}

/// The observer that looks away.
impl EntryObserver for () {
    fn observe(&mut self, _list: u32, _first_row: usize, _entries: &[TraceEntry]) {}
}

/// Reads the snapshot at `path`.
///
/// # Errors
/// When the file cannot be read, is no snapshot, is damaged, or exceeds a limit.
pub fn read_path(path: &Path, options: &ReadOptions) -> Result<Input> {
    read_stream(open(path)?, options)
}

/// Opens a file for [`read_stream`] or [`read_observed`].
///
/// # Errors
/// When the file cannot be opened or is a directory.
pub fn open(path: &Path) -> Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(Error::NotASnapshot("the path is a directory".to_owned()));
    }
    Ok(file)
}

/// Reads a snapshot from a stream, such as standard input.
///
/// # Errors
/// As [`read_path`].
pub fn read_stream(stream: impl Read + Send + 'static, options: &ReadOptions) -> Result<Input> {
    read_observed(stream, options, ()).map(|(input, ())| input)
}

/// Like [`read_stream`], with an observer that is given back at the end.
///
/// Decoding and filling the columns run on two threads. On a million entries that takes 47 ms instead of 68, most of
/// it because page faults of the columns (33 MB) no longer hold up the decoder.
///
/// # Errors
/// As [`read_path`].
pub fn read_observed<O: EntryObserver + 'static>(
    stream: impl Read + Send + 'static,
    options: &ReadOptions,
    mut observer: O,
) -> Result<(Input, O)> {
    let bytes = options.progress.clone().unwrap_or_default();
    let mut stream = Progress { stream, bytes: Arc::clone(&bytes) };
    let mut head = Vec::with_capacity(4);
    Read::by_ref(&mut stream).take(4).read_to_end(&mut head)?;
    if matches!(head.first(), Some(b'{' | b'[')) {
        return Err(Error::NotASnapshot("it looks like JSON; profiler traces are not read yet".to_owned()));
    }
    let compression = Compression::detect(&head);
    let whole = Box::new(io::Cursor::new(head).chain(stream));
    let mut reader = compressed::decompress(whole, compression, options.limits);

    let (sender, batches) = sync_channel::<Batch>(BATCHES_WAITING);
    let (giver_back, used) = channel::<Batch>();
    let columns = std::thread::spawn(move || {
        let mut entries = TraceEntries::default();
        for batch in batches {
            observer.observe(batch.list, entries.len(), &batch.entries);
            entries.extend(&batch.entries);
            // Nobody wants it back once decoding is over.
            let _ = giver_back.send(batch);
        }
        (entries, observer)
    });
    let rows = Rows::emitting(move |batch| {
        // The other thread takes batches until this end hangs up.
        let _ = sender.send(batch);
        used.try_recv().unwrap_or_default()
    });
    let decode_options =
        DecodeOptions { limits: options.limits, recognise: true, allow_truncated: options.allow_truncated };
    let decoded = decode(&mut reader, decode_options, rows).map(|mut decoded| {
        // Hangs up on the column thread.
        decoded.recording.rows = Rows::default();
        decoded
    });
    let (entries, observer) = columns.join().map_err(|_| Error::Request("the column thread failed".to_owned()))?;
    let decoded = decoded?;
    if compression != Compression::None && decoded.cut.is_none() {
        // The checksum comes last.
        match io::copy(&mut reader, &mut io::sink()).map_err(window::unwrap_io) {
            Err(Error::Truncated { .. }) if options.allow_truncated => {}
            result => result.map(|_| ())?,
        }
    }
    let snapshot = snapshot::assemble(decoded, entries)?;
    Ok((Input { snapshot, compression, bytes: bytes.load(Ordering::Relaxed) }, observer))
}

/// Batches that may wait between decoder and columns.
const BATCHES_WAITING: usize = 16;

/// Counts bytes where another thread can see them.
struct Progress<R> {
    stream: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
