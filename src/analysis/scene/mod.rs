//! A device at any zoom: curves, bands and blocks of any part of its history, with as many columns as there are pixels.
//!
//! A program redraws with every scroll event, so the cost depends only on the requested part; it depends on the whole
//! history only if all of it is requested. The result is still exact: each column represents the instant at which
//! memory is highest within it, so no peak is lost.

mod bands;
mod blocks;
mod columns;
mod difference;
mod events;
mod folds;
mod grouped;
mod lives;
mod overlay;
mod pyramid;

pub use bands::{BandedColumns, SceneBand};
pub use blocks::{Shape, Shapes};
pub use columns::{Column, Columns, MOST_COLUMNS, Part, SceneAxis};
pub use difference::{Amount, Difference, DifferenceRow, Flow};
pub use events::EventFilter;
pub use folds::Folds;
pub use grouped::{Place, SceneGroup};
pub use overlay::Overlay;
pub use pyramid::Pyramid;

use crate::error::{Error, Result};
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Inference};
use crate::replay::{Instant, Metric};
use columns::Clock;
use grouped::Grouped;
use lives::Lives;
use std::collections::HashMap;
use std::sync::Arc;

/// A device that is drawn repeatedly. Data about the whole history is computed when first needed, and stored.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    device: Device<'a>,
    clock: Clock<'a>,
    pyramid: Pyramid,
    /// By what a metric counts: blocks until their free is requested, blocks until it completes, or segments.
    lives: HashMap<Metric, Arc<Lives>>,
    grouped: HashMap<(GroupBy, bool), Arc<Grouped>>,
}

impl<'a> Scene<'a> {
    pub fn new(device: &Device<'a>) -> Self {
        Self::folded(device, Arc::default())
    }

    /// The scenes of all devices of a recording, which share the folds of their axes.
    pub fn all(devices: &Devices<'a>) -> Vec<Self> {
        let folds = Arc::new(Folds::of(devices));
        devices.all().iter().map(|device| Self::folded(device, Arc::clone(&folds))).collect()
    }

    fn folded(device: &Device<'a>, folds: Arc<Folds>) -> Self {
        Self {
            device: device.clone(),
            clock: Clock::of(device, folds),
            pyramid: Pyramid::of(device.track),
            lives: HashMap::new(),
            grouped: HashMap::new(),
        }
    }

    pub fn device(&self) -> &Device<'a> {
        &self.device
    }

    /// The position of each instant on an axis, from 0 to the last one, never decreasing. If the clock of a recording steps
    /// back, the position stays. In time and in steps, the state before the first entry is at the position of that entry.
    pub fn positions(&self, axis: SceneAxis) -> Vec<f64> {
        let last = self.device.track.entries();
        (0..=last).map(|instant| self.clock.position(axis, instant)).collect()
    }

    /// The highest instant of a counter in each column.
    ///
    /// # Errors
    /// If the part has no columns, too many of them, or no extent.
    pub fn columns(&self, metric: Metric, part: &Part) -> Result<Columns> {
        part.check(&self.clock)?;
        Ok(Columns::of(&self.device, &self.clock, &self.pyramid, metric, part))
    }

    /// All steps of the device above each other, each in as many columns; empty if there are none.
    ///
    /// # Errors
    /// If there are no columns or too many of them, or if memviz finds no steps.
    pub fn overlay(&self, metric: Metric, columns: usize) -> Result<Overlay> {
        Part::of_step(0, columns).check(&self.clock)?;
        Ok(Overlay::of(&self.device, &self.clock, &self.pyramid, metric, columns))
    }

    pub fn instants(&self, part: &Part) -> Result<Vec<Column>> {
        part.check(&self.clock)?;
        Ok(Column::all(&self.clock, part).collect())
    }

    /// A counter at each of some instants.
    ///
    /// # Errors
    /// If the recording has no such instant.
    pub fn values(&self, metric: Metric, instants: &[Instant]) -> Result<Vec<i64>> {
        let value = |&instant: &Instant| {
            self.require_instant(instant)?;
            Ok(self.pyramid.highest(self.device.track, metric, instant, instant).bytes)
        };
        instants.iter().map(value).collect()
    }

    /// The memory in each column: the `top` groups that hold the most over the part, and the others as one.
    ///
    /// # Errors
    /// Like [`Scene::columns`]; also if groups overlap, or the counter or the recording cannot be grouped like this.
    pub fn bands(&mut self, metric: Metric, by: GroupBy, part: &Part, top: usize) -> Result<BandedColumns> {
        let columns = self.columns(metric, part)?;
        let grouped = self.grouped(metric, by)?;
        let lives = self.lives(metric);
        Ok(BandedColumns::of(&lives, &grouped, columns, top))
    }

    /// Blocks, or segments for [`Metric::Reserved`], as shapes over time, stacked in order of their starts: the `most`
    /// shapes with the largest areas, and the others as one band on top.
    pub fn shapes(&mut self, metric: Metric, by: GroupBy, part: &Part, most: usize) -> Result<Shapes> {
        let columns = self.columns(metric, part)?;
        let grouped = self.grouped(metric, by)?;
        let lives = self.lives(metric);
        Ok(Shapes::of(&lives, &grouped, columns, most))
    }

    /// The bytes of some allocations in each column, at the instant at which the counter is highest. Their indexes
    /// must be in ascending order, like those of [`Scene::search`].
    ///
    /// # Errors
    /// Like [`Scene::columns`]; also for [`Metric::Reserved`], which has no blocks.
    pub fn held(&mut self, metric: Metric, part: &Part, allocations: &[u32]) -> Result<Vec<u64>> {
        require_blocks(metric)?;
        let columns = self.columns(metric, part)?;
        let mut held = vec![0u64; columns.instants.len() + 1];
        self.lives(metric).seen(&columns.instants, |life| {
            if allocations.binary_search(&life.index).is_ok() {
                bands::enter(&mut held, life.from, life.to, life.bytes);
            }
        });
        Ok(bands::sums(held))
    }

    /// The memory that was live, was allocated and was freed from one instant to another, by group: what grew and what shrank.
    ///
    /// # Errors
    /// If the recording has no such instant, the second one is before the first, or the counter cannot be grouped like this.
    pub fn difference(
        &self,
        metric: Metric,
        by: GroupBy,
        (from, to): (Instant, Instant),
        top: Option<usize>,
    ) -> Result<Difference> {
        by.require(metric)?;
        self.require_range(from, to)?;
        let mut difference = Difference::of(&self.device, metric, by, (from, to), top);
        if !by.is_inclusive() {
            let known = self.grouped.get(&(by, metric == Metric::Reserved)).cloned();
            let grouped = known.unwrap_or_else(|| Arc::new(Grouped::of(&self.device, metric, by)));
            let places = grouped.places();
            for row in &mut difference.rows {
                row.place = places.get(row.label.as_str()).copied().unwrap_or_default();
            }
        }
        Ok(difference)
    }

    /// The memory that was live, was allocated and was freed from one instant to another, as one sum.
    ///
    /// # Errors
    /// If the recording has no such instant, or the second one is before the first.
    pub fn flow(&self, metric: Metric, (from, to): (Instant, Instant)) -> Result<Flow> {
        self.require_range(from, to)?;
        Ok(Flow::of(&self.device, metric, (from, to)))
    }

    /// Indexes of the allocations that pass a filter, in order, as with `--include`.
    pub fn search(&self, filter: &Filter) -> Vec<u32> {
        let device = &self.device;
        let grouper = Grouper::new(device, device.deep_sites(), filter, GroupBy::Site).inferring(
            device,
            Inference::On,
            Metric::Active,
        );
        let mut groups = Groups::new(&grouper);
        let all = 0..device.history().allocations.len();
        let passes = |&index: &usize| {
            let group = groups.of_allocation(index).first().copied();
            group.is_some_and(|group| !groups.is_filtered_out(group))
        };
        all.filter(passes).map(|index| index as u32).collect()
    }

    /// The entries that pass a filter, in order.
    pub fn events(&self, filter: &EventFilter) -> Vec<u32> {
        let found = filter.frames.as_ref().map(|frames| self.search(frames)).unwrap_or_default();
        events::events(&self.device, filter, &found)
    }

    /// Requires that the device has an instant.
    ///
    /// # Errors
    /// If it does not.
    pub fn require_instant(&self, instant: Instant) -> Result<()> {
        let last = self.device.track.entries();
        if instant <= last {
            return Ok(());
        }
        let device = self.device.id();
        Err(Error::Request(format!("device {device} has instants 0 to {last}; there is no instant {instant}")))
    }

    /// Requires that the device has both instants of a range, in this order.
    ///
    /// # Errors
    /// If it does not.
    pub fn require_range(&self, from: Instant, to: Instant) -> Result<()> {
        self.require_instant(from)?;
        self.require_instant(to)?;
        if from <= to {
            return Ok(());
        }
        Err(Error::Request(format!("expected a range that starts before it ends, found instants {from} to {to}")))
    }

    fn lives(&mut self, metric: Metric) -> Arc<Lives> {
        let track = self.device.track;
        Arc::clone(self.lives.entry(metric).or_insert_with(|| Arc::new(Lives::of(track, metric))))
    }

    fn grouped(&mut self, metric: Metric, by: GroupBy) -> Result<Arc<Grouped>> {
        by.require(metric)?;
        if by.is_inclusive() {
            let by = by.name();
            return Err(Error::Request(format!("groups by {by} overlap, so they cannot be stacked")));
        }
        let device = &self.device;
        let key = (by, metric == Metric::Reserved);
        Ok(Arc::clone(self.grouped.entry(key).or_insert_with(|| Arc::new(Grouped::of(device, metric, by)))))
    }
}

fn require_blocks(metric: Metric) -> Result<()> {
    if metric != Metric::Reserved {
        return Ok(());
    }
    let message = "segments are not blocks: expected the metric allocated, active or requested, found reserved";
    Err(Error::Request(message.to_owned()))
}
