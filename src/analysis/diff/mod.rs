//! Compares two recordings: the memory of each device in both, by group.
//!
//! In: the [`DiffInput`] of each recording, computed separately. Out: a [`DiffReport`], in which the rows of a device sum to
//! the difference.

pub(crate) mod functions;
pub(crate) mod growth;
pub(crate) mod input;
pub(crate) mod lives;
pub(crate) mod matching;
pub(crate) mod overlay;
pub(crate) mod parting;
pub(crate) mod rows;
pub(crate) mod settings;

pub use growth::{Growth, GrowthLimit};
pub use input::{DiffInput, DiffInputDevice};
pub use lives::{Lives, Share};
pub use matching::{CodePlace, Match, Name, match_rows};
pub use overlay::{Align, Curve, DeviceOverlay, Overlay};
pub use parting::{Apart, Asked, Parting, Request, Requests};
pub use rows::{DiffRow, Fate, Unchanged};
pub use settings::SettingDiff;

use crate::facts::grouping::GroupBy;
use crate::model::{DeviceId, Format, HOST_DEVICE};
use crate::replay::Metric;

#[derive(Clone, Debug)]
pub struct DeviceDiff {
    pub base: DiffInputDevice,
    pub new: DiffInputDevice,
    /// Growth of the metric from the instant in the base to the instant in the new recording.
    pub delta_bytes: i64,
    /// What changed, the largest change first. Rows sum to the delta, unless grouping is inclusive.
    pub rows: Vec<DiffRow>,
    /// The rows that did not change.
    pub unchanged: Unchanged,
    /// Number of rows summed up in one labeled `(other)`.
    pub left_out: usize,
    /// The fate of all blocks, if both sides are instants of one recording.
    pub lives: Option<Lives>,
}

#[derive(Clone, Debug, Default)]
pub struct DiffReport {
    pub devices: Vec<DeviceDiff>,
    pub only_base: Vec<DeviceId>,
    pub only_new: Vec<DeviceId>,
    pub settings: Vec<SettingDiff>,
    pub formats: Option<(Format, Format)>,
}

impl DeviceDiff {
    fn of(base: &DiffInputDevice, new: &DiffInputDevice, formats: (Format, Format), top: Option<usize>) -> Self {
        let metric = new.peak.metric;
        let by = new.peak.attribution.by;
        let (mut base_rows, mut new_rows) = (base.rows(), new.rows());
        if by == GroupBy::Site {
            // A trace has functions, and a snapshot has lines.
            match formats {
                (Format::CudaSnapshot, Format::ProfilerTrace) => functions::fold(&mut base_rows, &new_rows),
                (Format::ProfilerTrace, Format::CudaSnapshot) => functions::fold(&mut new_rows, &base_rows),
                _ => {}
            }
        }
        let (mut rows, unchanged) = rows::of(by, &base_rows, &new_rows);
        let left_out = rows::keep_top(&mut rows, top, by.is_inclusive());
        let delta_bytes = new.peak.at.get(metric).wrapping_sub(base.peak.at.get(metric));
        Self { base: base.clone(), new: new.clone(), delta_bytes, rows, unchanged, left_out, lives: None }
    }

    pub fn metric(&self) -> Metric {
        self.new.peak.metric
    }

    pub fn by(&self) -> GroupBy {
        self.new.peak.attribution.by
    }

    /// Whether counters, figures and rows are the same.
    pub fn is_empty(&self) -> bool {
        let (base, new) = (&self.base.peak, &self.new.peak);
        let same_counters = base.at == new.at
            && base.baseline == new.baseline
            && base.end == new.end
            && base.maxima.map(|maximum| maximum.bytes) == new.maxima.map(|maximum| maximum.bytes);
        same_counters && self.base.figures == self.new.figures && self.rows.is_empty()
    }
}

impl DiffReport {
    /// Compares both recordings; `top` is the number of rows per device, and the rest are summed into one row.
    ///
    /// Devices match by their number. If each recording has a single GPU, as those of two ranks do, these are compared
    /// regardless of their numbers.
    pub fn of(base: &DiffInput, new: &DiffInput, top: Option<usize>) -> Self {
        let mut pairs: Vec<(&DiffInputDevice, &DiffInputDevice)> = Vec::new();
        let single = |side: &DiffInput| {
            let mut gpus = side.devices.iter().map(DiffInputDevice::device).filter(|&device| device > HOST_DEVICE);
            gpus.next().filter(|_| gpus.next().is_none())
        };
        let singles = single(base).zip(single(new));
        for device in &new.devices {
            let same = match singles {
                Some((from, to)) if to == device.device() => from,
                _ => device.device(),
            };
            pairs.extend(base.devices.iter().find(|other| other.device() == same).map(|base| (base, device)));
        }
        let only = |side: &DiffInput, paired: &dyn Fn(&(&DiffInputDevice, &DiffInputDevice)) -> DeviceId| {
            let devices = side.devices.iter().map(DiffInputDevice::device);
            devices.filter(|device| !pairs.iter().any(|pair| paired(pair) == *device)).collect()
        };
        let formats = (base.format, new.format);
        Self {
            only_base: only(base, &|pair| pair.0.device()),
            only_new: only(new, &|pair| pair.1.device()),
            devices: pairs.iter().map(|(base, new)| DeviceDiff::of(base, new, formats, top)).collect(),
            settings: settings::differences(&base.settings, &new.settings),
            formats: (base.format != new.format).then_some(formats),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.devices.iter().all(DeviceDiff::is_empty)
            && self.only_base.is_empty()
            && self.only_new.is_empty()
            && self.settings.is_empty()
            && self.formats.is_none()
    }
}
