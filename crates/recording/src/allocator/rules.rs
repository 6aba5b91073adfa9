//! From a requested size to the block that the allocator returns.
//!
//! Trace entries record requested sizes, while the counters count blocks, so the rules between the two are reproduced here:
//! `round_size`, the pools of `get_allocation_size`, and `should_split` of PyTorch's `CUDACachingAllocator`.

use crate::model::{AllocatorSettings, SegmentType};

/// Sizes are multiples of this many bytes (`kMinBlockSize`).
pub const MIN_BLOCK: u64 = 512;
/// Requests of up to this many rounded bytes come from the small pool (`kSmallSize`). In the large pool, a remainder of up to
/// this size is not split off.
pub const SMALL_SIZE: u64 = 1 << 20;
/// Size of segments of the small pool, and of the pages by which its expandable segments grow (`kSmallBuffer`).
pub const SMALL_BUFFER: u64 = 2 << 20;
/// Size of segments for requests of the large pool below 10 MiB, and of the pages by which its expandable segments grow
/// (`kLargeBuffer`), unless `large_segment_size_mb` sets another.
const LARGE_BUFFER: u64 = 20 << 20;
/// Requests of this size or more get their own segment (`kMinLargeAlloc`).
const MIN_LARGE_ALLOC: u64 = 10 << 20;
/// Segments for them are rounded up to a multiple of this many bytes (`kRoundLarge`).
const ROUND_LARGE: u64 = 2 << 20;

/// Bytes that torch-npu adds to each request.
const ASCEND_PADDING: u64 = 32;

/// The allocator's rules under the settings of one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeRules {
    /// Blocks of at least this size are never split.
    max_split_size: u64,
    /// `roundup_power2_divisions` by bucket.
    divisions: [u64; 16],
    /// Bytes of a segment for requests of the large pool below 10 MiB, and of its pages.
    large_segment: u64,
    /// A block that exceeds a request at or above `max_split_size` by this many bytes is not used for it.
    non_split_rounding: u64,
    /// Whether `expandable_segments` is set. The allocator decides by the setting, not by the segment, whether to split:
    /// private pools keep regular segments, but their blocks are split as in expandable ones.
    expandable: bool,
    /// Pinned host memory: sizes are recorded as rounded, and every segment is one block.
    host: bool,
    /// Bytes that a request gets more, before its size is rounded.
    padding: u64,
}

impl Default for SizeRules {
    fn default() -> Self {
        Self {
            max_split_size: u64::MAX,
            divisions: [0; 16],
            large_segment: LARGE_BUFFER,
            non_split_rounding: LARGE_BUFFER,
            expandable: false,
            host: false,
            padding: 0,
        }
    }
}

impl SizeRules {
    /// The rules for device memory under `settings`.
    pub fn device(settings: &AllocatorSettings) -> Self {
        let large_segment = settings.large_segment_size.unwrap_or(LARGE_BUFFER);
        Self {
            max_split_size: settings.max_split_size.unwrap_or(u64::MAX),
            divisions: settings.roundup_power2_divisions,
            large_segment,
            non_split_rounding: settings.max_non_split_rounding.unwrap_or(large_segment),
            expandable: settings.expandable_segments,
            host: false,
            padding: if settings.pads_requests { ASCEND_PADDING } else { 0 },
        }
    }

    /// The same rules on an Ascend NPU (torch-npu 2.5 to 2.14), whose allocator adds 32 bytes to each request.
    #[must_use]
    pub fn on_ascend(self) -> Self {
        Self { padding: ASCEND_PADDING, ..self }
    }

    /// The same rules with `expandable_segments` set or not.
    #[must_use]
    pub fn with_expandable(self, expandable: bool) -> Self {
        Self { expandable, ..self }
    }

    /// Whether `expandable_segments` is set.
    pub fn is_expandable(&self) -> bool {
        self.expandable
    }

    /// The rules for pinned host memory.
    pub fn host() -> Self {
        Self { host: true, ..Self::default() }
    }

    /// The size of a request, rounded as by `round_size`, in bytes.
    #[inline]
    pub fn round(&self, requested: u64) -> u64 {
        if self.host {
            return requested;
        }
        let requested = requested.saturating_add(self.padding);
        if requested < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let divisions = self.divisions[bucket(requested)];
        if divisions > 1 && requested > MIN_BLOCK.saturating_mul(divisions) {
            return round_to_division(requested, divisions);
        }
        requested.checked_next_multiple_of(MIN_BLOCK).unwrap_or(u64::MAX)
    }

    /// Whether a block of this rounded size comes from the large pool, where blocks may exceed their rounded size.
    #[inline]
    pub fn is_large(&self, rounded: u64) -> bool {
        rounded > SMALL_SIZE && !self.host
    }

    /// Size of the block that a request of `rounded` bytes gets from a free range of `free` bytes in the large pool: the
    /// whole range if `should_split` is false.
    #[inline]
    pub fn large_block(&self, rounded: u64, free: u64) -> u64 {
        if !self.expandable && (rounded >= self.max_split_size || free - rounded <= SMALL_SIZE) {
            free
        } else {
            rounded
        }
    }

    /// Whether a free block serves a request of `rounded` bytes: blocks from `max_split_size` on are kept for requests as large.
    pub fn may_serve(&self, rounded: u64, free: u64) -> bool {
        free >= rounded && free < self.max_split_size
    }

    /// Whether a replay under `other` gives the same blocks as under these rules. `kept_remainder` says whether under these
    /// rules some block kept a remainder that was too small to be split off.
    #[doc(hidden)]
    pub fn make_the_same_blocks(&self, other: &Self, kept_remainder: bool) -> bool {
        self.rounds_like(other)
            && self.max_split_size == other.max_split_size
            && (self.expandable == other.expandable || !kept_remainder)
    }

    /// Whether both round every request to the same size, so that only blocks of the large pool can differ.
    #[doc(hidden)]
    pub fn rounds_like(&self, other: &Self) -> bool {
        (self.host, self.divisions, self.padding) == (other.host, other.divisions, other.padding)
    }

    /// `max_split_size` in bytes, if it is set.
    pub fn max_split_size(&self) -> Option<u64> {
        (self.max_split_size < u64::MAX).then_some(self.max_split_size)
    }

    /// Whether new memory comes from expandable segments.
    pub fn grows_in_place(&self) -> bool {
        self.expandable
    }

    /// Whether every remainder is split off, even in regular segments.
    pub fn splits_always(&self) -> bool {
        self.expandable
    }

    /// Whether blocks of this rounded size take their whole free range, however large it is.
    pub fn never_splits(&self, rounded: u64) -> bool {
        rounded >= self.max_split_size
    }

    /// Whether a free block of `free` bytes is not used for a request of `rounded` bytes although it is large enough: blocks
    /// of `max_split_size` and more serve only requests of that size or more, and only if the sizes are close
    /// (`get_free_block`).
    pub fn keeps_back(&self, rounded: u64, free: u64) -> bool {
        if self.never_splits(rounded) {
            free.saturating_sub(rounded) >= self.non_split_rounding
        } else {
            self.never_splits(free)
        }
    }

    /// Bytes of the pages by which expandable segments of a pool grow and shrink.
    pub fn page_size(&self, segment_type: SegmentType) -> u64 {
        match segment_type {
            SegmentType::Small => SMALL_BUFFER,
            SegmentType::Large => self.large_segment,
        }
    }

    /// Bytes that the driver must supply in one piece if no free block serves a request of `rounded` bytes: the size of a new
    /// segment (`get_allocation_size`), or whole pages for expandable segments.
    pub fn driver_request(&self, rounded: u64, expandable: bool) -> u64 {
        let step = if rounded <= SMALL_SIZE {
            SMALL_BUFFER
        } else if expandable || rounded < MIN_LARGE_ALLOC {
            self.large_segment
        } else {
            ROUND_LARGE
        };
        rounded.checked_next_multiple_of(step).unwrap_or(u64::MAX)
    }
}

/// The `roundup_power2_divisions` bucket of a size: its power of two, from 1 MiB up to 32 GiB.
fn bucket(size: u64) -> usize {
    let log = size.max(1).ilog2();
    log.saturating_sub(20).min(15) as usize
}

/// The next of `divisions` equal steps between two powers of two (`roundup_power2_next_division`).
fn round_to_division(size: u64, divisions: u64) -> u64 {
    if size.is_power_of_two() {
        return size;
    }
    let floor = 1u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    match step {
        0 => floor.saturating_mul(2),
        step => size.checked_next_multiple_of(step).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_like_the_allocator() {
        let plain = SizeRules::default();
        assert_eq!(plain.round(0), 512);
        assert_eq!(plain.round(512), 512);
        assert_eq!(plain.round(513), 1024);
        assert_eq!(plain.round(u64::MAX), u64::MAX);

        let eighths = SizeRules { divisions: [8; 16], ..SizeRules::default() };
        assert_eq!(eighths.round(4096), 4096, "not above 512 * 8");
        assert_eq!(eighths.round(4097), 4608, "the first step above 4096");
        assert_eq!(eighths.round(1 << 20), 1 << 20);
        assert_eq!(eighths.round((1 << 20) + 1), (1 << 20) + (1 << 17));
    }

    #[test]
    fn the_driver_is_asked_for_segments_and_pages() {
        let (mib, rules) = (1 << 20, SizeRules::default());
        assert_eq!(rules.driver_request(512, false), 2 * mib);
        assert_eq!(rules.driver_request(mib, true), 2 * mib);
        assert_eq!(rules.driver_request(mib + 512, false), 20 * mib);
        assert_eq!(rules.driver_request(10 * mib - 512, false), 20 * mib);
        assert_eq!(rules.driver_request(10 * mib, false), 10 * mib);
        assert_eq!(rules.driver_request(21 * mib, false), 22 * mib);
        assert_eq!(rules.driver_request(21 * mib, true), 40 * mib);
        assert_eq!(rules.driver_request(u64::MAX, true), u64::MAX);
    }

    #[test]
    fn segments_are_as_large_as_the_settings_say() {
        let mib = 1 << 20;
        let settings = AllocatorSettings { large_segment_size: Some(12 * mib), ..AllocatorSettings::default() };
        let rules = SizeRules::device(&settings);
        assert_eq!(rules.driver_request(mib, false), 2 * mib, "the small pool is as ever");
        assert_eq!(rules.driver_request(mib + 512, false), 12 * mib);
        assert_eq!(rules.driver_request(10 * mib, false), 10 * mib);
        assert_eq!(rules.driver_request(21 * mib, true), 24 * mib);
        assert_eq!(rules.page_size(SegmentType::Large), 12 * mib);
        assert_eq!(rules.page_size(SegmentType::Small), 2 * mib);
    }

    #[test]
    fn oversize_blocks_are_kept_for_requests_near_their_size() {
        let mib = 1 << 20;
        let kept = |settings: &AllocatorSettings, rounded: u64, free: u64| {
            SizeRules::device(settings).keeps_back(rounded * mib, free * mib)
        };
        let mut settings = AllocatorSettings { max_split_size: Some(64 * mib), ..AllocatorSettings::default() };
        assert!(!kept(&settings, 2, 63));
        assert!(kept(&settings, 2, 64));
        assert!(!kept(&settings, 64, 83));
        assert!(kept(&settings, 64, 84));
        settings.large_segment_size = Some(12 * mib);
        assert!(kept(&settings, 64, 76), "as much as a segment");
        settings.max_non_split_rounding = Some(40 * mib);
        assert!(!kept(&settings, 64, 103));
        assert!(kept(&settings, 64, 104));
    }

    #[test]
    fn the_large_pool_keeps_small_remainders() {
        let rules = SizeRules { max_split_size: 64 << 20, ..SizeRules::default() };
        let mib = 1 << 20;
        assert_eq!(rules.large_block(2 * mib, 3 * mib), 3 * mib);
        assert_eq!(rules.large_block(2 * mib, 3 * mib + 512), 2 * mib);
        assert_eq!(rules.large_block(64 * mib, 80 * mib), 80 * mib, "at max_split_size");
    }
}
