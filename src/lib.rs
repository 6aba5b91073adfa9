//! Exact analysis of PyTorch GPU memory recordings.
//!
//! `torch.cuda.memory._dump_snapshot` writes what the caching allocator did. memviz reads that file without executing it,
//! replays the allocator, and answers with numbers equal to `torch.cuda.memory_stats()` to the byte. Files that
//! `torch.profiler` exports (`export_chrome_trace` with `profile_memory=True`, `export_memory_timeline`) are converted to the
//! same model, so every analysis works on them.
//!
//! # Where to start
//!
//! Open a [`Recording`]: each question is a method, with options that have defaults.
//!
#![cfg_attr(feature = "compressed", doc = "```")]
#![cfg_attr(not(feature = "compressed"), doc = "```no_run")]
//! use memviz::analysis::peak::PeakOptions;
//! use memviz::{Bytes, GroupBy, Recording};
//!
//! # fn main() -> memviz::Result<()> {
//! let path = "fixtures/snapshots/tiny/snapshot.pickle.gz";
//! let recording = Recording::open(path.as_ref(), &Default::default())?;
//! let report = recording.peak(&PeakOptions::default().by(GroupBy::Site).top(Some(10)))?;
//! for device in &report.devices {
//!     println!("device {} peaks at {} bytes", device.device, device.at.allocated);
//!     for row in &device.attribution.rows {
//!         println!("{:>12} {}", Bytes(row.bytes), row.label);
//!     }
//! }
//! # assert_eq!(report.devices[0].at.allocated, 13_787_136);
//! # Ok(())
//! # }
//! ```
//!
//! | question | method | answer |
//! |---|---|---|
//! | What is most important, and what should be looked at next? | [`Recording::triage`] | [`analysis::triage::TriageReport`] |
//! | What is in the file? | [`Recording::info`] | [`analysis::info::InfoReport`] |
//! | When does memory peak, and which lines of code hold it? | [`Recording::peak`] | [`analysis::peak::PeakReport`] |
//! | How does memory change over time? | [`Recording::timeline`] | [`analysis::timeline::TimelineReport`] |
//! | Which stacks hold memory? | [`Recording::flame`] | [`analysis::flame::FlameReport`] |
//! | How much reserved memory is inactive, and why? | [`Recording::fragmentation`] | [`analysis::fragmentation::FragmentationReport`] |
//! | Why did a request fail? | [`Recording::oom`] | [`analysis::oom::OomReport`] |
//! | Which changes to the source code fix known mistakes? | [`Recording::fix`] | [`analysis::fix::FixReport`] |
//! | What grows from step to step? | [`Recording::leaks`] | [`analysis::leaks::LeakReport`] |
//! | What else uses the device? | [`Recording::ledger`] | [`analysis::ledger::LedgerReport`] |
//! | Which libraries allocated on the device, according to Nsight Systems? | `input::nsys::read` | `analysis::nsys::NsysReport` |
//! | What would activation checkpointing save? | [`Recording::checkpoint`] | [`analysis::checkpoint::CheckpointReport`] |
//! | What does another batch size need, and what is the largest that fits? | [`analysis::fit::FitReport::of`] | [`analysis::fit::FitReport`] |
//! | Does a run stay within its budget? | [`Recording::check`] | [`analysis::check::CheckReport`] |
//! | What differs between two runs? | [`Recording::diff_input`] of each | [`analysis::diff::DiffReport`] |
//! | Which rank differs from the others? | [`ranks::RankInputs::summarize`] | [`analysis::ranks::RanksReport`] |
//!
//! Bytes are exact integers, marked as a bound, or missing. All errors have the type [`Error`], and are one line each. The
//! library neither prints nor exits, and no thread outlives a call.
//!
//! # Modules
//!
//! [`analysis`] has the options and the result of each question, and [`ranks`] those of questions about many recordings. An
//! `Answer` writes a result as text, JSON, CSV or Markdown. [`input`], [`model`], [`allocator`] and [`replay`] are the crate
//! `memviz-recording`, for programs that need the histories and no analysis. The modules without documentation are for the
//! binary, its page and its tests: they change without notice.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `compressed` | recordings compressed with gzip, zstd or zip |
//! | `config` | budgets from a `memviz.toml`: `analysis::check::config` |
//! | `report` | answers as text, Markdown, CSV and JSON, and the schema of that JSON: `Answer` |
//! | `plot` | pictures, and the report made of them; with `report` |
//! | `export` (default) | files for other programs; with `report` |
//! | `firefox`, `parquet`, `perfetto`, `pprof`, `speedscope` (default) | a format of these files each; with `export` |
//! | `cli` (default) | the binary, and all of the above |
//! | `view` (default) | the page that `memviz view` writes; with `plot` and `compressed` |
//! | `nsys` (default) | profiles of Nsight Systems: `input::nsys`, `analysis::nsys` |
//! | `mcp` | `memviz mcp`, in the binary; with `cli` |
//!
//! With `default-features = false`, the library contains the reader of uncompressed files, the replay and every analysis.

#![cfg_attr(not(feature = "cli"), allow(dead_code, unused_imports, reason = "only the binary uses it"))]

#[macro_use(names, options)]
extern crate memviz_recording;

pub mod analysis;
#[doc(hidden)]
pub mod facts;
pub mod ranks;
mod recording;
#[cfg(feature = "report")]
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod simulation;
#[doc(hidden)]
pub mod wire;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

pub use facts::grouping::{GroupBy, filter::Filter};
pub use facts::time::when::When;
pub use input::ReadOptions;
pub use memviz_recording::{Error, Result, allocator, error, input, model, replay};
use memviz_recording::{parallel, sorting};
pub use model::bytes::Bytes;
pub use recording::Recording;
pub use replay::Metric;
#[cfg(feature = "report")]
pub use report::{Answer, AnswerFormat, Rows, Source, Sources, TextStyle};

/// Compiles the program in the book's page about the library.
#[cfg(doctest)]
#[doc = include_str!("../docs/src/library.md")]
struct Page;
