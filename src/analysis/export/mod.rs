//! What other programs are given: memory by stack with labels, and counters over time.

mod code;
mod samples;
mod tracks;

pub use samples::{DeviceSamples, Label, Sample, SamplesOptions, SamplesReport, Sums};
pub use tracks::{COUNTERS, DeviceTracks, FailedRequest, Point, Slice, TracksOptions, TracksReport};
