//! One allocation, and the instants of its lifetime.

/// A point in a device's trace: the number of entries that have happened. Instant 0 is before the first kept entry,
/// instant `n` right after entry `n - 1`.
pub type Instant = u32;

/// The instant that never comes.
pub const NEVER: Instant = u32::MAX;

/// Link of an entry that concerns no allocation.
#[doc(hidden)]
pub const NO_ALLOCATION: u32 = u32::MAX;

/// One allocation, from the request to the free. Mirrors a `Block` of `CUDACachingAllocator` while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub addr: u64,
    pub requested: u64,
    pub size: u64,
    /// First instant at which it exists: 0 for allocations from before the trace.
    pub born: Instant,
    /// First instant after `free_requested`: no longer part of `allocated`.
    pub freed: Instant,
    /// First instant after `free_completed`: no longer part of `active` and `requested`.
    pub completed: Instant,
}

impl Allocation {
    #[inline]
    pub fn allocated_at(&self, instant: Instant) -> bool {
        self.born <= instant && instant < self.freed
    }

    #[inline]
    pub fn active_at(&self, instant: Instant) -> bool {
        self.born <= instant && instant < self.completed
    }

    /// Whether it is from before the first kept entry.
    pub fn is_baseline(&self) -> bool {
        self.born == 0
    }
}
