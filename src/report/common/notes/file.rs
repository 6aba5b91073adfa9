//! What a file lacks as a whole, and what memviz did not understand.

use super::text::{device_name, safe};
use crate::Recording;
use crate::input::Compression;
use crate::model::bytes::Bytes;
use crate::model::profile::DeviceType;
use crate::model::{DeviceId, Format, SourceNotes};
use crate::report::common::rehearsed;
use crate::report::common::words::count;
use crate::sorting::SortRows;
use indexmap::IndexSet;

/// Lines on the file itself: what it is, and what was cut off, not recorded or not understood.
pub fn source(recording: &Recording) -> Vec<String> {
    file(recording).into_iter().map(|note| note.text).collect()
}

pub struct FileNote {
    pub text: String,
    /// Whether it only describes the file: nothing is wrong, and no figure is in doubt.
    pub is_plain: bool,
}

impl<T: Into<String>> From<T> for FileNote {
    fn from(text: T) -> Self {
        Self { text: text.into(), is_plain: false }
    }
}

impl FileNote {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_plain: true }
    }
}

pub fn file(recording: &Recording) -> Vec<FileNote> {
    let snapshot = &recording.snapshot;
    let notes = &snapshot.notes;
    let mut lines: Vec<FileNote> = Vec::new();
    if let Some(rehearsal) = &notes.rehearsal {
        let said = rehearsed::lines(rehearsal).into_iter();
        lines.extend(said.map(|(text, is_in_doubt)| FileNote { text, is_plain: !is_in_doubt }));
    }
    if let Some(at) = notes.truncated_at {
        let of = if recording.compression == Compression::None { "" } else { " of the unpacked data" };
        lines.push(format!("the file is cut off at byte {at}{of}; memviz read the part before it").into());
    }
    if notes.segments_truncated {
        lines.push("the list of segments was cut off: totals at dump time are lower bounds".into());
    }
    match notes.format {
        Format::CudaSnapshot => {}
        Format::ProfilerTrace => lines.push(FileNote::plain(
            "a profiler trace does not record segments, or how blocks are placed in them: it shows fragmentation only as reserved minus allocated",
        )),
        Format::MemoryTimeline => lines.push(FileNote::plain(
            "a memory timeline records only categories: no segments, reserved memory or stacks; its device is unnamed, so memviz calls it device 0",
        )),
        Format::DeviceMemoryProfile => lines.push(FileNote::plain(
            "a JAX device memory profile shows the live buffers at one instant: no reserved memory, and no memory that a \
             running program uses internally",
        )),
    }
    if !snapshot.settings.recorded && !snapshot.entries.is_empty() && notes.format == Format::CudaSnapshot {
        lines.push("allocator settings were not recorded; block sizes are computed with PyTorch's defaults".into());
    }
    if let Some(from) = &notes.device_memory_from {
        let sizes: IndexSet<u64> = notes.device_memory.iter().map(|&(_, memory)| memory).collect();
        let sizes: Vec<String> = sizes.into_iter().map(|memory| Bytes(memory).to_string()).collect();
        lines.push(FileNote::plain(format!("memory of the device, according to {}: {}", safe(from), sizes.join(", "))));
    }
    if let Some(device_type) = notes.device_type.filter(|&known| known != DeviceType::Cuda) {
        lines.push(FileNote::plain(format!("memory of {}", device_type.name())));
    }
    if !notes.device_names.is_empty() {
        const SHOWN: usize = 16;
        let name = |(device, name): &(DeviceId, String)| format!("{} is {}", device_name(*device), safe(name));
        let mut devices = notes.device_names.clone();
        devices.sort_rows_by_key(|&(device, _)| device);
        let names: Vec<String> = devices.iter().take(SHOWN).map(name).collect();
        let more = if notes.device_names.len() > SHOWN { ", ..." } else { "" };
        lines.push(FileNote::plain(format!("{}{more}", names.join(", "))));
    }
    if notes.no_addresses {
        lines.push(
            "memory events have no addresses (before PyTorch 1.11): each free is assumed to release the latest block of its size; \
             the curve is as recorded, but which code holds which memory is inferred"
                .into(),
        );
    }
    if notes.segments_only {
        lines.push(FileNote::plain(
            "a list of segments, as torch.cuda.memory_snapshot() returns it: the state at one instant; \
             torch.cuda.memory._record_memory_history() and _dump_snapshot() record the history that led to it",
        ));
    }
    if snapshot.lacks_gpu_memory() {
        lines.push(
            "kernels ran on a GPU, but its memory was not recorded: the program did not use PyTorch's caching allocator \
             (PYTORCH_NO_CUDA_MEMORY_CACHING=1, or another allocator), or the profiler did not record memory there"
                .into(),
        );
    }
    if notes.coarse_times {
        lines.push(
            "times are in whole microseconds, as recorded before PyTorch 2.4: an allocation between two operators or lines may be \
             attributed to either"
                .into(),
        );
    }
    if !notes.left_out.is_empty() {
        lines.push(format!("left out: {}", listed(&notes.left_out)).into());
    }
    if notes.unread_forward_lines > 0 {
        let lines_of = count(notes.unread_forward_lines, "line");
        lines.push(format!("left out: {lines_of} of forward_frames not in the format of a Python traceback").into());
    }
    if notes.frames_in_part > 0 {
        let frames = count(notes.frames_in_part, "frame");
        lines
            .push(format!("{frames} without a file, a line or a name: memory may be attributed to other lines").into());
    }
    if notes.followed {
        lines.push("more data follows the recording, perhaps a second dump; only the first is analyzed".into());
    }
    lines.extend(not_understood(notes));
    lines
}

/// Names with the number of times each occurs.
fn listed(counts: &indexmap::IndexMap<String, u64>) -> String {
    let shown: Vec<String> = counts.iter().take(8).map(|(name, count)| format!("{name} ({count}x)")).collect();
    let more = counts.len().saturating_sub(8);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

fn not_understood(notes: &SourceNotes) -> Vec<FileNote> {
    let mut lines: Vec<FileNote> = Vec::new();
    for value in &notes.malformed {
        lines.push(format!("{value}; the default is assumed").into());
    }
    if !notes.unknown_actions.is_empty() {
        lines.push(format!("entries with unknown actions were skipped: {}", listed(&notes.unknown_actions)).into());
    }
    if !notes.unknown_keys.is_empty() {
        lines.push(format!("unknown keys were ignored: {}", listed(&notes.unknown_keys)).into());
    }
    lines
}

/// A line about the ring buffer of the recording, if the file describes it.
pub fn ring(notes: &SourceNotes) -> Option<String> {
    let overflowed = match notes.trace_overflowed {
        Some(true) => "; at least one of them dropped entries",
        Some(false) => "; none of them dropped entries",
        None => "",
    };
    let capacity = notes.ring_capacity?;
    let entries = if capacity == 1 { "entry" } else { "entries" };
    Some(format!("ring buffers of {capacity} {entries}, one per device{overflowed}"))
}
