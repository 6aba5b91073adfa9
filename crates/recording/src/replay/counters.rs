//! The four counters of `torch.cuda.memory_stats()` along a trace.

use super::allocation::{Allocation, Instant};
use crate::model::Action;
use serde::{Deserialize, Serialize};

names! {
    /// A counter, named as in `memory_stats` (`<name>_bytes.all.current`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
    #[serde(rename_all = "snake_case")]
    pub enum Metric {
        /// Blocks, from their allocation until their free is requested.
        #[default]
        Allocated = "allocated",
        /// Blocks, from their allocation until their free completes.
        Active = "active",
        /// Requested bytes of blocks, until their free completes.
        Requested = "requested",
        /// Segments.
        Reserved = "reserved",
    }
}

impl Metric {
    pub const ALL: [Self; 4] = [Self::Allocated, Self::Active, Self::Requested, Self::Reserved];
}

/// Values of the four counters in bytes. Signed, since a contradictory history can make them negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counters {
    /// `allocated_bytes`.
    #[serde(rename = "allocated_bytes")]
    pub allocated: i64,
    /// `active_bytes`.
    #[serde(rename = "active_bytes")]
    pub active: i64,
    /// `requested_bytes`.
    #[serde(rename = "requested_bytes")]
    pub requested: i64,
    /// `reserved_bytes`.
    #[serde(rename = "reserved_bytes")]
    pub reserved: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maximum {
    pub bytes: i64,
    /// First instant that reaches it.
    pub instant: Instant,
}

impl From<[Maximum; 4]> for Counters {
    /// The maxima, in the order of [`Metric::ALL`].
    fn from([allocated, active, requested, reserved]: [Maximum; 4]) -> Self {
        Self { allocated: allocated.bytes, active: active.bytes, requested: requested.bytes, reserved: reserved.bytes }
    }
}

impl Counters {
    pub fn get(&self, metric: Metric) -> i64 {
        match metric {
            Metric::Allocated => self.allocated,
            Metric::Active => self.active,
            Metric::Requested => self.requested,
            Metric::Reserved => self.reserved,
        }
    }

    /// Adds an allocation that exists at the start.
    pub fn add_baseline(&mut self, allocation: &Allocation) {
        if allocation.allocated_at(0) {
            self.allocated = self.allocated.wrapping_add_unsigned(allocation.size);
        }
        self.active = self.active.wrapping_add_unsigned(allocation.size);
        self.requested = self.requested.wrapping_add_unsigned(allocation.requested);
    }

    /// Applies an entry that concerns `allocation` and leads to instant `now`. `size` returns the entry's own size, which
    /// only segments need.
    ///
    /// Sums wrap around; the replay notices this and reports it as [`super::AnomalyKind::Overflow`].
    #[inline]
    pub fn apply(&mut self, action: Action, allocation: Option<&Allocation>, now: Instant, size: impl FnOnce() -> u64) {
        match (action, allocation) {
            (Action::Alloc, Some(allocation)) => {
                self.allocated = self.allocated.wrapping_add_unsigned(allocation.size);
                self.active = self.active.wrapping_add_unsigned(allocation.size);
                self.requested = self.requested.wrapping_add_unsigned(allocation.requested);
            }
            (Action::FreeRequested, Some(allocation)) => {
                self.allocated = self.allocated.wrapping_sub_unsigned(allocation.size);
                // Without a free_completed entry, both happen here.
                if allocation.completed == now {
                    self.active = self.active.wrapping_sub_unsigned(allocation.size);
                    self.requested = self.requested.wrapping_sub_unsigned(allocation.requested);
                }
            }
            (Action::FreeCompleted, Some(allocation)) => {
                // Without a free_requested entry, both happen here.
                if allocation.freed == now {
                    self.allocated = self.allocated.wrapping_sub_unsigned(allocation.size);
                }
                self.active = self.active.wrapping_sub_unsigned(allocation.size);
                self.requested = self.requested.wrapping_sub_unsigned(allocation.requested);
            }
            (Action::SegmentAlloc | Action::SegmentMap, _) => {
                self.reserved = self.reserved.wrapping_add_unsigned(size());
            }
            (Action::SegmentFree | Action::SegmentUnmap, _) => {
                self.reserved = self.reserved.wrapping_sub_unsigned(size());
            }
            _ => {}
        }
    }

    /// Adds bytes that no entry accounts for.
    pub(super) fn correct(&mut self, bytes: i64) {
        self.allocated = self.allocated.wrapping_add(bytes);
        self.active = self.active.wrapping_add(bytes);
        self.requested = self.requested.wrapping_add(bytes);
    }

    pub fn any_negative(&self) -> bool {
        (self.allocated | self.active | self.requested | self.reserved) < 0
    }
}
