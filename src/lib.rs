//! Exact analysis of PyTorch GPU memory recordings.
//!
//! `torch.cuda.memory._dump_snapshot` writes what the caching allocator did. memviz reads that file without executing
//! it, replays the allocator, and answers with numbers equal to `torch.cuda.memory_stats()` to the byte. What
//! `torch.profiler` exports (`export_chrome_trace` with `profile_memory=True`, `export_memory_timeline`) takes the same
//! form, so that every analysis works on it.
//!
//! ```
//! use memviz::Recording;
//! use memviz::analysis::PeakOptions;
//! use memviz::model::bytes::Bytes;
//!
//! # fn main() -> memviz::Result<()> {
//! let path = "fixtures/snapshots/tiny/snapshot.pickle.gz";
//! let recording = Recording::open(path.as_ref(), &Default::default())?;
//! let report = recording.peak(&PeakOptions::default())?;
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
//! Data flows one way, a module per stage, each reading only the ones before it: [`input`] fills [`model`], [`replay`]
//! turns it into histories by the rules of the [`allocator`], [`analysis`] into answers, [`report`] into text.
//! [`Recording`] ties all but the last together. The library neither prints nor exits.

pub mod allocator;
pub mod analysis;
pub mod error;
pub mod input;
pub mod model;
pub mod ranks;
pub mod recording;
pub mod replay;
pub mod report;
pub mod wire;

#[cfg(feature = "cli")]
pub mod cli;

pub use error::{Error, Result};
pub use recording::Recording;

/// Compiles the program of the book's page about the library.
#[cfg(doctest)]
#[doc = include_str!("../docs/src/library.md")]
struct Page;
