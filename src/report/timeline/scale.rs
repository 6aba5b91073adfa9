//! Maps bytes and x to pixels.

use crate::analysis::timeline::DeviceTimeline;
use crate::analysis::timeline::{Axis as Columns, OomMark};
use crate::model::DeviceId;
use crate::report::common::picture::chart::{Axis, Unit};
use crate::report::common::picture::plot::{LEFT, PLOT_HEIGHT, PLOT_WIDTH};

/// A value that exceeds the memory in use by more than this factor would flatten the curve; it is stated in words.
const IN_SIGHT: f64 = 2.5;

/// A device with less than this part of the memory of the others has a scale of its own, so that its curve is visible.
const LEAST_PART: f64 = 0.1;

pub(super) struct Scale {
    pub y: Axis,
    pub capacity: Option<u64>,
    pub capacity_in_sight: bool,
    /// Whether other devices of the picture have another scale.
    pub differs: bool,
}

/// The highest points of the devices of a picture: those of one kind share a scale.
pub(crate) struct Tops(Vec<(DeviceId, f64)>);

impl Tops {
    pub(crate) fn of<'a>(devices: impl Iterator<Item = &'a DeviceTimeline>) -> Self {
        Self(devices.map(|device| (device.peak.device, Reach::of(device).top)).collect())
    }

    /// The highest point of a kind of devices: GPUs, or one kind of host memory.
    fn of_kind(&self, device: DeviceId) -> f64 {
        let kind = |device: DeviceId| device.min(0);
        let alike = self.0.iter().filter(|(other, _)| kind(*other) == kind(device));
        alike.map(|&(_, top)| top).fold(1.0, f64::max)
    }
}

/// How high a device's plot must be.
struct Reach {
    top: f64,
    capacity: Option<u64>,
    capacity_in_sight: bool,
}

impl Reach {
    fn of(device: &DeviceTimeline) -> Self {
        let total = |column: usize| device.bands.iter().map(|band| band.bytes[column] as f64).sum::<f64>();
        let highest = (0..device.columns.len()).map(total).fold(0.0, f64::max);
        let reserved = device.columns.iter().map(|column| column.max_reserved).max().unwrap_or(0).max(0);
        let used = highest.max(reserved as f64).max(1.0);
        let capacity = device.ooms.iter().filter_map(OomMark::capacity).max();
        let capacity_in_sight = capacity.is_some_and(|capacity| capacity as f64 <= used * IN_SIGHT);
        let capacity_top = capacity.filter(|_| capacity_in_sight).map_or(0.0, |capacity| capacity as f64);
        // A request that is out of sight ends at the top of the plot.
        let asked = device.ooms.iter().map(|oom| stacked(device, oom) + oom.requested as f64).fold(0.0, f64::max);
        Self { top: used.max(capacity_top).max(asked.min(used * IN_SIGHT)), capacity, capacity_in_sight }
    }
}

impl Scale {
    pub fn of(device: &DeviceTimeline, tops: &Tops) -> Self {
        let Reach { top: own, capacity, capacity_in_sight } = Reach::of(device);
        let shared = tops.of_kind(device.peak.device);
        let differs = own < shared * LEAST_PART;
        let top = if differs { own } else { shared };
        let y = Axis { first: 0.0, last: top * 1.04, unit: Unit::of_bytes(top), labels: 8 };
        Self { y, capacity, capacity_in_sight, differs }
    }

    pub fn y(&self, bytes: f64) -> f64 {
        f64::from(PLOT_HEIGHT) * (1.0 - (bytes / self.y.last).clamp(0.0, 1.0))
    }
}

/// An x axis without labels: the axis of a timeline has parts, which the axis of a chart does not.
pub(super) const NO_LABELS: Axis = Axis { first: 0.0, last: 1.0, unit: Unit::ENTRIES, labels: 0 };

/// Bytes below a failed request: the memory held then.
pub(super) fn stacked(device: &DeviceTimeline, oom: &OomMark) -> f64 {
    oom.counters.get(device.peak.metric).max(0) as f64
}

pub(super) fn column(columns: usize, column: usize) -> f64 {
    f64::from(LEFT) + f64::from(PLOT_WIDTH) * column as f64 / columns.max(1) as f64
}

/// The position of an x.
pub(super) fn at(axis: &Columns, x: i64) -> f64 {
    f64::from(LEFT) + f64::from(PLOT_WIDTH) * axis.position(x) / axis.columns().max(1) as f64
}
