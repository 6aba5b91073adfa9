//! The cause of a failed request, and its evidence.

use super::request::{Request, Retry, Serving};
use crate::allocator::SizeRules;
use crate::analysis::advice::{Advice as Cure, Saving};
use crate::facts::code::sites::Sites;
use crate::facts::segments::figures::Figures;
use crate::facts::segments::pinning::Pinning;
use crate::model::DEFAULT_POOL;
use crate::replay::{History, Instant, Metric, Track};
use serde::Serialize;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The inactive memory in the pool of the request would not have been enough, nor the free memory of the device and
    /// every inactive byte together for a new segment.
    Capacity,
    /// One of these would have been, but no single block was, and no segment could be released to make room.
    Fragmentation,
    /// There would have been enough, but not in the private pool of the request: while that pool is in use, the allocator releases
    /// no memory of other pools.
    PrivatePool,
    /// Memory that accumulates from step to step fills the device: with that fixed, the request would have been served.
    Leak,
    /// The device had much less free memory than at another time: something outside the allocator holds memory.
    OtherProcess,
    /// The device had enough free, but the settings limit the process to a part of it.
    Limit,
    /// The recording does not show it.
    Unknown,
}

impl Cause {
    /// The name as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Fragmentation => "fragmentation",
            Self::PrivatePool => "private_pool",
            Self::Leak => "leak",
            Self::OtherProcess => "other_process",
            Self::Limit => "limit",
            Self::Unknown => "unknown",
        }
    }
}

/// A figure that shows the cause.
#[derive(Clone, Debug, PartialEq)]
pub enum Symptom {
    /// Without the memory that accumulates from step to step, the program would have reserved less than the process could use.
    Accumulates {
        /// The line to change, if a stack contains it.
        label: Option<String>,
        /// Bytes that the program would have reserved, the request included.
        reserved: u64,
        /// Bytes that the process could use.
        capacity: u64,
    },
    /// Device free and inactive bytes together are less than what was needed.
    NotEnough {
        /// Both together.
        together: u64,
        /// The needed bytes: the block, or the segment for it if that exceeds the available memory.
        needed: u64,
    },
    /// Device free and inactive bytes together are at least what was needed.
    Enough {
        /// Both together.
        together: u64,
    },
    /// The largest free block that the request could use is too small.
    LargestBlock {
        /// Its bytes.
        bytes: u64,
    },
    /// The device had less than the segment that it would have had to supply.
    DeviceShort {
        /// Bytes that it had free.
        free: u64,
        /// Bytes of the segment.
        needed: u64,
    },
    /// Free bytes that live blocks keep from being released.
    Pinned {
        /// The bytes.
        bytes: u64,
        /// Number of these blocks.
        blocks: u64,
        /// The group with the most attributed bytes, and these bytes.
        top: Option<(String, u64)>,
    },
    /// A free block was large enough, but `max_split_size` keeps it for other requests.
    KeptBack {
        /// Its bytes.
        bytes: u64,
    },
    /// A free block was large enough, but appeared only when pending frees completed during the retry: the allocator
    /// does not look for a free block again after that.
    FreedTooLate {
        /// Its bytes.
        bytes: u64,
    },
    /// A free block was large enough for the request, which contradicts its failure.
    BlockWouldDo {
        /// Its bytes.
        bytes: u64,
    },
    /// The device had as much free as it would have had to supply, so something else prevented it: a limit such as
    /// `torch.cuda.set_per_process_memory_fraction`, which snapshots do not record.
    DeviceHadEnough {
        /// Bytes that it had free.
        free: u64,
        /// Bytes of the segment.
        needed: u64,
        /// Bytes that the process holds: the limit, if there is one, is between this and `reserved + needed`.
        reserved: u64,
    },
    /// The settings limit the process to a fraction of the device's memory (`per_process_memory_fraction`). The limit in
    /// bytes is not recorded, since the device's memory is not; reserved memory with the request would have exceeded that
    /// fraction of all known memory of the device.
    LimitSet {
        /// The fraction.
        fraction: f64,
        /// The memory that the process holds.
        reserved: u64,
        /// Bytes of a segment for the request, which determine whether the limit is exceeded, even with expandable segments.
        segment: u64,
        /// A lower bound of the device's memory: reserved plus free.
        device: u64,
    },
    /// Reserved memory and the free memory of the device are less than the device had for the process at another time.
    Shrunk {
        /// The memory then.
        known: KnownCapacity,
        /// The memory here.
        here: u64,
    },
    /// The request belongs to a private pool, which has little free memory; other pools have more.
    InPrivatePool {
        /// Bytes of its largest free block.
        largest: u64,
        /// Free bytes of other pools.
        elsewhere: u64,
    },
    /// What was in use when an earlier request failed is still in use.
    KeptSince {
        /// The entry of that request.
        entry: u32,
        /// Bytes that were in use then, and still are.
        kept: u64,
        /// Bytes that were in use then, and were freed since.
        freed: u64,
    },
    /// Reserved memory is only partly known, since the file was cut off and its beginning is missing.
    KnownInPart,
}

/// The first fix of accumulating memory, if it would have left room for a failed request when the process can use this many
/// bytes: the memory that the allocator lacked in the end is then not the cause.
pub(crate) fn leak(cures: &[Cure], capacity: u64) -> Option<Symptom> {
    cures.iter().filter(|cure| cure.kind.piles_up()).find_map(|cure| match cure.saving {
        Saving::Simulated { reserved, .. } if reserved.after <= capacity => Some(Symptom::Accumulates {
            label: cure.line.as_ref().map(|line| line.label.clone()),
            reserved: reserved.after,
            capacity,
        }),
        _ => None,
    })
}

/// The highest sum of the process's memory and the device's free memory, and where it occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownCapacity {
    /// Bytes: at an `oom` entry, reserved and device free together; elsewhere, reserved alone.
    pub bytes: u64,
    /// The instant.
    pub instant: Instant,
}

/// The capacity that a recording implies; `ooms` are its `oom` entries in order.
pub(super) fn known_capacity(track: Track<'_>, ooms: &[u32]) -> KnownCapacity {
    let history = track.history;
    let highest = history.maxima[Metric::Reserved as usize];
    let mut known = KnownCapacity { bytes: u64::try_from(highest.bytes).unwrap_or(0), instant: highest.instant };
    let Some(&last) = ooms.last() else { return known };
    let mut ooms = ooms.iter().copied().peekable();
    track.walk_to(last + 1, |instant, counters| {
        if ooms.next_if_eq(&(instant - 1)).is_none() {
            return;
        }
        let free = track.entry(instant - 1).map_or(0, |entry| entry.addr);
        let bytes = u64::try_from(counters.reserved).unwrap_or(0).saturating_add(free);
        if bytes > known.bytes {
            known = KnownCapacity { bytes, instant };
        }
    });
    known
}

/// At most 1/N of what was in use at a failed request is freed before the next one: an attempt that keeps everything.
const FREED_PART: u64 = 20;

/// What is still in use since an earlier failed request, if next to nothing of it was freed before a later one.
pub(crate) fn kept_since(history: &History, earlier: u32, later: u32) -> Option<Symptom> {
    let (mut kept, mut freed) = (0u64, 0u64);
    for made in history.allocations.iter().filter(|made| made.allocated_at(earlier)) {
        let sum = if made.allocated_at(later) { &mut kept } else { &mut freed };
        *sum = sum.saturating_add(made.size);
    }
    let is_all = freed.saturating_mul(FREED_PART) <= kept && kept > 0;
    is_all.then_some(Symptom::KeptSince { entry: earlier, kept, freed })
}

/// Capacities that differ by less than 1/N count as equal: CUDA's own libraries allocate some hundred MiB when they are
/// loaded.
const NOTABLE_PART: u64 = 10;

/// The basis of a cause.
pub(super) struct Facts<'a> {
    pub track: Track<'a>,
    pub sites: &'a Sites<'a>,
    /// The `oom` entry.
    pub entry: u32,
    pub request: &'a Request,
    pub retry: Retry,
    pub device_free: u64,
    pub figures: &'a Figures,
}

impl Facts<'_> {
    /// Device free and inactive bytes together.
    pub fn together(&self) -> u64 {
        self.device_free.saturating_add(self.figures.inactive)
    }

    /// The cause and its evidence.
    pub fn judge(&self, serving: &Serving, known: KnownCapacity, pinning: &Pinning) -> (Cause, Vec<Symptom>) {
        let Self { request, device_free, figures, .. } = *self;
        let completeness = &self.track.history.completeness;
        if completeness.truncated && completeness.has_baseline {
            return (Cause::Unknown, vec![Symptom::KnownInPart]);
        }
        if device_free >= request.driver_bytes {
            let (needed, reserved) = (request.driver_bytes, figures.reserved);
            if let Some(limit) = self.limit() {
                return (Cause::Limit, vec![limit]);
            }
            return (Cause::Unknown, vec![Symptom::DeviceHadEnough { free: device_free, needed, reserved }]);
        }
        if serving.largest_usable >= request.bytes {
            let bytes = serving.largest_usable;
            return if self.retry.completed > 0 {
                (Cause::Fragmentation, vec![Symptom::FreedTooLate { bytes }])
            } else {
                (Cause::Unknown, vec![Symptom::BlockWouldDo { bytes }])
            };
        }
        let own = serving.figures.inactive;
        let is_private = request.pool.is_some_and(|pool| pool != DEFAULT_POOL);
        if is_private
            && device_free.saturating_add(own) < request.driver_bytes
            && self.together() >= request.driver_bytes
        {
            let elsewhere = figures.inactive.saturating_sub(own);
            let short = Symptom::DeviceShort { free: device_free, needed: request.driver_bytes };
            return (
                Cause::PrivatePool,
                vec![Symptom::InPrivatePool { largest: serving.largest_usable, elsewhere }, short],
            );
        }
        let (not_enough, mut evidence) = self.room(serving, pinning);
        let here = figures.reserved.saturating_add(device_free);
        let missing = known.bytes.saturating_sub(here);
        if missing > known.bytes / NOTABLE_PART && device_free.saturating_add(missing) >= request.driver_bytes {
            evidence.insert(0, Symptom::Shrunk { known, here });
            return (Cause::OtherProcess, evidence);
        }
        (if not_enough { Cause::Capacity } else { Cause::Fragmentation }, evidence)
    }

    /// Whether all available memory would not have been enough, and the evidence.
    ///
    /// It would have been enough if every inactive byte were one block of the right pool, or if all of them were released to
    /// the driver, which must then supply a whole segment.
    fn room(&self, serving: &Serving, pinning: &Pinning) -> (bool, Vec<Symptom>) {
        let Self { request, device_free, .. } = *self;
        let together = self.together();
        if serving.figures.inactive < request.bytes && together < request.driver_bytes {
            let needed = if together < request.bytes { request.bytes } else { request.driver_bytes };
            return (true, vec![Symptom::NotEnough { together, needed }]);
        }
        let mut evidence = vec![
            Symptom::Enough { together },
            Symptom::LargestBlock { bytes: serving.largest_usable },
            Symptom::DeviceShort { free: device_free, needed: request.driver_bytes },
        ];
        if serving.figures.largest_free_block >= request.bytes {
            evidence.push(Symptom::KeptBack { bytes: serving.figures.largest_free_block });
        }
        if pinning.pinned_free_bytes > 0 {
            evidence.push(Symptom::Pinned {
                bytes: pinning.pinned_free_bytes,
                blocks: pinning.blocks,
                top: pinning.rows.first().map(|row| (row.label.clone(), row.pinned_free_bytes)),
            });
        }
        (false, evidence)
    }

    /// The limit in the settings, if the request may have exceeded it: even for a device with no more memory than is known,
    /// the fraction must be less than what was requested.
    fn limit(&self) -> Option<Symptom> {
        let settings = &self.track.snapshot.settings;
        let fraction = settings.memory_fraction.filter(|&fraction| fraction < 1.0)?;
        let reserved = self.figures.reserved;
        let segment = SizeRules::device(settings).driver_request(self.request.bytes, false);
        let device = reserved.saturating_add(self.device_free);
        let exceeds = reserved.saturating_add(segment) as f64 > fraction * device as f64;
        exceeds.then_some(Symptom::LimitSet { fraction, reserved, segment, device })
    }
}
