//! From facts and simulations to answers: pure functions, no printing.
//!
//! In: the [`crate::facts::device::Devices`] of a recording, and [`crate::simulation`] for what would happen under other
//! conditions. Out: result types that `report` renders. There is a folder for each question.

pub mod advice;
pub mod blocks;
pub mod check;
pub mod checkpoint;
pub mod diff;
pub mod excerpt;
pub mod export;
pub mod fit;
pub mod fix;
pub mod flame;
pub mod fragmentation;
pub mod info;
pub mod leaks;
pub mod ledger;
#[cfg(feature = "nsys")]
pub mod nsys;
pub mod oom;
pub(crate) mod overview;
pub mod peak;
pub mod ranks;
pub mod scene;
pub mod simulate;
pub mod timeline;
pub(crate) mod tradeoffs;
pub mod triage;
