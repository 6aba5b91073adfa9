//! From one recording to its answer: code that commands with a single input share.

use super::args::{CommonArgs, SharedArgs};
use super::limits;
use super::output;
use super::progress::Progress;
use crate::Recording;
use crate::cli::outcome::{Failure, Outcome, complain};
use crate::input::{ReadOptions, device_file, trace_beside};
use crate::model::{DeviceFile, View};
use crate::ranks::MAX_THREADS;
use crate::report::{Answer, AnswerFormat, Rows, Source, TextStyle};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A computed answer, and how to write it.
pub struct Reply {
    outcome: Outcome,
    warnings: Vec<String>,
    write: WriteReply,
}

type WriteReply = Box<dyn FnOnce(Source<'_>, &mut dyn Write) -> io::Result<()>>;

impl Reply {
    /// A reply with a function that writes it.
    pub fn new(write: impl FnOnce(Source<'_>, &mut dyn Write) -> io::Result<()> + 'static) -> Self {
        Self { outcome: Outcome::Done, warnings: Vec::new(), write: Box::new(write) }
    }

    pub fn rows<A>(answer: A, format: AnswerFormat, style: TextStyle) -> Self
    where
        A: Rows + for<'a> Answer<About<'a> = Source<'a>> + 'static,
    {
        Self::new(move |source, out| format.write(&answer, source, style, out))
    }

    /// The same for an answer that has nothing of what was asked for.
    pub fn failed(self, has_nothing: bool) -> Self {
        Self { outcome: if has_nothing { Outcome::CheckFailed } else { self.outcome }, ..self }
    }

    /// The same, with lines for standard error, unless quiet.
    pub fn warning(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }
}

/// Reads the input, computes the reply, writes it, and determines the outcome.
pub fn with_recording(
    args: &CommonArgs,
    reply: impl FnOnce(&Recording) -> crate::Result<Reply>,
) -> Result<Outcome, Failure> {
    with_view(args, args.view_of_one(), reply)
}

/// The same, presented in another way.
pub fn with_view(
    args: &CommonArgs,
    view: View,
    reply: impl FnOnce(&Recording) -> crate::Result<Reply>,
) -> Result<Outcome, Failure> {
    output::check_target(args, &[&args.input])?;
    use_threads(args);
    let path = args.path();
    // The process ends soon, which releases memory faster than unmapping it here: 2% of the time of `memviz peak`.
    let recording = ManuallyDrop::new(read(args, view).map_err(|error| Failure::about(&path, &error))?);
    let reply = reply(&recording).map_err(|error| Failure::about(&path, &error))?;
    if !args.quiet {
        for warning in &reply.warnings {
            complain(&format!("{path}: {warning}"));
        }
    }
    let source = Source { path: &path, recording: &recording };
    output::write(args, |out| (reply.write)(source, out))?;
    if args.strict && recording.anomalies() > 0 {
        return Ok(Outcome::CheckFailed);
    }
    Ok(reply.outcome)
}

/// Sets the number of threads from the option or from `RAYON_NUM_THREADS`, up to [`MAX_THREADS`]: it affects only the time.
pub fn use_threads(args: &SharedArgs) {
    let variable = || std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok();
    let Some(threads) = args.threads.map(usize::from).or_else(variable).filter(|&threads| threads > 0) else { return };
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads);
    // This fails if the system has no more threads; the current thread is then used.
    if pool(threads.min(MAX_THREADS)).build_global().is_err() {
        let _ = pool(1).use_current_thread().build_global();
    }
}

/// Device samples next to the recording. If that file cannot be read, memviz warns and still answers.
fn device_file(path: &Path, quiet: bool) -> Option<DeviceFile> {
    device_file::beside(path).unwrap_or_else(|error| {
        if !quiet {
            complain(&error.to_string());
        }
        None
    })
}

fn read(args: &CommonArgs, view: View) -> crate::Result<Recording> {
    let progress = Progress::start(size_of_file(&args.input), 1, args.quiet);
    open(&args.input, args, view, progress.bytes.first())
}

/// Bytes of an input; 0 for standard input, or if unknown.
pub fn size_of_file(path: &Path) -> u64 {
    if path.as_os_str() == "-" { 0 } else { std::fs::metadata(path).map_or(0, |metadata| metadata.len()) }
}

pub fn read_quietly(path: &Path, allow_truncated: bool) -> crate::Result<Recording> {
    limits::grant(size_of_file(path));
    Recording::open(path, &ReadOptions::default().allow_truncated(allow_truncated))
}

/// Reads an input (`-` is standard input) and counts its bytes. Also reads data about the whole device from files next to it:
/// samples, or the head of the profiler trace of the same run.
pub fn open(path: &Path, args: &SharedArgs, view: View, bytes: Option<&Arc<AtomicU64>>) -> crate::Result<Recording> {
    let options = args.read_options(view).progress(bytes.cloned());
    limits::grant(size_of_file(path));
    if path.as_os_str() == "-" {
        return Recording::read(io::stdin(), &options);
    }
    let mut recording = Recording::open(path, &options)?;
    recording.device_file = device_file(path, args.quiet);
    let notes = &mut recording.snapshot.notes;
    let is_known = !notes.device_memory.is_empty() || recording.device_file.is_some();
    if notes.format.has_segments()
        && !is_known
        && let Some((trace, memory)) = trace_beside::memory_beside(path)
    {
        (notes.device_memory, notes.device_memory_from) = (memory, Some(trace));
    }
    Ok(recording)
}
