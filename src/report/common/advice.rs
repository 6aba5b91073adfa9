//! Python code that records what a recording lacks, for the PyTorch release that wrote it.

use crate::Recording;
use crate::facts::code::frames::FrameKind;
use crate::model::bytes::Bytes;
use crate::model::{CPU_DEVICE, Format, Frame, HOST_DEVICE, Snapshot, StackId};
use crate::replay::{History, Metric, Track};
use crate::report::common::words::share;

/// What a recording lacks, and the code that records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is missing, in a sentence without a full stop.
    pub missing: String,
    /// Lines of Python, at most 46 columns wide; none if the recording is otherwise fine, so that the sentence is enough.
    pub code: &'static [&'static str],
}

/// `torch/cuda/memory.py` of 2.1 and later: without arguments, every entry is kept, with its stack.
const SNAPSHOT: &[&str] = &[
    "from torch.cuda import memory",
    "memory._record_memory_history(",
    "    max_entries=1_000_000)",
    "...  # build the model and run a few steps",
    "memory._dump_snapshot(\"snapshot.pickle\")",
];

/// The same for 2.0, which by default keeps one entry without stacks, and writes no file itself.
const SNAPSHOT_2_0: &[&str] = &[
    "import pickle",
    "from torch.cuda import memory",
    "memory._record_memory_history(",
    "    True, trace_alloc_max_entries=1_000_000,",
    "    trace_alloc_record_context=True)",
    "...  # build the model and run a few steps",
    "with open(\"snapshot.pickle\", \"wb\") as file:",
    "    pickle.dump(memory._snapshot(), file)",
];

const TRACE: &[&str] = &[
    "from torch.profiler import profile",
    "with profile(profile_memory=True,",
    "             with_stack=True) as prof:",
    "    ...  # run a step",
    "prof.export_chrome_trace(\"trace.json.gz\")",
];

/// How to record more; `None` if the recording is as complete as it can be.
pub fn advice(recording: &Recording) -> Option<Advice> {
    let snapshot = &recording.snapshot;
    match snapshot.notes.format {
        Format::CudaSnapshot => of_snapshot(snapshot, &recording.histories),
        Format::ProfilerTrace if snapshot.entries.is_empty() => None,
        Format::ProfilerTrace if has_python(snapshot) => {
            late(snapshot, &recording.histories, "start the profiler before the model is built")
        }
        Format::ProfilerTrace => {
            let missing = "this trace has no Python stacks, so sites are operators instead of lines of code";
            Some(Advice { missing: missing.to_owned(), code: TRACE })
        }
        Format::MemoryTimeline => {
            let missing = "a memory timeline has no stacks; a trace recorded with stacks shows lines of code";
            Some(Advice { missing: missing.to_owned(), code: TRACE })
        }
        Format::DeviceMemoryProfile => None,
    }
}

/// How to record a snapshot, if the recording is none: only snapshots can be simulated.
pub fn for_simulation(recording: &Recording) -> Option<Advice> {
    let is_none = !recording.snapshot.notes.format.has_segments();
    let missing = "this recording does not contain the requests to the allocator; a snapshot does";
    is_none.then(|| Advice { missing: missing.to_owned(), code: SNAPSHOT })
}

fn of_snapshot(snapshot: &Snapshot, histories: &[History]) -> Option<Advice> {
    let code = if snapshot.is_of_2_0() { SNAPSHOT_2_0 } else { SNAPSHOT };
    let devices: Vec<&History> = histories.iter().filter(|history| is_cuda(history)).collect();
    // The part that a cut removed was recorded.
    if devices.is_empty() || snapshot.notes.truncated_at.is_some() {
        return None;
    }
    let all = |holds: &dyn Fn(&History) -> bool| devices.iter().all(|history| holds(history));
    let loud = |missing: &str| Some(Advice { missing: missing.to_owned(), code });
    if all(&|history| history.completeness.no_entries) {
        return loud("no entries were recorded: the snapshot contains only the state at dump time");
    }
    if all(&|history| Track::new(snapshot, history).has_only_markers()) {
        return loud("nothing was allocated or freed after the first kept entry, the marker of an earlier snapshot");
    }
    if all(&|history| history.entries() <= 1 && history.completeness.has_baseline) {
        return loud("only one entry was kept, so the peak and its cause are unknown");
    }
    if snapshot.stacks.len() == 1 {
        return loud("no stacks were recorded, so no line of code can be named");
    }
    if devices.iter().any(|history| history.completeness.ring_full || history.completeness.overflowed) {
        let missing = "the ring buffer was too small for the whole run: a larger max_entries in \
                       torch.cuda.memory._record_memory_history() keeps more of it";
        return Some(Advice { missing: missing.to_owned(), code: &[] });
    }
    let call = if snapshot.is_of_2_0() {
        "torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=1_000_000, \
         trace_alloc_record_context=True)"
    } else {
        "torch.cuda.memory._record_memory_history()"
    };
    late(snapshot, histories, &format!("start recording before the model is built: {call}"))
}

/// Advice for a recording that starts late, given how to start it earlier.
fn late(snapshot: &Snapshot, histories: &[History], earlier: &str) -> Option<Advice> {
    let devices = histories.iter().filter(|history| is_cuda(history));
    let late = devices.map(|history| (unknown_bytes(snapshot, history), history));
    let (bytes, history) =
        late.filter(|&(bytes, history)| bytes >= tenth_of_peak(history)).max_by_key(|late| late.0)?;
    let peak = u64::try_from(history.maxima[Metric::Allocated as usize].bytes).unwrap_or(0);
    let missing = format!(
        "{} of the peak ({}) was allocated before the recording and has no stack. To see which code allocated it, {earlier}",
        Bytes(bytes),
        share(bytes, peak)
    );
    Some(Advice { missing, code: &[] })
}

fn is_cuda(history: &History) -> bool {
    history.device != HOST_DEVICE && history.device != CPU_DEVICE
}

/// Bytes at the peak that are from before the recording and whose stacks the file does not contain.
fn unknown_bytes(snapshot: &Snapshot, history: &History) -> u64 {
    let track = Track::new(snapshot, history);
    let peak = history.maxima[Metric::Allocated as usize].instant;
    // They come first.
    let older = history.allocations.iter().enumerate().take_while(|(_, allocation)| allocation.is_baseline());
    let unknown =
        older.filter(|&(index, allocation)| peak < allocation.freed && track.stack_of(index) == StackId::EMPTY);
    unknown.fold(0, |sum: u64, (_, allocation)| sum.saturating_add(allocation.size))
}

/// A tenth of the peak: unknown memory matters from this size on.
fn tenth_of_peak(history: &History) -> u64 {
    let peak = history.maxima[Metric::Allocated as usize].bytes;
    u64::try_from(peak / 10).unwrap_or(0).max(1)
}

/// Whether the frames of a recording are operators: a profiler trace without Python stacks.
pub(crate) fn has_only_operators(snapshot: &Snapshot) -> bool {
    snapshot.notes.format == Format::ProfilerTrace && !has_python(snapshot)
}

fn has_python(snapshot: &Snapshot) -> bool {
    let is_python = |frame: &Frame| FrameKind::of(frame, &snapshot.strings).is_python();
    snapshot.stacks.all_frames().any(is_python)
}
