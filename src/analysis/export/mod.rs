//! Data for other programs: memory by stack with labels, and counters over time.

mod code;
mod lives;
mod samples;
mod tables;
mod tracks;

pub use lives::{DeviceLives, Life, LivesOptions, LivesReport};
pub use samples::{DeviceSamples, Label, Sample, SamplesOptions, SamplesReport, Sums};
pub use tables::{Table, TableColumn, TableName, Values, of_curve, of_ranks};
pub use tracks::{BlockSlice, COUNTERS, DeviceTracks, FailedRequest, Point, Slice, TracksOptions, TracksReport};
