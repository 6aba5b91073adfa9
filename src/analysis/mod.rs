//! Histories to answers: pure functions, no printing.
//!
//! In: a [`crate::model::Snapshot`] and its [`crate::replay::History`]s. Out: result types that [`crate::report`]
//! renders.

pub mod annotations;
pub mod attribution;
pub mod filter;
pub mod frames;
pub mod growth;
pub mod info;
pub mod layout;
pub mod leaks;
pub mod peak;
mod repetition;
pub mod sites;
pub mod steps;
pub mod when;

pub use annotations::{AnnotationRange, Annotations};
pub use attribution::{Attribution, GroupBy, Row};
pub use filter::Filter;
pub use growth::{Rate, Verdict};
pub use info::{DeviceInfo, InfoReport};
pub use layout::{Layout, Piece, SegmentLayout};
pub use leaks::{DeviceLeaks, LeakOptions, LeakReport, LeakRow};
pub use peak::{DevicePeak, PeakOptions, PeakReport};
pub use sites::Sites;
pub use steps::{NoSteps, StepSource, Steps};
pub use when::When;
