//! Summarizes many recordings in parallel.
//!
//! Each thread reads a file, reduces it to its summary and releases it before it takes the next one, so there are never more
//! recordings in memory than threads. With any number of threads, summaries arrive in the order of the inputs, each as soon
//! as it and all before it are done.

use crate::Recording;
use crate::analysis::ranks::{RankNumber, SummaryOptions, rank_numbers, summarize};
use crate::error::{Error, Result};
use crate::input::collect::{Found, collect};
use crate::input::{self, ReadOptions, Unpacked, device_file};
use crate::wire::rank_lines::read_lines;
use crate::wire::rank_table;
use crate::wire::ranks::{FailedInput, RankLine, SkippedInput};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// The maximum number of threads, even if more are requested: each thread uses memory before it does anything.
pub const MAX_THREADS: usize = 256;
/// The maximum size of a table of summaries, in bytes.
const LONGEST_TABLE: u64 = 1 << 30;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct RanksOptions {
        pub summary: SummaryOptions,
        /// How files are read. If there are at least as many files as threads, one thread reads each file.
        pub read: ReadOptions,
        /// Name for standard input: rows show it, and the rank is taken from it.
        pub stdin_name: Option<String>,
        /// Number of files read at a time; one per core if `None`.
        pub threads: Option<NonZeroUsize>,
    }
}

#[derive(Clone, Debug)]
pub struct RankInputs {
    inputs: Vec<Input>,
}

#[derive(Clone, Debug)]
struct Input {
    found: Found,
    name: String,
    number: RankNumber,
}

impl Input {
    fn is_stdin(&self) -> bool {
        self.found.path.as_os_str() == "-"
    }

    fn failed(&self, error: &impl ToString) -> RankLine {
        // An error is one line, even if a name in it has line breaks.
        let error = error.to_string().lines().collect::<Vec<_>>().join(" ");
        RankLine::Failed(FailedInput { path: self.name.clone(), error })
    }
}

impl RankInputs {
    /// The files that `paths` name: see [`collect`]. `-` is standard input.
    pub fn of(paths: &[PathBuf], options: &RanksOptions) -> Self {
        let files = collect(paths);
        let name = |path: &Path| match (path.as_os_str() == "-", &options.stdin_name) {
            (true, Some(name)) => name.clone(),
            (true, None) => "<stdin>".to_owned(),
            (false, _) => path.display().to_string(),
        };
        let names: Vec<String> = files.iter().map(|found| name(&found.path)).collect();
        let numbers = rank_numbers(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let inputs = files.into_iter().zip(names).zip(numbers);
        Self { inputs: inputs.map(|((found, name), number)| Input { found, name, number }).collect() }
    }

    /// The files of the inputs; `-` for standard input.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.inputs.iter().map(|input| input.found.path.as_path())
    }

    /// Why there is nothing to read, if the only input is known not to be a recording before it is opened.
    pub fn problem(&self) -> Option<String> {
        let [input] = self.inputs.as_slice() else { return None };
        input.found.problem.as_ref().map(|problem| format!("{}: {problem}", input.name))
    }

    /// Size of all files in bytes, as far as known.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| size(&input.found.path)).sum()
    }

    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Summarizes every input and passes the lines to `each`, in order. For an input that cannot be analyzed, the line
    /// says so.
    ///
    /// # Errors
    /// The error that `each` returns; no further inputs are started.
    pub fn summarize(
        &self,
        options: &RanksOptions,
        mut each: impl FnMut(RankLine) -> io::Result<()>,
    ) -> io::Result<()> {
        let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let threads = options.threads.unwrap_or_else(cores).get().min(MAX_THREADS);
        let mut read = options.read.clone();
        read.on_one_thread = self.len() >= threads;
        let work = Work {
            inputs: &self.inputs,
            summary: &options.summary,
            progress: read.progress.take().unwrap_or_default(),
            read,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let (sender, done) = channel();
            for _ in 0..threads.min(self.len()) {
                let (work, sender) = (&work, sender.clone());
                scope.spawn(move || work.run(&sender));
            }
            drop(sender);
            let mut waiting = BTreeMap::new();
            let mut next = 0;
            for (index, lines) in done {
                waiting.insert(index, lines);
                while let Some(lines) = waiting.remove(&next) {
                    next += 1;
                    if let Err(error) = Vec::into_iter(lines).try_for_each(&mut each) {
                        work.stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            Ok(())
        })
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

struct Work<'a> {
    inputs: &'a [Input],
    summary: &'a SummaryOptions,
    read: ReadOptions,
    /// Bytes of the finished files.
    progress: std::sync::Arc<AtomicU64>,
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Work<'_> {
    /// Processes inputs until none is left.
    fn run(&self, done: &Sender<(usize, Vec<RankLine>)>) {
        // Analyses run on rayon. In a pool that consists only of this thread, they neither wait for analyses of other files
        // nor start them.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        let _pool = if self.read.on_one_thread { pool.build().ok() } else { None };
        while !self.stop.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(input) = self.inputs.get(index) else { return };
            let lines = self.lines(input);
            self.progress.fetch_add(size(&input.found.path), Ordering::Relaxed);
            if done.send((index, lines)).is_err() {
                return;
            }
        }
    }

    fn lines(&self, input: &Input) -> Vec<RankLine> {
        if let Some(problem) = &input.found.problem {
            return vec![input.failed(problem)];
        }
        let (mut lines, problem) = self.read(input).unwrap_or_else(|error| (Vec::new(), Some(error)));
        lines.extend(problem.map(|problem| match problem {
            // A file next to the recordings that was not named.
            Error::UnknownJson(_) if !input.found.is_named => {
                RankLine::Skipped(SkippedInput { path: input.name.clone() })
            }
            problem => input.failed(&problem),
        }));
        lines
    }

    /// The lines of a recording or of a file of summaries, and why such a file has no more lines.
    fn read(&self, input: &Input) -> Result<(Vec<RankLine>, Option<Error>)> {
        let unpacked = if input.is_stdin() {
            Unpacked::new(io::stdin(), &self.read)?
        } else {
            Unpacked::new(input::open(&input.found.path)?, &self.read)?
        };
        if unpacked.begins_with(rank_table::MAGIC) {
            let mut table = Vec::new();
            unpacked.into_reader().take(LONGEST_TABLE).read_to_end(&mut table).map_err(input::unwrap_io)?;
            let lines = rank_table::lines(&table)?;
            return Ok(read_lines(lines.as_slice(), self.summary.metric, &self.summary.devices));
        }
        if unpacked.begins_with_key("schema_version") {
            return Ok(read_lines(unpacked.into_reader(), self.summary.metric, &self.summary.devices));
        }
        let mut recording = Recording::unpacked(unpacked, &self.read)?;
        recording.require_history("ranks")?;
        let samples = if input.is_stdin() { Ok(None) } else { device_file::beside(&input.found.path) };
        let problem = samples.map(|samples| recording.device_file = samples).err();
        let lines = summarize(&input.name, input.number, &recording.devices(), self.summary)?;
        Ok((lines, problem))
    }
}
