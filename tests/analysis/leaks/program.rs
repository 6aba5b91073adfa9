//! Programs made up for a test, and what PyTorch would have recorded of them.
//!
//! Each block gets a segment of exactly its size, so that the replay has nothing to infer and no anomaly to find.

use memviz::Recording;
use memviz::input::Compression;
use memviz::model::trace_entry::{TraceEntries, TraceEntry};
use memviz::model::{
    Action, Annotation, Block, BlockState, ContextId, DeviceTrace, EntryContext, Frame, FrameId, Segment, SegmentType,
    Snapshot, StackId, Stage,
};
use memviz::replay::replay;

/// Microseconds between two entries.
const TICK: i64 = 10;

/// A block that a program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(usize);

/// A program that runs, on one device.
#[derive(Debug)]
pub struct Program {
    snapshot: Snapshot,
    context: ContextId,
    now: i64,
    next: u64,
    /// Address, requested bytes and stack of every block, until it is freed.
    blocks: Vec<Option<(u64, u64, StackId)>>,
    /// Entries before this one are dropped.
    kept_from: usize,
}

impl Program {
    pub fn new() -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.notes.has_times = true;
        snapshot.settings.recorded = true;
        let context = snapshot.contexts.intern(EntryContext { pool: Some((0, 0)), ..EntryContext::default() });
        Self { snapshot, context, now: 1_700_000_000_000_000, next: 1 << 40, blocks: Vec::new(), kept_from: 0 }
    }

    /// Allocates on a line of `train.py`; on line 0 without any stack, as a backward pass does.
    pub fn alloc(&mut self, line: u64, size: u64) -> Held {
        let stack = self.stack(line);
        self.alloc_with(stack, size)
    }

    /// Allocates with these frames around it: file, function and line, innermost first.
    pub fn alloc_in(&mut self, frames: &[(String, String, u64)], size: u64) -> Held {
        let ids: Vec<FrameId> = frames
            .iter()
            .map(|(file, function, line)| {
                let strings = &mut self.snapshot.strings;
                let (filename, name) = (strings.intern(file), strings.intern(function));
                self.snapshot.stacks.intern_frame(Frame { filename, name, line: *line, fx: None })
            })
            .collect();
        let stack = self.snapshot.stacks.intern_stack(&ids);
        self.alloc_with(stack, size)
    }

    fn alloc_with(&mut self, stack: StackId, size: u64) -> Held {
        let addr = self.next;
        self.next += block_size(size);
        self.push(Action::SegmentAlloc, addr, block_size(size), stack);
        self.push(Action::Alloc, addr, size, stack);
        self.blocks.push(Some((addr, size, stack)));
        Held(self.blocks.len() - 1)
    }

    pub fn free(&mut self, held: Held) {
        let (addr, size, stack) = self.blocks[held.0].take().expect("freed once");
        self.push(Action::FreeRequested, addr, size, stack);
        self.push(Action::FreeCompleted, addr, size, stack);
        self.push(Action::SegmentFree, addr, block_size(size), stack);
    }

    /// Temporary allocations of a step; their sizes depend on `length`, like those of batches.
    pub fn work(&mut self, length: u64) {
        let temporaries: Vec<Held> = (0..12).map(|layer| self.alloc(100 + layer, (layer + 1) * length * 512)).collect();
        for temporary in temporaries {
            self.free(temporary);
        }
    }

    /// A request that fails while the device has this much free.
    pub fn oom(&mut self, device_free: u64) {
        let stack = self.stack(999);
        self.push(Action::Oom, device_free, 1 << 30, stack);
    }

    /// Runs `body` inside a `record_function` range.
    pub fn annotated(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        self.annotate(Stage::Start, name);
        body(self);
        self.annotate(Stage::End, name);
    }

    pub fn annotate(&mut self, stage: Stage, name: &str) {
        let name = self.snapshot.strings.intern(name);
        self.now += TICK;
        self.snapshot.annotations.push(Annotation { stage, name, device: 0, time_us: self.now });
        self.now += TICK;
    }

    /// Whether anything was recorded.
    pub fn has_entries(&self) -> bool {
        self.snapshot.entries.len() > self.kept_from
    }

    /// Forgets everything recorded so far, as a recording that starts here would.
    pub fn start_recording(&mut self) {
        self.kept_from = self.snapshot.entries.len();
        self.snapshot.annotations.clear();
    }

    /// Takes the snapshot.
    pub fn dump(mut self) -> Recording {
        let entries: Vec<TraceEntry> =
            self.snapshot.entries.rows(self.kept_from..self.snapshot.entries.len()).collect();
        self.snapshot.entries = TraceEntries::default();
        self.snapshot.entries.extend(&entries);
        let segments = self.blocks.iter().flatten().map(|&(address, requested, stack)| {
            let size = block_size(requested);
            let state = BlockState::ActiveAllocated;
            Segment {
                device: 0,
                address,
                total_size: size,
                allocated_size: size,
                active_size: size,
                requested_size: Some(requested),
                stream: 0,
                segment_type: if size <= 1 << 20 { SegmentType::Small } else { SegmentType::Large },
                pool: Some((0, 0)),
                is_expandable: false,
                stack,
                blocks: vec![Block { address, size, requested_size: requested, state, stack, forward: StackId::EMPTY }],
            }
        });
        self.snapshot.segments = segments.collect();
        let rows = 0..self.snapshot.entries.len();
        if !rows.is_empty() || !self.snapshot.segments.is_empty() {
            self.snapshot.traces.push(DeviceTrace { device: 0, rows, truncated: false });
        }
        let histories = replay(&self.snapshot);
        let recording = Recording {
            snapshot: self.snapshot,
            histories,
            compression: Compression::None,
            bytes: 0,
            device_file: None,
        };
        assert_eq!(recording.anomalies(), 0, "the program is one that PyTorch could have recorded");
        recording
    }

    fn stack(&mut self, line: u64) -> StackId {
        if line == 0 {
            return StackId::EMPTY;
        }
        let strings = &mut self.snapshot.strings;
        let (filename, torch) =
            (strings.intern("/home/user/train.py"), strings.intern("/opt/site-packages/torch/nn.py"));
        let (name, main) = (strings.intern("step"), strings.intern("main"));
        let frame = |filename, name, line| Frame { filename, name, line, fx: None };
        let frames = [frame(torch, name, 1), frame(filename, name, line), frame(filename, main, 1000)];
        let ids = frames.map(|frame| self.snapshot.stacks.intern_frame(frame));
        self.snapshot.stacks.intern_stack(&ids)
    }

    fn push(&mut self, action: Action, addr: u64, size: u64, stack: StackId) {
        self.now += TICK;
        let (time_us, context) = (self.now, self.context);
        self.snapshot.entries.push(TraceEntry { action, addr, size, time_us, stack, context });
    }
}

/// The block that a request gets if no other block is free.
fn block_size(requested: u64) -> u64 {
    requested.max(1).next_multiple_of(512)
}
