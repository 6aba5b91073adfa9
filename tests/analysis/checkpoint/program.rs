//! A training program made up for a test, and what PyTorch would have recorded of it.
//!
//! Each block gets a segment of exactly its size, so that the replay has nothing to infer.

use memviz::Recording;
use memviz::input::Compression;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, ContextId, DeviceTrace, EntryContext, Frame, Snapshot, StackId};
use memviz::replay::replay;

/// Microseconds between two entries.
pub const TICK: i64 = 10;

/// A block that the program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(usize);

/// Where the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// On a line of `Block.forward`, which `Model.forward` calls on its line 5.
    Block(u64),
    /// The same, called on line 4.
    Frozen(u64),
    /// On a line of `Model.forward` itself.
    Model(u64),
    /// In backward: the engine has no Python stack.
    Backward,
}

/// A program that runs, on one device.
#[derive(Debug)]
pub struct Program {
    snapshot: Snapshot,
    context: ContextId,
    now: i64,
    next: u64,
    /// Address and size of each block.
    blocks: Vec<(u64, u64)>,
}

impl Program {
    pub fn new() -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.notes.has_times = true;
        snapshot.settings.recorded = true;
        let context = snapshot.contexts.intern(EntryContext { pool: Some((0, 0)), ..EntryContext::default() });
        Self { snapshot, context, now: 1_700_000_000_000_000, next: 1 << 40, blocks: Vec::new() }
    }

    pub fn alloc(&mut self, at: At, size: u64) -> Held {
        let addr = self.next;
        self.next += size;
        self.push(Action::SegmentAlloc, addr, size, at);
        self.push(Action::Alloc, addr, size, at);
        self.blocks.push((addr, size));
        Held(self.blocks.len() - 1)
    }

    pub fn free(&mut self, at: At, Held(block): Held) {
        let (addr, size) = self.blocks[block];
        for action in [Action::FreeRequested, Action::FreeCompleted, Action::SegmentFree] {
            self.push(action, addr, size, at);
        }
    }

    /// A request that fails.
    pub fn oom(&mut self, at: At) {
        self.push(Action::Oom, 0, 1 << 30, at);
    }

    /// Takes the snapshot; every block must be freed by then, unless the program ran out of memory.
    pub fn dump(mut self) -> Recording {
        let rows = 0..self.snapshot.entries.len();
        self.snapshot.traces.push(DeviceTrace { device: 0, rows, truncated: false });
        let histories = replay(&self.snapshot);
        Recording { snapshot: self.snapshot, histories, compression: Compression::None, bytes: 0, device_file: None }
    }

    fn push(&mut self, action: Action, addr: u64, size: u64, at: At) {
        self.now += TICK;
        let (stack, time_us, context) = (self.stack(at), self.now, self.context);
        self.snapshot.entries.push(TraceEntry { action, addr, size, time_us, stack, context });
    }

    fn stack(&mut self, at: At) -> StackId {
        const CALL: (&str, &str, u64) = ("/opt/site-packages/torch/nn/modules/module.py", "_call_impl", 1790);
        const MODEL: &str = "/home/user/model.py";
        const TRAIN: (&str, &str, u64) = ("/home/user/train.py", "main", 3);
        let frames = match at {
            At::Block(line) => vec![(MODEL, "forward", line), CALL, (MODEL, "forward", 5), CALL, TRAIN],
            At::Frozen(line) => vec![(MODEL, "forward", line), CALL, (MODEL, "forward", 4), CALL, TRAIN],
            At::Model(line) => vec![(MODEL, "forward", line), CALL, TRAIN],
            At::Backward => Vec::new(),
        };
        let Snapshot { strings, stacks, .. } = &mut self.snapshot;
        let frame = |(file, name, line): (&str, &str, u64)| {
            let (filename, name) = (strings.intern(file), strings.intern(name));
            Frame { filename, name, line, fx: None }
        };
        let ids: Vec<_> = frames.into_iter().map(frame).map(|frame| stacks.intern_frame(frame)).collect();
        stacks.intern_stack(&ids)
    }
}
