//! `nsys`: device memory of every process and library, as Nsight Systems recorded it, and PyTorch's part of it.

mod blocks;
mod holders;
mod pytorch;
mod ranges;

pub use holders::{NsysHolder, NsysRow};
pub use pytorch::PytorchShare;
pub use ranges::RangeRow;

use crate::error::{Error, Result};
use crate::facts::device::Devices;
use crate::model::nsys::{MemoryKind, NsysProfile, Process, ProfiledGpu};
use crate::model::{DeviceId, HOST_DEVICE};
use blocks::Blocks;
use indexmap::IndexMap;
use pytorch::Matches;
use serde::Serialize;

const COLUMNS: i64 = 60;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct NsysOptions {
        /// Devices, -1 for pinned host memory; all places when empty.
        pub devices: Vec<DeviceId>,
    }
}

#[derive(Clone, Debug, Default)]
pub struct NsysReport {
    pub schema_version: Option<String>,
    pub bytes: u64,
    /// Nanoseconds since the epoch at which the times of the profile start.
    pub session_start_ns: Option<i64>,
    /// Memory by process and place: devices first, by the number of the process.
    pub memories: Vec<NsysMemory>,
    /// The part of it that a recording of the same run shows.
    pub pytorch: Option<PytorchShare>,
    pub doubts: Vec<NsysDoubt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// On a device: device memory, arrays, variables of device code.
    Device(i64),
    /// Managed memory, which moves between host and devices.
    Managed,
    Pinned,
    Pageable,
    Unknown,
}

impl Place {
    /// The place of memory of a kind. The device of host memory and of managed memory has no meaning.
    fn of(kind: MemoryKind, device: i64) -> Self {
        match kind {
            MemoryKind::Device | MemoryKind::Array | MemoryKind::DeviceStatic => Self::Device(device),
            MemoryKind::Managed | MemoryKind::ManagedStatic => Self::Managed,
            MemoryKind::Pinned => Self::Pinned,
            MemoryKind::Pageable => Self::Pageable,
            MemoryKind::Unknown => Self::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Device(_) => "device",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
            Self::Unknown => "unknown",
        }
    }

    fn is(self, wanted: DeviceId) -> bool {
        match self {
            Self::Device(device) => device == i64::from(wanted),
            Self::Pinned => wanted == HOST_DEVICE,
            _ => false,
        }
    }

    pub fn device(self) -> Option<i64> {
        if let Self::Device(device) = self { Some(device) } else { None }
    }
}

#[derive(Clone, Debug)]
pub struct NsysMemory {
    pub pid: i64,
    pub program: Option<String>,
    pub place: Place,
    pub gpu: Option<ProfiledGpu>,
    pub allocations: u64,
    pub frees: u64,
    pub allocated_bytes: u64,
    pub peak: std::result::Result<NsysPeak, NoPeak>,
    /// Who allocated the memory: by bytes at the peak, or of all allocations if there is no peak.
    pub rows: Vec<NsysRow>,
    /// NVTX ranges of the process by name, those with the most memory first; empty without a peak.
    pub ranges: Vec<RangeRow>,
    pub doubts: Vec<NsysDoubt>,
}

/// The highest memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "NsysPeakAnswer"))]
pub struct NsysPeak {
    /// Bytes: the sum of `peak_bytes` of all rows.
    pub bytes: u64,
    /// Nanoseconds since the start of the session.
    pub time_ns: i64,
    /// Bytes that were not freed in the profile.
    pub end_bytes: u64,
    /// NVTX ranges that are open at the peak, outermost first.
    pub open_ranges: Vec<String>,
    /// Highest number of bytes in equal parts of the time from the first to the last event of the profile.
    pub curve_bytes: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPeak {
    /// All events of the profile have this same time, so their order is unknown.
    NoTimes(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NsysDoubt {
    /// The profile contains no frees, although a program ran for this long: figures are upper bounds.
    NoFrees,
    /// This many frees have no allocation: their blocks are from before the profile, and their memory is not counted.
    FreedUnseen(u64),
    /// This many allocations are at addresses that were still allocated: the free is missing.
    AllocatedTwice(u64),
    /// This many frees have another size than their allocation, whose size counts.
    SizesDiffer(u64),
    /// This many allocations are from stream-ordered pools, which hold up to this many bytes.
    Pooled {
        allocations: u64,
        /// The most bytes that one of the pools held.
        pool_bytes: u64,
    },
    /// No call chains were recorded, so libraries are unknown.
    NoChains,
    /// Memory events that are neither allocations nor frees.
    OtherEvents(u64),
    /// Why the file may lack rows.
    File(String),
}

impl NsysReport {
    /// Memory by process and place, and which of it belongs to a recording of the same run.
    ///
    /// # Errors
    /// If a device is requested that the profile does not have.
    pub fn of(profile: &NsysProfile, recording: Option<&Devices<'_>>, options: &NsysOptions) -> Result<Self> {
        let matches = recording.map(|recording| Matches::of(profile, recording));
        let mut groups: IndexMap<(Process, Place), Vec<usize>> = IndexMap::new();
        for (at, event) in profile.events.iter().enumerate() {
            groups.entry((event.process, Place::of(event.kind, event.device))).or_default().push(at);
        }
        groups.sort_by(|(process, place), _, (other, elsewhere), _| (place, process).cmp(&(elsewhere, other)));
        for wanted in &options.devices {
            if !groups.keys().any(|(_, place)| place.is(*wanted)) {
                let message = format!("expected a device with memory events in the profile, found {wanted}");
                return Err(Error::Request(message));
            }
        }
        groups.retain(|(_, place), _| {
            options.devices.is_empty() || options.devices.iter().any(|&wanted| place.is(wanted))
        });
        let memory = |((process, place), events): ((Process, Place), Vec<usize>)| {
            NsysMemory::of(profile, (process, place), &events, matches.as_ref())
        };
        let mut doubts: Vec<NsysDoubt> = profile.notes.iter().cloned().map(NsysDoubt::File).collect();
        doubts.extend((profile.other_events > 0).then_some(NsysDoubt::OtherEvents(profile.other_events)));
        doubts.extend((!profile.has_call_chains).then_some(NsysDoubt::NoChains));
        doubts.extend(profile.events.iter().all(|event| !event.is_free).then_some(NsysDoubt::NoFrees));
        let memories = groups.into_iter().map(memory).collect();
        Ok(Self {
            schema_version: profile.schema_version.clone(),
            bytes: profile.bytes,
            session_start_ns: profile.session_start_ns,
            memories,
            pytorch: matches.map(|matches| matches.share),
            doubts,
        })
    }

    pub fn contradictions(&self) -> u64 {
        let doubts = self.memories.iter().flat_map(|memory| &memory.doubts);
        doubts
            .map(|doubt| match doubt {
                NsysDoubt::AllocatedTwice(events) | NsysDoubt::SizesDiffer(events) => *events,
                _ => 0,
            })
            .sum()
    }
}

impl NsysMemory {
    fn of(
        profile: &NsysProfile,
        (process, place): (Process, Place),
        events: &[usize],
        matches: Option<&Matches>,
    ) -> Self {
        let blocks = Blocks::of(profile, events);
        let peak = blocks.peak(profile, process);
        let ranges = if peak.is_ok() { ranges::rows(profile, process, &blocks) } else { Vec::new() };
        let rows = holders::rows(profile, &blocks, matches);
        let program = profile.processes.iter().find(|(known, _)| *known == process).map(|(_, name)| name.clone());
        let gpu = profile.gpus.iter().find(|gpu| Some(gpu.device) == place.device()).cloned();
        Self {
            pid: process.pid(),
            program,
            place,
            gpu,
            allocations: blocks.all.len() as u64,
            frees: blocks.frees,
            allocated_bytes: blocks.all.iter().map(|block| block.bytes).sum(),
            peak,
            rows,
            ranges,
            doubts: blocks.doubts(),
        }
    }
}
