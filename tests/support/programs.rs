//! Random programs for the allocator model, and the snapshots that PyTorch would have written for them.

use super::allocator_model::{self, Config, Expandable, FinalBlock, FinalSegment, Log, MIB, Op};
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{
    Action, AllocatorSettings, Block, BlockState, DeviceTrace, EntryContext, Frame, PoolId, Segment, SegmentType,
    Snapshot, StackId,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Clock of the first entry, in microseconds.
pub const EPOCH: i64 = 1_700_000_000_000_000;
/// Distinct call sites that operations come from.
pub const SITES: usize = 7;
/// A CUDA stream other than the default one.
const SIDE_STREAM: u64 = 94_045_812_966_496;
/// First address of each device. Those of the last one need all 64 bits.
const BASES: [u64; 3] = [1 << 42, 2 << 42, 1 << 63];

/// A program for each of a few devices.
#[derive(Clone, Debug)]
pub struct Program {
    pub config: Config,
    pub devices: Vec<Vec<Op>>,
}

/// What the allocators did, one log for each device.
#[derive(Clone, Debug)]
pub struct Recording {
    pub config: Config,
    pub logs: Vec<Log>,
}

/// Programs on up to three devices; `checksums` mixes `snapshot` entries in.
pub fn programs(expandable: impl Strategy<Value = Expandable>, checksums: bool) -> impl Strategy<Value = Program> {
    let pools = (prop::sample::select(vec![0, 0, 0, SIDE_STREAM]), prop::sample::select(vec![0, 0, 0, 1]));
    let device = prop_oneof![
        2 => vec(op(size(), pools, checksums), 0..100),
        1 => refilling(checksums),
    ];
    let device = (device, 1..4usize).prop_map(|(ops, repeat)| ops.repeat(repeat));
    (config(expandable), vec(device, 1..=3)).prop_map(|(config, devices)| Program { config, devices })
}

/// Programs whose blocks keep a remainder that is too small to be split off, and then get free memory after them: one segment
/// is divided into equal blocks, every second one is freed and reused by a slightly smaller one, and in the end most of them
/// are freed.
fn refilling(checksums: bool) -> impl Strategy<Value = Vec<Op>> {
    let alloc = |size| Op::Alloc { size, stream: 0, private_pool: 0 };
    let free = (0..1000usize).prop_map(|pick| Op::Free { pick });
    let last = prop_oneof![4 => free, u32::from(checksums) => Just(Op::Snapshot)];
    (vec(0..=MIB, 1..8), vec(last, 0..16)).prop_map(move |(less, last)| {
        let mut ops = vec![alloc(64 * MIB), Op::Free { pick: 0 }];
        ops.extend(vec![alloc(4 * MIB); 2 * less.len()]);
        // Blocks are selected by address: earlier frees have moved the next one to the place of its neighbor.
        ops.extend((0..less.len()).map(|pick| Op::Free { pick }));
        ops.extend(less.into_iter().map(|less| alloc(4 * MIB - less)));
        ops.extend(last);
        ops
    })
}

/// Segments that are either all regular or all expandable.
pub fn plain_or_expandable() -> impl Strategy<Value = Expandable> {
    prop_oneof![2 => Just(Expandable::Never), 1 => Just(Expandable::Always)]
}

fn config(expandable: impl Strategy<Value = Expandable>) -> impl Strategy<Value = Config> {
    let max_split_size = prop_oneof![2 => Just(None), 1 => (21..70u64).prop_map(|mib| Some(mib * MIB))];
    let divisions = prop_oneof![
        2 => Just([0; 16]),
        1 => prop::array::uniform16(prop::sample::select(vec![0, 1, 2, 4, 8, 16])),
    ];
    let capacity = prop::sample::select(vec![96 * MIB, 256 * MIB, 2048 * MIB]);
    let spacing = prop::sample::select(vec![0, 2 * MIB, 64 * MIB]);
    (expandable, max_split_size, divisions, capacity, spacing).prop_map(
        |(expandable, max_split_size, divisions, capacity, spacing)| Config {
            expandable,
            max_split_size,
            divisions,
            capacity,
            spacing,
        },
    )
}

/// One operation; `pools` yields pairs of stream and private pool.
fn op(
    sizes: impl Strategy<Value = u64>,
    pools: impl Strategy<Value = (u64, u64)>,
    checksums: bool,
) -> impl Strategy<Value = Op> {
    let pick = 0..1000usize;
    prop_oneof![
        24 => (sizes, pools)
            .prop_map(|(size, (stream, private_pool))| Op::Alloc { size, stream, private_pool }),
        20 => pick.clone().prop_map(|pick| Op::Free { pick }),
        4 => pick.clone().prop_map(|pick| Op::RecordStream { pick }),
        3 => pick.clone().prop_map(|pick| Op::CompleteFree { pick }),
        1 => Just(Op::EmptyCache),
        1 => pick.prop_map(|pick| Op::Annotate { pick }),
        u32::from(checksums) * 8 => Just(Op::Snapshot),
    ]
}

/// Sizes around every limit that the allocator knows.
fn size() -> impl Strategy<Value = u64> {
    let quarters = (4..100u64, 0..1500u64).prop_map(|(quarters, more)| quarters * (MIB / 4) + more);
    prop_oneof![
        2 => 1..4096u64,
        2 => 1..=MIB,
        1 => MIB - 1024..=MIB + 1024,
        4 => MIB..12 * MIB,
        4 => quarters,
        2 => 8 * MIB..70 * MIB,
    ]
}

impl Program {
    pub fn run(&self) -> Recording {
        let logs = self.devices.iter().zip(BASES).map(|(ops, base)| allocator_model::run(&self.config, base, ops));
        Recording { config: self.config.clone(), logs: logs.collect() }
    }
}

impl Recording {
    /// The content of the snapshot: each device's entries and segments.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { settings: self.settings(), ..Snapshot::default() };
        snapshot.notes.has_times = true;
        let stacks: Vec<StackId> = (0..SITES).map(|site| stack(&mut snapshot, site)).collect();
        for (device, log) in (0..).zip(&self.logs) {
            let start = snapshot.entries.len();
            for (index, entry) in log.entries.iter().enumerate() {
                let site = site(entry.op);
                let context = EntryContext {
                    stream: entry.stream,
                    pool: Some(pool_id(entry.private_pool)),
                    compile_context: snapshot.strings.intern(compile_context(site)),
                    user_metadata: snapshot.strings.intern(user_metadata(site)),
                    ..EntryContext::default()
                };
                let context = snapshot.contexts.intern(context);
                // PyTorch's own entries have no stack.
                let stack = if entry.action == Action::Snapshot { StackId::EMPTY } else { stacks[site] };
                snapshot.entries.push(TraceEntry {
                    action: entry.action,
                    addr: entry.addr,
                    size: entry.size,
                    time_us: time(index),
                    stack,
                    context,
                });
            }
            let rows = start..snapshot.entries.len();
            if !rows.is_empty() || !log.segments.is_empty() {
                snapshot.traces.push(DeviceTrace { device, rows, truncated: false });
            }
            snapshot.segments.extend(log.segments.iter().map(|segment| final_segment(device, segment, &stacks)));
        }
        snapshot
    }

    fn settings(&self) -> AllocatorSettings {
        AllocatorSettings {
            recorded: true,
            max_split_size: self.config.max_split_size,
            expandable_segments: self.config.expandable != Expandable::Never,
            roundup_power2_divisions: self.config.divisions,
            ..AllocatorSettings::default()
        }
    }

    /// The same recording with a later start: of each device's entries, those before the cut (in thousandths) are missing.
    pub fn cut(mut self, thousandths: &[usize]) -> Self {
        for (log, thousandth) in self.logs.iter_mut().zip(thousandths) {
            let cut = log.entries.len() * thousandth / 1000;
            log.entries.drain(..cut);
            log.moments.drain(..cut);
        }
        self
    }
}

/// Time of the entry with this index: some neighbors are equal, as in real recordings.
pub fn time(index: usize) -> i64 {
    EPOCH + 3 * (index as i64 / 2)
}

/// The call site of an operation.
pub fn site(op: usize) -> usize {
    op % SITES
}

/// Frames of a call site, innermost first, as file, line and function: zero to five.
pub fn frames(site: usize) -> Vec<(String, u64, String)> {
    let frame = |depth: usize| {
        let line = if depth == 4 { u64::MAX } else { (site * 1000 + depth) as u64 };
        (format!("/home/user/train/part{depth}.py"), line, format!("function_{site}"))
    };
    (0..site.min(5)).map(frame).collect()
}

/// The `torch.compile` context of a call site.
pub fn compile_context(site: usize) -> &'static str {
    if site == 1 { "0/0" } else { "N/A" }
}

/// What the user attached to the allocations of a call site: nothing, a text, or the JSON text of a dictionary.
pub fn user_metadata(site: usize) -> &'static str {
    match site % 3 {
        0 => "weights",
        1 => {
            r#"{"action": "warm \"up\"", "layer": [3, -1, 2.5, true], "more": {"deep": {"é": []}, "seed": 12345678901}}"#
        }
        _ => "",
    }
}

/// The id of a pool by its number.
pub fn pool_id(private_pool: u64) -> PoolId {
    (0, private_pool)
}

fn stack(snapshot: &mut Snapshot, site: usize) -> StackId {
    let ids: Vec<_> = frames(site)
        .into_iter()
        .map(|(filename, line, name)| {
            let (filename, name) = (snapshot.strings.intern(&filename), snapshot.strings.intern(&name));
            snapshot.stacks.intern_frame(Frame { filename, name, line, fx: None })
        })
        .collect();
    snapshot.stacks.intern_stack(&ids)
}

fn final_segment(device: i32, segment: &FinalSegment, stacks: &[StackId]) -> Segment {
    let is_active = |block: &&FinalBlock| block.state != BlockState::Inactive;
    let active = || segment.blocks.iter().filter(is_active);
    let allocated = active().filter(|block| block.state == BlockState::ActiveAllocated);
    Segment {
        device,
        address: segment.blocks[0].addr,
        total_size: segment.blocks.iter().map(|block| block.size).sum(),
        allocated_size: allocated.map(|block| block.size).sum(),
        active_size: active().map(|block| block.size).sum(),
        requested_size: Some(active().map(|block| block.requested).sum()),
        stream: segment.stream,
        segment_type: if segment.small { SegmentType::Small } else { SegmentType::Large },
        pool: Some(pool_id(segment.private_pool)),
        is_expandable: segment.expandable,
        stack: stacks[site(segment.blocks[0].op)],
        blocks: segment
            .blocks
            .iter()
            .map(|block| Block {
                address: block.addr,
                size: block.size,
                requested_size: block.requested,
                state: block.state,
                stack: stacks[site(block.op)],
                forward: StackId::EMPTY,
            })
            .collect(),
    }
}
