//! What the device and the settings allow the allocator to reserve.
//!
//! Two simulations of the same requests under different limits differ only if a comparison with the limit differs. So each
//! limit records the highest value that was within it and the lowest value that exceeded it: for every limit between the two,
//! the simulation is the same.

use crate::model::AllocatorSettings;

/// A limit, and the values that were compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    limit: u64,
    passed: u64,
    held: u64,
}

impl Threshold {
    /// A limit without comparisons yet.
    pub fn new(limit: u64) -> Self {
        Self { limit, passed: 0, held: u64::MAX }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    pub fn fits(&mut self, value: u64) -> bool {
        let fits = value <= self.limit;
        if fits {
            self.passed = self.passed.max(value);
        } else {
            self.held = self.held.min(value);
        }
        fits
    }

    /// The highest value that was within the limit; 0 if there was none.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// The lowest value that exceeded the limit. `None` if there was none: then a higher limit changes nothing.
    pub fn held(&self) -> Option<u64> {
        (self.held < u64::MAX).then_some(self.held)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the device that the allocator can use.
    pub capacity: Threshold,
    /// Bytes that the process may reserve, if a memory fraction is set.
    pub allowed: Option<Threshold>,
    /// Reserved bytes above which cached segments are collected before a new one is created (`garbage_collection_threshold`).
    /// PyTorch does this only if a memory fraction is set.
    pub collected: Option<Threshold>,
    /// Whether a request that exceeds [`Limits::allowed`] fails at once (`throw_on_cudamalloc_oom`), without releasing cached
    /// memory first.
    pub fails_at_once: bool,
    /// Bytes of address space that an expandable segment reserves: PyTorch uses 9/8 of the device.
    pub range: u64,
}

/// More addresses than any program uses. This bounds sums for malicious files.
pub(super) const ADDRESS_SPACE: u64 = 1 << 62;

/// Address space of an expandable segment if the size of the device is unknown: larger than any device, and a multiple of
/// every usual page size.
const UNKNOWN_RANGE: u64 = 15 << 40;

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: Threshold::new(ADDRESS_SPACE),
            allowed: None,
            collected: None,
            fails_at_once: false,
            range: UNKNOWN_RANGE,
        }
    }
}

impl Limits {
    /// Whether reserved memory is unlimited.
    pub fn is_endless(&self) -> bool {
        self.capacity.limit() >= ADDRESS_SPACE && self.allowed.is_none() && self.collected.is_none()
    }

    /// The limits under settings on a device with `capacity` bytes for the allocator and `total` bytes in total, as far as
    /// known. If the total is unknown, a memory fraction has no effect.
    pub fn of(settings: &AllocatorSettings, capacity: Option<u64>, total: Option<u64>) -> Self {
        let mut limits = capacity.map_or_else(Self::default, Self::device);
        let Some(total) = total else { return limits };
        limits.range = total.saturating_add(total / 8).min(ADDRESS_SPACE);
        if let Some(fraction) = settings.memory_fraction.filter(|&fraction| fraction < 1.0) {
            let allowed = (fraction * total as f64) as u64;
            limits.allowed = Some(Threshold::new(allowed));
            let collected = settings.garbage_collection_threshold;
            limits.collected = (collected > 0.0).then(|| Threshold::new((collected * allowed as f64) as u64));
            limits.fails_at_once = settings.throws_on_oom;
        }
        limits
    }

    /// The limits of a device with this many bytes for the allocator.
    pub fn device(capacity: u64) -> Self {
        Self { capacity: Threshold::new(capacity.min(ADDRESS_SPACE)), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_knows_where_a_play_would_come_out_otherwise() {
        let mut threshold = Threshold::new(100);
        assert_eq!((threshold.passed(), threshold.held()), (0, None));
        assert!(threshold.fits(40) && threshold.fits(100) && !threshold.fits(130) && !threshold.fits(101));
        assert_eq!((threshold.passed(), threshold.held()), (100, Some(101)));
    }
}
