//! Histories to answers: pure functions, no printing.
//!
//! In: the [`Devices`] of a recording, each a [`crate::replay::Track`] with what follows from it. Out: result types that
//! [`crate::report`] renders. What several questions share comes first: [`code`], [`time`], [`training`], then
//! [`device`], which ties these together, [`grouping`] and [`segments`]; then a folder for each question.

pub mod check;
pub mod checkpoint;
pub mod code;
pub mod device;
pub mod diff;
pub mod doubts;
pub mod fit;
pub mod flame;
pub mod fragmentation;
pub mod grouping;
pub mod info;
pub mod leaks;
pub mod oom;
pub mod overview;
pub mod peak;
pub mod ranks;
pub mod segments;
pub mod simulate;
pub mod time;
pub mod timeline;
pub mod training;
pub mod triage;

pub use check::{Budgets, CheckOptions, CheckReport};
pub use checkpoint::{CheckpointOptions, CheckpointReport, DeviceCheckpoint};
pub use code::sites::{CodeOrigin, Sites};
pub use device::{Device, Devices};
pub use diff::{DeviceDiff, DiffReport, DiffRow};
pub use fit::{DeviceFit, FitInput, FitOptions, FitReport};
pub use flame::{DeviceFlame, FlameOptions, FlameReport};
pub use fragmentation::over_time::{MostInactive, OverTimeRow};
pub use fragmentation::segment_map::{DeviceSegmentMap, SegmentMapReport};
pub use fragmentation::{
    DeviceFragmentation, FragmentationOptions, FragmentationReport, PoolFragmentation, SegmentFragmentation,
};
pub use grouping::attribution::{Attribution, Reason, Row};
pub use grouping::filter::Filter;
pub use grouping::{GroupBy, Inference};
pub use info::{DeviceInfo, InfoReport};
pub use leaks::growth::{Rate, Verdict};
pub use leaks::{DeviceLeaks, LeakOptions, LeakReport, LeakRow};
pub use oom::{DeviceOoms, Oom, OomOptions, OomReport};
pub use overview::Overview;
pub use peak::comparison::Comparison;
pub use peak::each::{Each, EachOptions, RangePeak, RangePeaks};
pub use peak::{DevicePeak, PeakOptions, PeakReport};
pub use ranks::RanksReport;
pub use segments::figures::{Figures, SizeClass};
pub use segments::layout::{Layout, Piece, SegmentLayout, Sweep};
pub use segments::pinning::{Pinning, PinningRow};
pub use simulate::{SimulateOptions, SimulateReport};
pub use time::annotations::{AnnotationRange, Annotations};
pub use time::moment::Moment;
pub use time::when::When;
pub use timeline::{DeviceTimeline, TimelineOptions, TimelineReport, XAxis};
pub use training::steps::{NoSteps, StepSource, Steps};
pub use training::turns::TurnKind;
pub use training::{BackwardSites, Categories, Category, Evidence, Phase, PhaseSummary, Phases, Roles};
pub use triage::{TriageOptions, TriageReport};
