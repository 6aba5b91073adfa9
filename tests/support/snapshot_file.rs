//! A recording as the Python objects that PyTorch pickles, in the layouts of several versions, and as plain facts to compare
//! with the result of a reader.

use super::allocator_model::{Entry, FinalBlock, FinalSegment, MIB};
use super::pickle_writer::Node;
use super::programs::{self, Recording, SITES};
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{
    Action, AllocatorSettings, Block, BlockState, DeviceId, HOST_DEVICE, PoolId, Segment, SegmentType, Snapshot,
    StackId, Stage,
};

/// Which of a snapshot's layouts is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// No times, settings, pools or addresses of blocks; a block's stack is in its history.
    V2_0,
    /// No annotations, metadata or pools of entries.
    V2_3,
    V2_15,
}

/// A snapshot and all variations of its layout.
#[derive(Clone, Debug)]
pub struct File {
    pub recording: Recording,
    pub version: Version,
    /// Whether the last device is written as pinned host memory.
    pub host: bool,
    pub annotations: Vec<AnnotationFacts>,
    /// Number of devices without a trace.
    pub idle: usize,
    /// Ranks of keys: the keys of a dictionary are written by rank.
    pub key_order: Vec<u8>,
    /// Whether entries of one call site share lists of frames: one list for every second round of operations.
    pub shared_stacks: bool,
    /// Whether pool ids are lists, as after a round trip through JSON.
    pub pools_as_lists: bool,
    /// An entry of the first device and the key of a number in it, which is replaced by an impossible one.
    pub impossible: Option<(usize, &'static str, Impossible)>,
}

/// A number that no size, address or stream can be.
#[derive(Clone, Copy, Debug)]
pub enum Impossible {
    /// As far below zero as the true one is above: it is written as the true one would be.
    Negated,
    Any(i128),
}

impl Impossible {
    /// What is written in place of the true number.
    pub fn number(self, truth: i128) -> i128 {
        match self {
            Self::Negated => -1 - truth,
            Self::Any(number) => number,
        }
    }
}

/// One end of a range: whether it is the start, its name, device and time.
pub type AnnotationFacts = (bool, String, DeviceId, i64);

/// Everything in a snapshot, without handles.
#[derive(Clone, Debug)]
pub struct Facts {
    pub entries: Vec<EntryFacts>,
    pub segments: Vec<SegmentFacts>,
    pub annotations: Vec<AnnotationFacts>,
    pub settings: AllocatorSettings,
}

/// File, line and function of each frame.
type Frames = Vec<(String, u64, String)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFacts {
    pub device: DeviceId,
    pub action: Action,
    pub addr: u64,
    pub size: u64,
    pub time_us: i64,
    pub stream: u64,
    pub pool: Option<PoolId>,
    pub compile_context: String,
    pub user_metadata: String,
    pub frames: Frames,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    pub device: DeviceId,
    pub address: u64,
    /// Total, allocated and active bytes.
    pub sizes: [u64; 3],
    pub requested_size: Option<u64>,
    pub stream: u64,
    pub segment_type: SegmentType,
    pub pool: Option<PoolId>,
    pub is_expandable: bool,
    pub frames: Frames,
    pub blocks: Vec<BlockFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    pub address: u64,
    pub size: u64,
    pub requested_size: u64,
    pub state: BlockState,
    pub frames: Frames,
}

impl Facts {
    /// The content of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let text = |id| snapshot.strings.get(id).to_owned();
        let frames = |id: StackId| -> Frames {
            let frames = snapshot.stacks.frames(id);
            frames.map(|frame| (text(frame.filename), frame.line, text(frame.name))).collect()
        };
        let entry = |device: DeviceId, entry: TraceEntry| {
            let context = snapshot.contexts.get(entry.context);
            EntryFacts {
                device,
                action: entry.action,
                addr: entry.addr,
                size: entry.size,
                time_us: entry.time_us,
                stream: context.stream,
                pool: context.pool,
                compile_context: text(context.compile_context),
                user_metadata: text(context.user_metadata),
                frames: frames(entry.stack),
            }
        };
        let block = |block: &Block| BlockFacts {
            address: block.address,
            size: block.size,
            requested_size: block.requested_size,
            state: block.state,
            frames: frames(block.stack),
        };
        let segment = |segment: &Segment| SegmentFacts {
            device: segment.device,
            address: segment.address,
            sizes: [segment.total_size, segment.allocated_size, segment.active_size],
            requested_size: segment.requested_size,
            stream: segment.stream,
            segment_type: segment.segment_type,
            pool: segment.pool,
            is_expandable: segment.is_expandable,
            frames: frames(segment.stack),
            blocks: segment.blocks.iter().map(block).collect(),
        };
        let annotations = snapshot.annotations.iter().map(|annotation| {
            let is_start = annotation.stage == Stage::Start;
            (is_start, text(annotation.name), annotation.device, annotation.time_us)
        });
        let traces = snapshot.traces.iter();
        let rows = traces.flat_map(|trace| snapshot.entries.rows(trace.rows.clone()).map(|row| (trace.device, row)));
        Self {
            entries: rows.map(|(device, row)| entry(device, row)).collect(),
            segments: snapshot.segments.iter().map(segment).collect(),
            annotations: annotations.collect(),
            settings: snapshot.settings.clone(),
        }
    }
}

impl File {
    /// What a reader must find in the file.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::of(&self.recording.snapshot());
        let device = |index: DeviceId| self.device(index as usize);
        for entry in &mut facts.entries {
            entry.device = device(entry.device);
            if self.version != Version::V2_15 {
                entry.pool = None;
                entry.user_metadata.clear();
            }
            if self.version == Version::V2_0 {
                entry.compile_context.clear();
            }
        }
        for segment in &mut facts.segments {
            segment.device = device(segment.device);
            if self.version == Version::V2_0 {
                segment.pool = None;
                segment.is_expandable = false;
                segment.requested_size = None;
                segment.frames.clear();
            }
        }
        // Host memory comes first.
        facts.entries.sort_by_key(|entry| entry.device);
        facts.segments.sort_by_key(|segment| (segment.device, segment.address));
        if self.version == Version::V2_0 {
            facts.settings = AllocatorSettings::default();
            let (mut device, mut index) = (None, 0);
            for entry in &mut facts.entries {
                index = if device == Some(entry.device) { index + 1 } else { 0 };
                device = Some(entry.device);
                entry.time_us = index;
            }
        } else {
            facts.settings.alloc_conf = self.alloc_conf();
            facts.settings.garbage_collection_threshold = 0.25;
            facts.settings.other = vec![("release_lock_on_cudamalloc".to_owned(), "false".to_owned())];
        }
        facts.annotations.clone_from(&self.annotations);
        facts
    }

    /// The object that `_dump_snapshot` would pickle.
    pub fn pickle(&self) -> Node {
        let stacks: Vec<_> = (0..SITES).map(|site| self.stacks(site)).collect();
        let devices: Vec<_> = (0..self.recording.logs.len()).map(|index| (index, self.device(index))).collect();
        let (host, devices): (Vec<_>, Vec<_>) = devices.into_iter().partition(|&(_, device)| device == HOST_DEVICE);

        let segments = |devices: &[(usize, DeviceId)]| {
            let all = devices.iter().flat_map(|&(index, device)| {
                self.recording.logs[index].segments.iter().map(move |segment| (device, segment))
            });
            Node::list(all.map(|(device, segment)| self.segment(device, segment, &stacks)))
        };
        let trace = |index: usize| {
            let entries = self.recording.logs[index].entries.iter().enumerate();
            Node::list(entries.map(|(row, entry)| {
                let impossible = self.impossible.filter(|&(damaged, ..)| (index, row) == (0, damaged));
                self.entry(row, entry, &stacks, impossible.map(|(_, key, instead)| (key, instead)))
            }))
        };
        let idle = (0..self.idle).map(|_| Node::list([]));
        let mut pairs = vec![
            ("segments", segments(&devices)),
            ("device_traces", Node::list(devices.iter().map(|&(index, _)| trace(index)).chain(idle))),
        ];
        if self.version != Version::V2_0 {
            pairs.push(("allocator_settings", self.settings()));
        }
        if self.version == Version::V2_15 {
            pairs.push(("external_annotations", self.annotations()));
            pairs.push(("host_segments", segments(&host)));
            pairs.push(("host_traces", host.first().map_or(Node::list([]), |&(index, _)| trace(index))));
        }
        self.dict(pairs)
    }

    /// The number of a device in the file.
    pub fn device(&self, index: usize) -> DeviceId {
        let is_host = self.host && index + 1 == self.recording.logs.len();
        if is_host { HOST_DEVICE } else { index as DeviceId }
    }

    fn dict(&self, mut pairs: Vec<(&str, Node)>) -> Node {
        let mut ranks = self.key_order.iter().cycle();
        pairs.sort_by_cached_key(|_| ranks.next());
        Node::dict(pairs)
    }

    /// Two lists of the same frames for a call site. Only the first one to be written holds the frames themselves.
    fn stacks(&self, site: usize) -> [Node; 2] {
        let frames = programs::frames(site).into_iter().map(|(filename, line, name)| {
            self.dict(vec![
                ("filename", Node::str(filename)),
                ("line", Node::Int(line.into())),
                ("name", Node::str(name)),
            ])
        });
        let frames: Vec<_> = frames.collect();
        [Node::list(frames.clone()), Node::list(frames)]
    }

    /// The frames of an operation's call site: one of its lists, or a separate list with the same frames.
    fn frames(&self, op: usize, stacks: &[[Node; 2]]) -> Node {
        match &stacks[programs::site(op)][op / SITES % 2] {
            Node::List(frames) if !self.shared_stacks => Node::list(frames.iter().cloned()),
            shared => shared.clone(),
        }
    }

    fn pool(&self, private_pool: u64) -> Node {
        let (first, second) = programs::pool_id(private_pool);
        let parts = [first, second].map(|part| Node::Int(part.into()));
        if self.pools_as_lists { Node::list(parts) } else { Node::tuple(parts) }
    }

    fn entry(&self, row: usize, entry: &Entry, stacks: &[[Node; 2]], impossible: Option<(&str, Impossible)>) -> Node {
        let site = programs::site(entry.op);
        let addr = if entry.action == Action::Oom { "device_free" } else { "addr" };
        let mut pairs = vec![
            ("action", Node::str(entry.action.name())),
            (addr, Node::Int(entry.addr.into())),
            ("size", Node::Int(entry.size.into())),
            ("stream", Node::Int(entry.stream.into())),
        ];
        if self.version != Version::V2_0 {
            pairs.push(("time_us", Node::Int(programs::time(row).into())));
            pairs.push(("compile_context", Node::str(programs::compile_context(site))));
        }
        if self.version == Version::V2_15 {
            let text = programs::user_metadata(site);
            let object = serde_json::from_str(text).map(|object| json_node(&object));
            pairs.push(("user_metadata", object.unwrap_or_else(|_| Node::str(text))));
            pairs.push(("pool_id", self.pool(entry.private_pool)));
        }
        if entry.action != Action::Snapshot {
            pairs.push(("frames", self.frames(entry.op, stacks)));
        }
        for (key, value) in &mut pairs {
            if let (Node::Int(number), Some((damaged, instead))) = (value, impossible)
                && damaged == *key
            {
                *number = instead.number(*number);
            }
        }
        self.dict(pairs)
    }

    fn segment(&self, device: DeviceId, segment: &FinalSegment, stacks: &[[Node; 2]]) -> Node {
        let sum = |counts: fn(&FinalBlock) -> Option<u64>| {
            Node::Int(segment.blocks.iter().filter_map(counts).map(i128::from).sum())
        };
        let blocks = segment.blocks.iter().enumerate();
        let mut pairs = vec![
            ("device", Node::Int(device.into())),
            ("address", Node::Int(segment.blocks[0].addr.into())),
            ("total_size", sum(|block| Some(block.size))),
            ("allocated_size", sum(|block| (block.state == BlockState::ActiveAllocated).then_some(block.size))),
            ("active_size", sum(|block| (block.state != BlockState::Inactive).then_some(block.size))),
            ("stream", Node::Int(segment.stream.into())),
            ("segment_type", Node::str(if segment.small { "small" } else { "large" })),
            ("blocks", Node::list(blocks.map(|(index, block)| self.block(index, block, stacks)))),
        ];
        if self.version != Version::V2_0 {
            let requested = |block: &FinalBlock| (block.state != BlockState::Inactive).then_some(block.requested);
            pairs.push(("requested_size", sum(requested)));
            pairs.push(("segment_pool_id", self.pool(segment.private_pool)));
            pairs.push(("is_expandable", Node::Bool(segment.expandable)));
            pairs.push(("frames", self.frames(segment.blocks[0].op, stacks)));
        }
        self.dict(pairs)
    }

    fn block(&self, index: usize, block: &FinalBlock, stacks: &[[Node; 2]]) -> Node {
        let state = match block.state {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree if index.is_multiple_of(2) => "active_pending_free",
            BlockState::ActivePendingFree => "active_awaiting_free",
            BlockState::Inactive => "inactive",
        };
        let frames = self.frames(block.op, stacks);
        let mut pairs = vec![
            ("size", Node::Int(block.size.into())),
            ("requested_size", Node::Int(block.requested.into())),
            ("state", Node::str(state)),
        ];
        if self.version == Version::V2_0 {
            let newest = vec![
                ("addr", Node::Int(block.addr.into())),
                ("real_size", Node::Int(block.requested.into())),
                ("frames", frames),
            ];
            pairs.push(("history", Node::list([self.dict(newest)])));
        } else {
            pairs.push(("address", Node::Int(block.addr.into())));
            pairs.push(("frames", frames));
        }
        self.dict(pairs)
    }

    fn annotations(&self) -> Node {
        Node::list(self.annotations.iter().map(|(is_start, name, device, time_us)| {
            self.dict(vec![
                ("stage", Node::str(if *is_start { "START" } else { "END" })),
                ("name", Node::str(name)),
                ("device", Node::Int((*device).into())),
                ("time_us", Node::Int((*time_us).into())),
            ])
        }))
    }

    fn alloc_conf(&self) -> String {
        let config = &self.recording.config;
        config.max_split_size.map_or(String::new(), |limit| format!("max_split_size_mb:{}", limit / MIB))
    }

    fn settings(&self) -> Node {
        let config = &self.recording.config;
        let divisions = config.divisions.iter().enumerate();
        let divisions: Vec<_> = divisions.map(|(power, &count)| ((1u64 << power).to_string(), count)).collect();
        let divisions = divisions.iter().map(|(bucket, count)| (bucket.as_str(), Node::Int((*count).into())));
        let max_split_size = config.max_split_size.map_or(-1, i128::from);
        let expandable = self.recording.snapshot().settings.expandable_segments;
        self.dict(vec![
            ("PYTORCH_CUDA_ALLOC_CONF", Node::str(self.alloc_conf())),
            ("max_split_size", Node::Int(max_split_size)),
            ("garbage_collection_threshold", Node::Float(0.25)),
            ("expandable_segments", Node::Bool(expandable)),
            ("release_lock_on_cudamalloc", Node::Bool(false)),
            ("roundup_power2_divisions", self.dict(divisions.collect())),
        ])
    }
}

/// What JSON describes.
fn json_node(value: &serde_json::Value) -> Node {
    match value {
        serde_json::Value::Object(pairs) => {
            Node::dict(pairs.iter().map(|(key, value)| (key.as_str(), json_node(value))))
        }
        serde_json::Value::Array(items) => Node::list(items.iter().map(json_node)),
        serde_json::Value::Bool(value) => Node::Bool(*value),
        serde_json::Value::String(text) => Node::str(text),
        other => match other.as_i64() {
            Some(number) => Node::Int(number.into()),
            None => Node::Float(other.as_f64().unwrap()),
        },
    }
}
