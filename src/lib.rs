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
//! use memviz::Recording;
//! use memviz::analysis::peak::PeakOptions;
//! use memviz::facts::grouping::GroupBy;
//! use memviz::model::bytes::Bytes;
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
//! Data flows one way, with a module per stage; each stage uses only the ones before it: [`input`] fills [`model`],
//! [`replay`] converts it into histories by the rules of the [`allocator`], [`facts`] derives what several questions need,
//! [`play`] simulates other conditions, [`analysis`] converts both into answers, and `report` writes them as text, JSON, CSV,
//! Markdown and pictures. [`wire`] contains the JSON formats that memviz also reads. [`Recording`] combines all of these
//! except the last two. The first four are the crate `memviz-recording`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `compressed` | recordings compressed with gzip, zstd or zip |
//! | `config` | budgets from a `memviz.toml`: `analysis::check::config` |
//! | `report` | answers as text, Markdown, CSV and JSON, and the schema of that JSON: `report` |
//! | `plot` | pictures, and the report made of them; with `report` |
//! | `export` (default) | files for other programs: `report::export`; with `report` |
//! | `firefox`, `parquet`, `perfetto`, `pprof`, `speedscope` (default) | a format of these files each; with `export` |
//! | `cli` (default) | the binary, and all of the above |
//! | `view` (default) | the page that `memviz view` writes; with `plot` and `compressed` |
//! | `nsys` (default) | profiles of Nsight Systems: `input::nsys`, `analysis::nsys` |
//! | `mcp` | `memviz mcp`, in the binary; with `cli` |
//!
//! With `default-features = false`, the library contains the reader of uncompressed files, the replay and every analysis.

#[macro_use(setters)]
extern crate memviz_recording;

pub mod analysis;
pub mod facts;
pub mod play;
pub mod ranks;
pub mod recording;
#[cfg(feature = "report")]
pub mod report;
pub mod wire;

#[cfg(feature = "cli")]
pub mod cli;

pub use memviz_recording::{Error, Result, allocator, error, input, model, replay};
use memviz_recording::{parallel, sorting};
pub use recording::Recording;

/// Compiles the program in the book's page about the library.
#[cfg(doctest)]
#[doc = include_str!("../docs/src/library.md")]
struct Page;
