//! Everything a report on a recording shows.

use super::flame::{FlameOptions, FlameReport};
use super::layout::Layout;
use super::peak::{DevicePeak, PeakOptions, PeakReport};
use super::segment_map::SegmentMapReport;
use super::timeline::{TimelineOptions, TimelineReport};
use crate::error::Result;
use crate::model::{BlockState, Snapshot};
use crate::replay::History;

/// The answers that belong into one report.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The peak of each device and what holds it; all rows.
    pub peak: PeakReport,
    /// Live memory over time.
    pub timeline: TimelineReport,
    /// Live bytes by stack at the peak.
    pub flame: FlameReport,
    /// Segments at the peak; empty where the recording has none.
    pub segments: SegmentMapReport,
}

/// How well a device's segments are used at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Reserved bytes that are in no block in use.
    pub inactive_bytes: i64,
    /// `1 - active / reserved`; 0 where nothing is reserved.
    pub inactive_share: f64,
    /// Bytes that blocks are larger than what was asked for: `active - requested`.
    pub rounding_bytes: i64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
}

impl Usage {
    /// The figures of one device, whose layout is that of the same instant.
    pub fn of(peak: &DevicePeak, layout: &Layout) -> Self {
        let at = &peak.at;
        let free = layout.pieces.iter().filter(|piece| piece.state == BlockState::Inactive);
        let inactive_bytes = at.reserved.wrapping_sub(at.active);
        Self {
            inactive_bytes,
            inactive_share: if at.reserved == 0 { 0.0 } else { inactive_bytes as f64 / at.reserved as f64 },
            rounding_bytes: at.active.wrapping_sub(at.requested),
            largest_free_block_bytes: free.map(|piece| piece.size).max().unwrap_or(0),
        }
    }
}

impl Overview {
    /// Answers all questions. Of `options`, the devices matter to all of them; bands and columns are the timeline's.
    ///
    /// # Errors
    /// As [`PeakReport::of`] and [`TimelineReport::of`].
    pub fn of(snapshot: &Snapshot, histories: &[History], options: &TimelineOptions) -> Result<Self> {
        let peak = PeakOptions { top: None, ..options.peak.clone() };
        let flame = FlameOptions { peak: peak.clone(), ..FlameOptions::default() };
        Ok(Self {
            peak: PeakReport::of(snapshot, histories, &peak)?,
            timeline: TimelineReport::of(snapshot, histories, options)?,
            flame: FlameReport::of(snapshot, histories, &flame)?,
            segments: if snapshot.notes.format.has_segments() {
                SegmentMapReport::of(snapshot, histories, &peak)?
            } else {
                SegmentMapReport::default()
            },
        })
    }
}
