//! Histories to answers: pure functions, no printing.
//!
//! In: the [`device::Devices`] of a recording, each a [`crate::replay::Track`] with what follows from it. Out: result types that
//! [`crate::report`] renders. What several questions share comes first: [`code`], [`time`], [`training`], then
//! [`device`], which ties these together, [`grouping`] and [`segments`]; then a folder for each question.

pub mod check;
pub mod checkpoint;
pub mod code;
pub mod device;
pub mod diff;
pub mod doubts;
pub mod edit;
pub mod excerpt;
pub mod fit;
pub mod flame;
pub mod fragmentation;
pub mod grouping;
pub mod info;
pub mod leaks;
pub mod oom;
pub mod overview;
pub mod peak;
pub mod plan;
pub mod ranks;
pub mod scene;
pub mod segments;
pub mod simulate;
pub mod time;
pub mod timeline;
pub mod training;
pub mod triage;
