//! A short file per command, and what they share.

pub mod check;
pub mod checkpoint;
pub mod diff;
pub mod flamegraph;
pub mod fragmentation;
pub mod info;
pub mod leaks;
pub mod oom;
pub mod peak;
pub mod ranks;
pub mod report;
pub mod schema;
pub mod timeline;

use super::args::{CommonArgs, FormatArg, SharedArgs};
use super::progress::Progress;
use super::{Failure, Outcome, output};
use crate::Recording;
use crate::input::ReadOptions;
use crate::model::View;
use crate::ranks::MAX_THREADS;
use crate::report::Source;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Whether the answer is for people, who want the largest rows, or for machines, which want all.
fn for_people(format: FormatArg) -> bool {
    matches!(format, FormatArg::Text | FormatArg::Markdown)
}

/// Reads the input, lets `answer` work and write, and settles the outcome.
fn with_recording(
    args: &CommonArgs,
    answer: impl FnOnce(&Recording) -> crate::Result<Answer>,
) -> Result<Outcome, Failure> {
    with_folded(args, false, answer)
}

/// The same, with the stacks of the answer shortened for people.
fn with_folded(
    args: &CommonArgs,
    fold: bool,
    answer: impl FnOnce(&Recording) -> crate::Result<Answer>,
) -> Result<Outcome, Failure> {
    output::check_target(args, &[&args.input])?;
    use_threads(args);
    let path = args.path();
    let view = View { fold, ..args.view_of_one() };
    let recording = read(args, view).map_err(|error| Failure::about(&path, &error))?;
    let answer = answer(&recording).map_err(|error| Failure::about(&path, &error))?;
    if !args.quiet {
        for warning in &answer.warnings {
            super::complain(&format!("{path}: {warning}"));
        }
    }
    let source = Source { path: &path, recording: &recording };
    output::write(args, |out| (answer.write)(source, out))?;
    if args.strict && recording.anomalies() > 0 {
        return Ok(Outcome::CheckFailed);
    }
    Ok(Outcome::Done)
}

/// What a command has worked out, and how to write it.
struct Answer {
    warnings: Vec<String>,
    write: WriteAnswer,
}

type WriteAnswer = Box<dyn FnOnce(Source<'_>, &mut dyn Write) -> io::Result<()>>;

/// Sets the number of threads that was asked for, by flag or by `RAYON_NUM_THREADS`, up to [`MAX_THREADS`]: nothing but
/// the time depends on it.
fn use_threads(args: &SharedArgs) {
    let variable = || std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok();
    let Some(threads) = args.threads.map(usize::from).or_else(variable).filter(|&threads| threads > 0) else { return };
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads);
    // Fails when the system gives no more threads, and then there is always this one.
    if pool(threads.min(MAX_THREADS)).build_global().is_err() {
        let _ = pool(1).use_current_thread().build_global();
    }
}

fn read(args: &CommonArgs, view: View) -> crate::Result<Recording> {
    let size = if args.is_stdin() { 0 } else { std::fs::metadata(&args.input).map_or(0, |metadata| metadata.len()) };
    let progress = Progress::start(size, 1, args.quiet);
    open(&args.input, args, view, progress.bytes.first())
}

/// Reads a file without a progress bar.
pub(super) fn read_quietly(path: &Path, allow_truncated: bool) -> crate::Result<Recording> {
    Recording::open(path, &ReadOptions { allow_truncated, ..ReadOptions::default() })
}

/// Reads an input, standard input for `-`, and counts its bytes.
fn open(path: &Path, args: &SharedArgs, view: View, bytes: Option<&Arc<AtomicU64>>) -> crate::Result<Recording> {
    let options =
        ReadOptions { allow_truncated: args.allow_truncated, progress: bytes.cloned(), view, ..ReadOptions::default() };
    if path.as_os_str() == "-" { Recording::read(io::stdin(), &options) } else { Recording::open(path, &options) }
}
