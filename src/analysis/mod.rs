//! Histories to answers: pure functions, no printing.
//!
//! In: a [`crate::model::Snapshot`] and its [`crate::replay::History`]s. Out: result types that [`crate::report`]
//! renders.

pub mod annotations;
pub mod attribution;
pub mod check;
pub mod checkpoint;
pub mod comparison;
pub mod diff;
pub mod each;
pub mod figures;
pub mod filter;
pub mod flame;
pub mod fragmentation;
pub mod frames;
pub mod grouping;
pub mod growth;
pub mod info;
pub mod layout;
pub mod leaks;
mod libraries;
mod library;
mod module_path;
pub mod oom;
pub mod over_time;
pub mod overview;
pub mod paths;
pub mod peak;
pub mod pinning;
pub mod place;
pub mod ranks;
pub mod segment_map;
pub mod sites;
pub mod steps;
pub mod timeline;
pub mod training;
pub mod turns;
pub mod when;

pub use annotations::{AnnotationRange, Annotations};
pub use attribution::{Attribution, Reason, Row};
pub use check::{Budgets, CheckOptions, CheckReport};
pub use checkpoint::{CheckpointOptions, CheckpointReport, DeviceCheckpoint};
pub use comparison::Comparison;
pub use diff::{DeviceDiff, DiffReport, DiffRow};
pub use each::{Each, EachOptions, RangePeak, RangePeaks};
pub use figures::{Figures, SizeClass};
pub use filter::Filter;
pub use flame::{DeviceFlame, FlameOptions, FlameReport};
pub use fragmentation::{
    DeviceFragmentation, FragmentationOptions, FragmentationReport, PoolFragmentation, SegmentFragmentation,
};
pub use grouping::{GroupBy, Inference};
pub use growth::{Rate, Verdict};
pub use info::{DeviceInfo, InfoReport};
pub use layout::{Layout, Piece, SegmentLayout, Sweep};
pub use leaks::{DeviceLeaks, LeakOptions, LeakReport, LeakRow};
pub use oom::{DeviceOoms, Oom, OomOptions, OomReport};
pub use over_time::{MostInactive, OverTimeRow};
pub use overview::Overview;
pub use peak::{DevicePeak, PeakOptions, PeakReport};
pub use pinning::{Pinning, PinningRow};
pub use place::Place;
pub use ranks::RanksReport;
pub use segment_map::{DeviceSegmentMap, SegmentMapReport};
pub use sites::{Origin, Sites};
pub use steps::{NoSteps, StepSource, Steps};
pub use timeline::{DeviceTimeline, TimelineOptions, TimelineReport, XAxis};
pub use training::{BackwardSites, Categories, Category, Evidence, Phase, PhaseSummary, Phases, Roles};
pub use turns::TurnKind;
pub use when::When;
