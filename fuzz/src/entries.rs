//! Any entries and segments at all, replayed, and every question asked about them.

use arbitrary::{Arbitrary, Result, Unstructured};
use memviz::Recording;
use memviz::input::Compression;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{
    Action, AllocatorSettings, Block, BlockState, DeviceTrace, EntryContext, Frame, HOST_DEVICE, Segment, SegmentType,
    Snapshot, StackId,
};
use memviz::replay::replay;

/// Device memory is used in units of this, so that ranges meet often.
const UNIT: u64 = 512 << 10;

/// What the entries and segments of a recording are.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    devices: Vec<DevicePlan>,
    max_split_size: Option<Number>,
    divisions: [u8; 16],
    has_times: bool,
}

#[derive(Arbitrary, Debug)]
struct DevicePlan {
    host: bool,
    truncated: bool,
    entries: Vec<EntryPlan>,
    segments: Vec<SegmentPlan>,
}

#[derive(Arbitrary, Debug)]
struct EntryPlan {
    action: u8,
    addr: Number,
    size: Number,
    time_us: i8,
    stream: u8,
    private_pool: Option<u8>,
    /// Among [`STACKS`].
    stack: u8,
}

/// File, line and function of each frame, innermost first: parts of a training step.
type Stack = &'static [(&'static str, u64, &'static str)];

const CALL: (&str, u64, &str) = ("/site-packages/torch/nn/modules/module.py", 7, "_call_impl");
const MAIN: (&str, u64, &str) = ("/home/user/train.py", 3, "main");

const STACKS: [Stack; 12] = [
    &[],
    &[("/home/user/model.py", 10, "forward"), CALL, MAIN],
    &[("/home/user/model.py", 11, "forward"), CALL, MAIN],
    &[("/home/user/model.py", 12, "forward"), CALL, MAIN],
    &[("/home/user/model.py", 12, "forward"), CALL, ("/home/user/model.py", 11, "forward"), CALL, MAIN],
    &[CALL, MAIN],
    &[MAIN],
    &[("/site-packages/torch/optim/adam.py", 5, "step"), MAIN],
    &[("/site-packages/torch/optim/optimizer.py", 5, "zero_grad"), MAIN],
    &[("/site-packages/torch/nn/modules/module.py", 5, "_apply"), MAIN],
    &[("/site-packages/torch/amp/autocast_mode.py", 5, "__exit__"), MAIN],
    &[("/home/user/model.py", 12, "forward"), ("/site-packages/torch/utils/checkpoint.py", 5, "unpack_hook")],
];

#[derive(Arbitrary, Debug)]
struct SegmentPlan {
    address: Number,
    large: bool,
    expandable: bool,
    blocks: Vec<(Number, Number, u8)>,
}

/// An address or a size.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub u64);

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self(match bytes.arbitrary::<u8>()? {
            extreme @ 0xfe.. => u64::from(extreme) << 56 | bytes.arbitrary::<u64>()? >> 8,
            0xfd => bytes.arbitrary()?,
            units => u64::from(units) * UNIT + 300 * u64::from(bytes.arbitrary::<u8>()? & 3),
        }))
    }
}

fn snapshot(plan: &Plan) -> Snapshot {
    let mut snapshot = Snapshot {
        settings: AllocatorSettings {
            recorded: true,
            max_split_size: plan.max_split_size.map(|size| size.0),
            roundup_power2_divisions: plan.divisions.map(u64::from),
            ..AllocatorSettings::default()
        },
        ..Snapshot::default()
    };
    snapshot.notes.has_times = plan.has_times;
    let stacks = STACKS.map(|stack| intern(&mut snapshot, stack));
    let hosts = plan.devices.iter().filter(|device| device.host).take(1).map(|device| (HOST_DEVICE, device));
    let others = plan.devices.iter().filter(|device| !device.host);
    for (device, contents) in hosts.chain((0..).zip(others)) {
        let start = snapshot.entries.len();
        for entry in &contents.entries {
            let context = EntryContext {
                stream: entry.stream.into(),
                pool: entry.private_pool.map(|pool| (0, pool.into())),
                ..EntryContext::default()
            };
            let context = snapshot.contexts.intern(context);
            snapshot.entries.push(TraceEntry {
                action: Action::ALL[usize::from(entry.action) % Action::ALL.len()],
                addr: entry.addr.0,
                size: entry.size.0,
                time_us: entry.time_us.into(),
                stack: stacks[usize::from(entry.stack) % stacks.len()],
                context,
            });
        }
        let rows = start..snapshot.entries.len();
        snapshot.traces.push(DeviceTrace { device, rows, truncated: contents.truncated });
        snapshot.segments.extend(contents.segments.iter().map(|plan| segment(device, plan)));
    }
    snapshot.segments.sort_by_key(|segment| (segment.device, segment.address));
    snapshot
}

fn intern(snapshot: &mut Snapshot, stack: Stack) -> StackId {
    let mut frames = Vec::new();
    for &(file, line, function) in stack {
        let filename = snapshot.strings.intern(file);
        let name = snapshot.strings.intern(function);
        frames.push(snapshot.stacks.intern_frame(Frame { filename, line, name, fx: None }));
    }
    snapshot.stacks.intern_stack(&frames)
}

/// A segment whose blocks tile it, and hold what was asked for. Like the reader's, it ends below 2^64.
fn segment(device: i32, plan: &SegmentPlan) -> Segment {
    let states = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive];
    let mut next = plan.address.0;
    let mut blocks = Vec::new();
    for &(size, requested_size, state) in &plan.blocks {
        let state = states[usize::from(state) % states.len()];
        let Some(end) = next.checked_add(size.0) else { break };
        blocks.push(Block {
            address: next,
            size: size.0,
            requested_size: requested_size.0.min(size.0),
            state,
            stack: StackId::EMPTY,
            forward: StackId::EMPTY,
        });
        next = end;
    }
    let sum = |counted: &[BlockState]| {
        let blocks = blocks.iter().filter(|block| counted.contains(&block.state));
        blocks.map(|block| block.size).sum()
    };
    Segment {
        device,
        address: plan.address.0,
        total_size: next - plan.address.0,
        allocated_size: sum(&states[..1]),
        active_size: sum(&states[..2]),
        requested_size: None,
        stream: 0,
        segment_type: if plan.large { SegmentType::Large } else { SegmentType::Small },
        pool: Some((0, 0)),
        is_expandable: plan.expandable,
        stack: StackId::EMPTY,
        blocks,
    }
}

impl Plan {
    /// The recording, replayed.
    pub fn recording(&self) -> Recording {
        let snapshot = snapshot(self);
        let histories = replay(&snapshot);
        super::check(&snapshot, &histories);
        Recording { snapshot, histories, compression: Compression::None, bytes: 0, device_file: None }
    }
}

/// Replays the entries, and asks.
pub fn run(plan: &Plan) {
    super::answer(&plan.recording());
}
