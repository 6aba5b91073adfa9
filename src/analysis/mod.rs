//! Histories to answers: pure functions, no printing.
//!
//! In: a [`crate::model::Snapshot`] and its [`crate::replay::History`]s. Out: result types that [`crate::report`]
//! renders.

pub mod annotations;
pub mod attribution;
pub mod figures;
pub mod filter;
pub mod fragmentation;
pub mod frames;
pub mod info;
pub mod layout;
pub mod oom;
pub mod over_time;
pub mod peak;
pub mod pinning;
pub mod place;
pub mod sites;
pub mod when;

pub use annotations::{AnnotationRange, Annotations};
pub use attribution::{Attribution, GroupBy, Row};
pub use figures::{Figures, SizeClass};
pub use filter::Filter;
pub use fragmentation::{
    DeviceFragmentation, FragmentationOptions, FragmentationReport, PoolFragmentation, SegmentFragmentation,
};
pub use info::{DeviceInfo, InfoReport};
pub use layout::{Layout, Piece, SegmentLayout, Sweep};
pub use oom::{DeviceOoms, Oom, OomOptions, OomReport};
pub use over_time::{MostInactive, OverTimeRow};
pub use peak::{DevicePeak, PeakOptions, PeakReport};
pub use pinning::{Pinning, PinningRow};
pub use place::Place;
pub use sites::Sites;
pub use when::When;
