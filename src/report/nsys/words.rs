//! The sentences and labels of `memviz nsys`, for every format.

use crate::analysis::nsys::{
    NoPeak, NsysDoubt, NsysHolder, NsysMemory, NsysPeak, NsysReport, NsysRow, Place, PytorchShare,
};
use crate::model::bytes::Bytes;
use crate::model::nsys::MemoryKind;
use crate::report::common::fit::shorten_end;
use crate::report::common::words::count;

const LONGEST_NAME: usize = 40;

/// `Device 0 (NVIDIA H100, 79.10 GiB), process 4711 (python): peak 12.34 GiB after 3.210 s, in step 2`.
pub(super) fn headline(memory: &NsysMemory) -> String {
    let subject = format!("{}, {}", place(memory), process(memory.pid, memory.program.as_deref()));
    match &memory.peak {
        Ok(peak) => format!("{subject}: peak {} after {}{}", Bytes(peak.bytes), seconds(peak), within(peak)),
        Err(_) => format!("{subject}: {} allocated in total", Bytes(memory.allocated_bytes)),
    }
}

fn process(pid: i64, program: Option<&str>) -> String {
    let program = program.map(|name| format!(" ({})", name.rsplit(['/', '\\']).next().unwrap_or(name)));
    format!("process {pid}{}", program.unwrap_or_default())
}

fn place(memory: &NsysMemory) -> String {
    let Place::Device(device) = memory.place else { return place_name(memory.place).to_owned() };
    let gpu = memory.gpu.as_ref();
    let facts =
        [gpu.and_then(|gpu| gpu.name.clone()), gpu.and_then(|gpu| gpu.total_bytes).map(|all| Bytes(all).to_string())];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    format!("Device {device}{facts}")
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Device(_) => "Device",
        Place::Managed => "Managed memory",
        Place::Pinned => "Pinned host memory",
        Place::Pageable => "Pageable host memory",
        Place::Unknown => "Memory of an unknown kind",
    }
}

fn seconds(peak: &NsysPeak) -> String {
    format!("{:.3} s", peak.time_ns as f64 / 1e9)
}

fn within(peak: &NsysPeak) -> String {
    let shown = &peak.open_ranges[peak.open_ranges.len().saturating_sub(2)..];
    let shown: Vec<String> = shown.iter().map(|name| short(name)).collect();
    if shown.is_empty() { String::new() } else { format!(", in {}", shown.join(" > ")) }
}

/// The name of a range, cut if it is longer than a table has room for.
pub(super) fn short(name: &str) -> String {
    shorten_end(name, LONGEST_NAME)
}

pub(super) fn holder(holder: &NsysHolder) -> String {
    match holder {
        NsysHolder::Pytorch => "PyTorch's allocator".to_owned(),
        NsysHolder::Library(name) => name.clone(),
        NsysHolder::Unknown => "unknown".to_owned(),
    }
}

pub(super) fn kind_name(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Pageable => "pageable",
        MemoryKind::Pinned => "pinned",
        MemoryKind::Device => "device",
        MemoryKind::Array => "array",
        MemoryKind::Managed => "managed",
        MemoryKind::DeviceStatic => "device_static",
        MemoryKind::ManagedStatic => "managed_static",
        MemoryKind::Unknown => "unknown",
    }
}

/// `PyTorch's allocator, by cudaMalloc`.
pub(super) fn row(row: &NsysRow) -> String {
    let kind = match row.kind {
        MemoryKind::Array => "CUDA arrays",
        MemoryKind::DeviceStatic | MemoryKind::ManagedStatic => "variables of device code",
        _ => "",
    };
    let call = row.call.as_ref().map(|call| format!("by {call}"));
    let who = match row.holder {
        NsysHolder::Unknown if call.is_some() || !kind.is_empty() => String::new(),
        _ => holder(&row.holder),
    };
    let parts = [who, kind.to_owned(), call.unwrap_or_default()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

pub(super) fn notes(memory: &NsysMemory) -> Vec<String> {
    let no_peak = memory.peak.as_ref().err().map(|why| match why {
        NoPeak::NoTimes(time) => format!(
            "no peak: the profile has {} and {}, but every event has the same time, {time}, so their order is unknown",
            count(memory.allocations as usize, "allocation"),
            count(memory.frees as usize, "free")
        ),
    });
    no_peak.into_iter().chain(memory.doubts.iter().map(doubt)).collect()
}

pub(super) fn file_notes(report: &NsysReport) -> Vec<String> {
    report.doubts.iter().map(doubt).collect()
}

fn doubt(doubt: &NsysDoubt) -> String {
    match doubt {
        NsysDoubt::NoFrees => {
            "the profile has no frees: if the program freed memory, the true peak may be lower".to_owned()
        }
        NsysDoubt::FreedUnseen(number) => format!(
            "{} of memory allocated before the profile began: such memory is not counted, so the figures are lower bounds",
            count(*number as usize, "free")
        ),
        NsysDoubt::AllocatedTwice(number) => format!(
            "{} at an address that was still allocated: the free is missing, and memviz assumes that it happened just before the allocation",
            count(*number as usize, "allocation")
        ),
        NsysDoubt::SizesDiffer(number) => {
            format!("{} with a size other than that of the allocation: memviz uses the size of the allocation", count(*number as usize, "free"))
        }
        NsysDoubt::Pooled { allocations, pool_bytes } => format!(
            "{} from stream-ordered memory pools (cudaMallocAsync): figures count such allocations, not the memory that the pools held (up to {} in one pool)",
            count(*allocations as usize, "allocation"),
            Bytes(*pool_bytes)
        ),
        NsysDoubt::NoChains => {
            "no call chains, so libraries are unknown: nsys profile --cuda-memory-usage=true --cudabacktrace=memory records them"
                .to_owned()
        }
        NsysDoubt::OtherEvents(number) => {
            format!("left out: {} that are neither allocations nor frees", count(*number as usize, "memory event"))
        }
        NsysDoubt::File(note) => note.clone(),
    }
}

/// The part of the profile that a recording of PyTorch shows.
pub(super) fn pytorch(share: &PytorchShare) -> Vec<String> {
    let segments = count(share.segments as usize, "segment");
    let mut lines = vec![match share.pid {
        Some(pid) if share.found == share.segments => format!(
            "The recording is of process {pid}: the profile contains {} ({})",
            if share.found == 1 { "its only segment".to_owned() } else { format!("all of its {segments}") },
            Bytes(share.found_bytes)
        ),
        Some(pid) => format!(
            "The recording is of process {pid}: the profile contains {} of its {segments} ({} of {})",
            share.found,
            Bytes(share.found_bytes),
            Bytes(share.segment_bytes)
        ),
        None => {
            let none = match share.segments {
                1 => "The only segment of the recording is not".to_owned(),
                _ => format!("None of the {segments} of the recording are"),
            };
            format!("{none} in the profile: are both from the same run?")
        }
    }];
    if share.repeated > 0 {
        lines.push(format!(
            "{} with the address and size of a segment {} counted as PyTorch's: the recording may have started later",
            count(share.repeated as usize, "more allocation"),
            if share.repeated == 1 { "is" } else { "are" }
        ));
    }
    if share.expandable > 0 {
        lines.push(format!(
            "{} of expandable segments cannot be matched by address",
            count(share.expandable as usize, "mapped range")
        ));
    }
    lines
}
