//! The steps of a device above each other: what they have in common, and which of them differ.

use super::columns::{Clock, Columns, Part};
use super::pyramid::Pyramid;
use crate::facts::device::Device;
use crate::replay::Metric;

/// All steps in the same columns: each column is the same part of the entries of each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The least, the middle and the most bytes of all steps in each column. In the middle of an even number of steps, the
    /// lower one.
    pub lowest: Vec<i64>,
    pub median: Vec<i64>,
    pub highest: Vec<i64>,
    /// How far each step is above the median where it is furthest above it; 0 if it never is.
    pub above: Vec<i64>,
    /// How far it is below.
    pub below: Vec<i64>,
}

impl Overlay {
    pub(super) fn of(
        device: &Device<'_>,
        clock: &Clock<'_>,
        pyramid: &Pyramid,
        metric: Metric,
        columns: usize,
    ) -> Self {
        let steps = device.steps().map_or(0, |steps| steps.ends.len());
        let part = |step: usize| Part::of_step(step, columns);
        let curve = |step| Columns::of(device, clock, pyramid, metric, &part(step)).values;
        let curves: Vec<Vec<i64>> = (0..steps).map(curve).collect();
        let mut overlay = Self::default();
        for column in 0..columns {
            let mut all: Vec<i64> = curves.iter().map(|curve| curve[column]).collect();
            all.sort_unstable();
            let (Some(&lowest), Some(&highest)) = (all.first(), all.last()) else { return overlay };
            overlay.lowest.push(lowest);
            overlay.median.push(all[(all.len() - 1) / 2]);
            overlay.highest.push(highest);
        }
        for curve in &curves {
            let from_median = || curve.iter().zip(&overlay.median).map(|(bytes, median)| bytes - median);
            overlay.above.push(from_median().fold(0, i64::max));
            overlay.below.push(from_median().map(|bytes| -bytes).fold(0, i64::max));
        }
        overlay
    }
}
