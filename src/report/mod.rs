//! Writes answers on any writer.
//!
//! In: results of [`crate::analysis`] and their [`Source`]. Out: text for people, JSON, CSV or Markdown. There is a
//! folder for each command: a [`Document`], which is text and Markdown, and a file for each other format. [`Answer`]
//! defines the formats; a program may add its own (`examples/custom_report.rs`).

pub(crate) mod blocks;
#[cfg(feature = "mcp")]
pub(crate) mod bounded;
pub mod check;
pub mod checkpoint;
mod common;
pub mod diff;
#[cfg(feature = "export")]
pub mod export;
pub(crate) mod fit;
pub(crate) mod fix;
pub mod flamegraph;
pub mod fragmentation;
pub mod info;
pub(crate) mod leaks;
pub(crate) mod ledger;
#[cfg(feature = "nsys")]
pub(crate) mod nsys;
pub(crate) mod oom;
#[cfg(feature = "plot")]
pub mod page;
pub mod peak;
pub(crate) mod ranks;
pub(crate) mod schema;
pub(crate) mod simulate;
#[cfg(feature = "plot")]
pub mod timeline;
pub(crate) mod triage;
#[cfg(feature = "plot")]
pub mod view;

pub use common::advice::{Advice, advice};
pub use common::answer::{Answer, AnswerFormat, Rows};
pub use common::document::Document;
pub use common::json::{AnomalyCounts, CounterBytes, Head, InputHead};
pub use common::notes::{device_name, safe};
#[cfg(feature = "plot")]
pub use common::picture::plot::plot_columns;
#[cfg(feature = "plot")]
pub use common::picture::{Picture, PictureFormat, WIDTH};
pub(crate) use common::source::percent;
pub use common::source::{Source, Sources};
pub use common::text::TextStyle;
