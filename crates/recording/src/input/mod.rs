//! From bytes on disk to the model.
//!
//! In: a path or a byte stream, plain or compressed, from any source. Out: a [`Snapshot`], a [`Profile`] or a
//! [`MemoryTimeline`], or an error that says what was expected, what was found and where. Nothing in a file is ever executed.

#[cfg(all(test, feature = "compressed"))]
mod agreement;
pub mod alloc_conf;
pub mod collect;
mod compressed;
#[cfg(feature = "compressed")]
mod decoders;
pub mod device_file;
mod foreign;
mod html;
mod json;
mod limits;
#[cfg(feature = "nsys")]
pub mod nsys;
pub mod paths;
mod pickle;
mod pprof;
mod snapshot;
#[cfg(feature = "nsys")]
mod sqlite;
pub mod trace_beside;
mod window;
#[cfg(all(feature = "compressed", any(test, target_family = "wasm")))]
mod zstd_frames;

pub use compressed::Compression;
pub use json::devices::TracedGpu;
pub use limits::Limits;
#[doc(hidden)]
pub use window::unwrap_io;

use crate::error::{Error, Result};
use crate::model::trace_entry::TraceEntry;
use crate::model::{LiveProfile, MemoryTimeline, Profile, Snapshot, TraceEntries, View};
#[cfg(feature = "compressed")]
use decoders::decompress;
use pickle::decoded::DecodedPickle;
use pickle::findings::{Batch, Rows};
use pickle::machine::{DecodeOptions, decode};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct ReadOptions {
        pub limits: Limits,
        /// Whether to analyze a file that was cut off, for example because its job was killed, up to the cut.
        pub allow_truncated: bool,
        /// Whether to read only on the calling thread, for callers that read several files at a time. Otherwise decompressing,
        /// decoding and replaying overlap, which is faster for a single file.
        pub on_one_thread: bool,
        /// Counts the bytes read from the file (compressed bytes, if it is compressed), for a progress bar.
        pub progress: Option<Arc<AtomicU64>>,
        /// How to present answers about the recording.
        pub view: View,
    }
}

#[derive(Clone, Debug)]
pub struct Input {
    pub snapshot: Snapshot,
    pub compression: Compression,
    /// Size of the file or stream in bytes, compressed if it is.
    pub bytes: u64,
}

/// Receives trace entries on a separate thread while the file is still being read.
///
/// Which device a list belongs to is known only at the end of the file, so an observer receives the rows of the entries, and
/// compares them with [`crate::model::DeviceTrace::rows`] later.
pub trait EntryObserver: Send {
    /// `entries` are consecutive in list `list` and become the rows from `first_row` on.
    fn observe(&mut self, list: u32, first_row: usize, entries: &[TraceEntry]);
}

/// The observer that ignores everything.
impl EntryObserver for () {
    fn observe(&mut self, _list: u32, _first_row: usize, _entries: &[TraceEntry]) {}
}

/// Reads the snapshot at `path`.
///
/// # Errors
/// If the file cannot be read, is not a snapshot, is damaged, or exceeds a limit.
pub fn read_path(path: &Path, options: &ReadOptions) -> Result<Input> {
    read_stream(open(path)?, options)
}

/// The GPUs in the profiler trace at `path`. Only the part of the trace before its events is read.
///
/// # Errors
/// If the file cannot be read or is not a trace with GPUs.
pub fn gpus_of_trace(path: &Path) -> Result<Vec<TracedGpu>> {
    let options = ReadOptions { on_one_thread: true, ..ReadOptions::default() };
    json::devices::read(Unpacked::new(open(path)?, &options)?.into_reader())
}

/// Opens a file for [`read_stream`] or [`read_observed`].
///
/// # Errors
/// If the file cannot be opened or is a directory.
pub fn open(path: &Path) -> Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(Error::NotASnapshot(
            "the path is a folder; to read all recordings in it, run memviz ranks".to_owned(),
        ));
    }
    Ok(file)
}

/// Reads a snapshot from a stream, such as standard input.
pub fn read_stream(stream: impl Read + Send + 'static, options: &ReadOptions) -> Result<Input> {
    read_observed(stream, options, ()).map(|(input, ())| input)
}

/// Like [`read_stream`], with an observer, which is returned at the end.
pub fn read_observed<O: EntryObserver + 'static>(
    stream: impl Read + Send + 'static,
    options: &ReadOptions,
    observer: O,
) -> Result<(Input, O)> {
    let AnyInput { contents, compression, bytes } = read_any(stream, options, observer)?;
    match contents {
        Contents::Snapshot(snapshot, observer) => Ok((Input { snapshot: *snapshot, compression, bytes }, observer)),
        Contents::Trace(_) => Err(Error::NotASnapshot("it is a profiler trace".to_owned())),
        Contents::Timeline(_) => Err(Error::NotASnapshot("it is a memory timeline".to_owned())),
        Contents::Live(_) => Err(Error::NotASnapshot("it is a device memory profile".to_owned())),
    }
}

/// An input of any family and how it was stored.
#[derive(Clone, Debug)]
pub struct AnyInput<O> {
    pub contents: Contents<O>,
    pub compression: Compression,
    /// Size of the file or stream in bytes, compressed if it is.
    pub bytes: u64,
}

/// The contents of a file, by family.
#[derive(Clone, Debug)]
pub enum Contents<O> {
    /// A snapshot, and the observer of its entries.
    Snapshot(Box<Snapshot>, O),
    Trace(Profile),
    Timeline(MemoryTimeline),
    /// The live buffers at one instant.
    Live(LiveProfile),
}

/// Reads an input of any family; the first byte after decompression distinguishes them.
///
/// # Errors
/// If the stream cannot be read, is of no known family, is damaged, or exceeds a limit.
pub fn read_any<O: EntryObserver + 'static>(
    stream: impl Read + Send + 'static,
    options: &ReadOptions,
    observer: O,
) -> Result<AnyInput<O>> {
    Unpacked::new(stream, options)?.read(options, observer)
}

#[cfg(not(feature = "compressed"))]
fn decompress(reader: Box<dyn Read + Send>, compression: Compression, _: Limits) -> Result<Box<dyn Read + Send>> {
    match compression {
        Compression::None => Ok(reader),
        other => Err(Error::NotASnapshot(format!(
            "expected an uncompressed file, since memviz was built without its compressed feature; found {}",
            other.name()
        ))),
    }
}

#[doc(hidden)]
pub fn unzstd(bytes: Vec<u8>, length: usize) -> Result<Vec<u8>> {
    let reader = decompress(Box::new(io::Cursor::new(bytes)), Compression::Zstd, Limits::default())?;
    let mut data = Vec::new();
    reader.take(length as u64).read_to_end(&mut data).map_err(window::unwrap_io)?;
    Ok(data)
}

/// An input whose compression and first bytes are known, but which was not read yet.
pub struct Unpacked {
    begin: Vec<u8>,
    reader: Box<dyn Read + Send>,
    compression: Compression,
    bytes: Arc<AtomicU64>,
}

impl Unpacked {
    /// Starts reading a stream.
    ///
    /// # Errors
    /// If the stream cannot be read, or its compression is damaged at the start.
    pub fn new(stream: impl Read + Send + 'static, options: &ReadOptions) -> Result<Self> {
        let bytes = options.progress.clone().unwrap_or_default();
        let mut stream = Progress { stream, bytes: Arc::clone(&bytes) };
        let mut head = Vec::with_capacity(4);
        Read::by_ref(&mut stream).take(4).read_to_end(&mut head)?;
        let compression = Compression::detect(&head);
        let whole = Box::new(io::Cursor::new(head).chain(stream));
        let mut reader = decompress(whole, compression, options.limits)?;
        if compression != Compression::None && !options.on_one_thread {
            reader = compressed::ahead(reader);
        }
        let begin = first_bytes(&mut reader)?;
        Ok(Self { begin, reader, compression, bytes })
    }

    pub fn begins_with_key(&self, key: &str) -> bool {
        let Some(object) = self.begin.trim_ascii_start().strip_prefix(b"{") else { return false };
        let quoted = object.trim_ascii_start().strip_prefix(b"\"").and_then(|name| name.strip_prefix(key.as_bytes()));
        quoted.is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// Describes the file and what to do, if memviz recognizes it but does not read it as a recording.
    #[doc(hidden)]
    pub fn described(&self) -> Option<String> {
        foreign::describe(&self.begin)
    }

    pub fn begins_with(&self, bytes: &[u8]) -> bool {
        self.begin.starts_with(bytes)
    }

    pub fn into_reader(self) -> Box<dyn Read + Send> {
        Box::new(io::Cursor::new(self.begin).chain(self.reader))
    }

    pub fn read<O: EntryObserver + 'static>(self, options: &ReadOptions, observer: O) -> Result<AnyInput<O>> {
        if let Some(what) = self.described() {
            return Err(Error::Foreign(what));
        }
        let is_pprof = pprof::begins(&self.begin);
        let is_json_snapshot = json::snapshot::begins(&self.begin);
        let first = self.begin.trim_ascii_start().first().copied().filter(|_| !is_pprof);
        let (compression, bytes) = (self.compression, Arc::clone(&self.bytes));
        let mut reader = self.into_reader();
        let contents = match first {
            _ if is_pprof => Contents::Live(pprof::read(reader)?),
            Some(b'{' | b'[') if is_json_snapshot => {
                let mut pickle = json::snapshot::JsonPickle::new(reader);
                let (mut snapshot, observer) = read_pickle(&mut pickle, compression, options, observer)?;
                snapshot.notes.protocol = None;
                Contents::Snapshot(Box::new(snapshot), observer)
            }
            Some(b'{' | b'[') => match json::read(reader, options)? {
                json::Json::Trace(profile) => Contents::Trace(profile),
                json::Json::Timeline(timeline) => Contents::Timeline(timeline),
            },
            Some(b'<') => {
                let mut page = html::PageReader::new(reader);
                let (mut snapshot, observer) = read_pickle(&mut page, compression, options, observer)?;
                snapshot.notes.in_page = !page.is_own();
                if snapshot.notes.truncated_at.is_none() {
                    html::check_rest(&mut page)?;
                }
                Contents::Snapshot(Box::new(snapshot), observer)
            }
            _ => {
                let (snapshot, observer) = read_pickle(&mut reader, compression, options, observer)?;
                Contents::Snapshot(Box::new(snapshot), observer)
            }
        };
        Ok(AnyInput { contents, compression, bytes: bytes.load(Ordering::Relaxed) })
    }
}

/// White space that may precede JSON, and a few bytes after it: enough to recognize a first key.
fn first_bytes(reader: &mut impl Read) -> Result<Vec<u8>> {
    const BLANKS: usize = 1024;
    const KEY: u64 = 64;
    let mut begin = Vec::new();
    while begin.len() < BLANKS && begin.trim_ascii_start().is_empty() {
        let before = begin.len();
        reader.by_ref().take(KEY).read_to_end(&mut begin).map_err(window::unwrap_io)?;
        if begin.len() == before {
            break;
        }
    }
    Ok(begin)
}

/// Decoding and filling the columns run on two threads. For a million entries, that takes 47 ms instead of 68, mostly because
/// page faults of the columns (33 MB) no longer delay the decoder.
fn read_pickle<O: EntryObserver + 'static>(
    reader: &mut impl Read,
    compression: Compression,
    options: &ReadOptions,
    observer: O,
) -> Result<(Snapshot, O)> {
    let (decoded, columns) = if options.on_one_thread {
        decode_alone(reader, options, observer)
    } else {
        decode_by_two(reader, options, observer)
    };
    let Columns { entries, observer } = columns?;
    let mut decoded = decoded?;
    if decoded.cut.is_none() {
        // For a compressed file, read everything, since the checksum is at the end.
        let rest = if compression == Compression::None { 1 } else { u64::MAX };
        let rest = match decoded.failed_behind.take() {
            Some(error) => Err(error),
            None => io::copy(&mut reader.take(rest), &mut io::sink()).map_err(window::unwrap_io),
        };
        match rest {
            // The recording is complete, but the part that verifies it, or shows that nothing follows, is missing.
            Err(Error::Truncated { at, .. }) if options.allow_truncated => decoded.cut_behind = Some(at),
            result => decoded.followed |= result? > 0,
        }
    }
    let snapshot = snapshot::assemble(decoded, entries)?;
    Ok((snapshot, observer))
}

struct Columns<O> {
    entries: TraceEntries,
    observer: O,
}

impl<O: EntryObserver> Columns<O> {
    fn take(&mut self, batch: &Batch) {
        let mut first_row = self.entries.len();
        for (list, entries) in batch.runs() {
            self.observer.observe(list, first_row, entries);
            first_row += entries.len();
        }
        self.entries.extend(&batch.entries);
    }
}

/// Fills the columns on a second thread.
fn decode_by_two<O: EntryObserver + 'static>(
    reader: &mut impl Read,
    options: &ReadOptions,
    observer: O,
) -> (Result<DecodedPickle>, Result<Columns<O>>) {
    let (sender, batches) = sync_channel::<Batch>(BATCHES_WAITING);
    let (giver_back, used) = channel::<Batch>();
    let mut columns = Columns { entries: TraceEntries::default(), observer };
    let filling = std::thread::spawn(move || {
        for batch in batches {
            columns.take(&batch);
            // Nobody receives it once decoding is over.
            let _ = giver_back.send(batch);
        }
        columns
    });
    let rows = Rows::emitting(move |batch| {
        // The other thread receives batches until this end is dropped.
        let _ = sender.send(batch);
        used.try_recv().unwrap_or_default()
    });
    let decoded = decode_rows(reader, options, rows);
    (decoded, filling.join().map_err(|_| Error::Request("the column thread failed".to_owned())))
}

/// Fills the columns whenever a batch is full, on the same thread.
fn decode_alone<O: EntryObserver + 'static>(
    reader: &mut impl Read,
    options: &ReadOptions,
    observer: O,
) -> (Result<DecodedPickle>, Result<Columns<O>>) {
    let columns = Arc::new(Mutex::new(Columns { entries: TraceEntries::default(), observer }));
    let filled = Arc::clone(&columns);
    let rows = Rows::emitting(move |batch| {
        if let Ok(mut columns) = filled.lock() {
            columns.take(&batch);
        }
        batch
    });
    let decoded = decode_rows(reader, options, rows);
    let columns = Arc::into_inner(columns).and_then(|columns| columns.into_inner().ok());
    (decoded, columns.ok_or_else(|| Error::Request("the columns are still in use".to_owned())))
}

/// Decodes, and drops the row numbers.
fn decode_rows(reader: &mut impl Read, options: &ReadOptions, rows: Rows) -> Result<DecodedPickle> {
    let options = DecodeOptions { limits: options.limits, recognize: true, allow_truncated: options.allow_truncated };
    decode(reader, options, rows).map(|mut decoded| {
        decoded.findings.rows = Rows::default();
        decoded
    })
}

/// The most batches that may wait between decoder and columns.
const BATCHES_WAITING: usize = 16;

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
