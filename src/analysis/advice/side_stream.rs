//! The allocator keeps free blocks for each stream: memory that was reserved for a second stream is unused while the first
//! requests more.
//!
//! **Sign:** a second stream, on which the program computes, has reserved memory at the end of the recording. A stream that
//! prepares the next batch is left out.
//!
//! **Fix:** run this code on the main stream. Its kernels then no longer run concurrently with others.
//!
//! **Figures** are simulated with the blocks of the second stream on the main one, without waits of `record_stream` and without a
//! second workspace of cuBLAS.

use super::dataloader_prefetch::passes;
use super::rules::Evidence;
use super::stacks::{Marked, common_line};
use super::{Finding, Fix, RuleKind};
use crate::facts::device::Device;
use crate::facts::training::{Category, Role};
use crate::model::bytes::Bytes;
use crate::model::{FrameId, PoolId, Segment, StackId};
use crate::replay::{History, NEVER};
use crate::simulation::changes::Lifetimes;
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The default stream counts as the main one if it requests at least 1/N of the bytes of the stream that requests the most.
const PART_OF_DEFAULT: u64 = 16;

/// Number of streams to examine, those that request the most: each finding is simulated.
const MOST_STREAMS: usize = 8;

#[derive(Default)]
struct Stream {
    blocks: Vec<u32>,
    stacks: Vec<StackId>,
    bytes: u64,
    /// Whether a communication library requests memory here: it needs its own streams.
    communicates: bool,
}

/// One finding for each of the streams that request the most, without the first.
pub(super) fn find(evidence: &Evidence<'_, '_>) -> Vec<Finding> {
    let device = evidence.device;
    let (track, history) = (device.track, device.history());
    // Most programs use only one stream.
    let mut numbers = device.snapshot().contexts.iter().map(|context| context.stream);
    if numbers.next().is_none_or(|first| numbers.all(|number| number == first)) {
        return Vec::new();
    }
    let communicates = Marked::of(device, |path, name, _| {
        path.starts_with("torch/distributed/") || path.starts_with("deepspeed/") || name.contains("c10d::")
    });
    let mut streams: BTreeMap<u64, Stream> = BTreeMap::new();
    for (index, allocation) in (0..).zip(&history.allocations) {
        let Some(entry) = History::entry_before(allocation.born) else { continue };
        let context = track.context(entry);
        if context.pool.is_some_and(|pool| pool != PoolId::default()) {
            continue;
        }
        let stream = streams.entry(context.stream).or_default();
        let stack = track.stack_of(index as usize);
        stream.blocks.push(index);
        stream.bytes = stream.bytes.saturating_add(allocation.size);
        stream.communicates |= communicates.has(stack);
        if stream.stacks.last() != Some(&stack) {
            stream.stacks.push(stack);
        }
    }
    let most = streams.iter().max_by_key(|(_, stream)| stream.bytes);
    // Number 0 is the stream on which all code runs that does not ask for another one.
    let default = streams
        .get_key_value(&0)
        .filter(|(_, default)| most.is_none_or(|(_, most)| default.bytes >= most.bytes / PART_OF_DEFAULT));
    let Some((&main, first)) = default.or(most) else { return Vec::new() };
    // Graphs are captured on their own stream, into their own pool.
    let is_private = |segment: &&Segment| segment.pool.is_some_and(|pool| pool != PoolId::default());
    let capturing: BTreeSet<u64> = track.segments().iter().filter(is_private).map(|segment| segment.stream).collect();
    let is_side = |number: u64, stream: &Stream| number != main && !stream.communicates && !capturing.contains(&number);
    let mut sides: Vec<(u64, &Stream)> = streams
        .iter()
        .map(|(&number, stream)| (number, stream))
        .filter(|&(number, stream)| is_side(number, stream))
        .collect();
    sides.sort_rows_by_key(|(_, stream)| Reverse(stream.bytes));
    sides.truncate(MOST_STREAMS);
    sides.into_iter().filter_map(|(number, stream)| finding(device, number, stream, (main, first))).collect()
}

/// `None` if nothing is reserved for the stream, or if all of its blocks are as batches are that it copies to the device for the next
/// step: then it exists to run beside the main stream.
fn finding(device: &Device<'_>, number: u64, stream: &Stream, (main_number, main): (u64, &Stream)) -> Option<Finding> {
    let (name, code) = if main_number == 0 {
        ("default stream", vec!["# without torch.cuda.stream(...) around it".to_owned()])
    } else {
        ("stream where the program allocates the most", Vec::new())
    };
    let &other = main.blocks.first()?;
    let line: Option<FrameId> = common_line(device, &stream.stacks);
    let reserved = device.track.segments().iter().filter(|segment| segment.stream == number);
    let reserved = reserved.fold(0u64, |sum, segment| sum.saturating_add(segment.total_size));
    let waiting = stream.blocks.iter().filter_map(|&block| {
        let made = device.history().allocations[block as usize];
        (made.completed != made.freed && made.freed != NEVER).then_some((block, made.freed))
    });
    let category = |&index: &u32| device.categories().get(index as usize).category;
    let computes = stream.blocks.iter().map(category).any(|it| !matches!(it, Category::Input | Category::Unknown));
    (reserved > 0 && computes && !is_one_ahead(device, stream)).then(|| Finding {
        kind: RuleKind::SideStreamStranding,
        line,
        evidence: format!(
            "{} is reserved for a side stream at the end of the recording; no other stream can use its free memory",
            Bytes(reserved)
        ),
        cost: Some("the kernels of this code then no longer run concurrently with others".to_owned()),
        fixes: vec![Fix::new(
            format!("run this code on the {name}"),
            code,
            Lifetimes {
                beside: stream.blocks.iter().map(|&block| (block, other)).collect(),
                removed: second_workspaces(device, main, stream),
                // With one stream, no free waits for another stream (`record_stream`).
                freed: waiting.collect(),
                ..Lifetimes::default()
            },
        )],
    })
}

/// Whether plain code prepares the next batch on a stream while the current one is in use: most of what it makes there and is live when
/// a forward pass starts is still live when the next one starts. Larger temporaries than the raw data would be stranded there.
fn is_one_ahead(device: &Device<'_>, stream: &Stream) -> bool {
    let starts = passes(device);
    let (mut used, mut ahead, mut largest, mut temporary) = (0u64, 0u64, 0u64, 0u64);
    for &index in &stream.blocks {
        let made = device.history().allocations[index as usize];
        match device.roles().role(device.track.stack_of(index as usize)) {
            Role::Plain | Role::Data | Role::Setup if made.freed != NEVER => {}
            Role::Module => return false,
            _ => continue,
        }
        match starts.iter().filter(|&&start| made.allocated_at(start)).count() {
            0 => temporary = temporary.max(made.size),
            count => {
                largest = largest.max(made.size);
                used = used.saturating_add(made.size);
                ahead = ahead.saturating_add(if count > 1 { made.size } else { 0 });
            }
        }
    }
    ahead > used / 2 && temporary <= largest / 2
}

/// Workspaces of libraries, which allocate one for each stream: on the main stream the code uses that of the main stream, so that the
/// earlier of both remains.
fn second_workspaces(device: &Device<'_>, main: &Stream, side: &Stream) -> Vec<u32> {
    let is_workspace = |&&index: &&u32| device.categories().get(index as usize).category == Category::Workspace;
    let size = |index: u32| device.history().allocations[index as usize].requested;
    let of_main: Vec<u32> = main.blocks.iter().filter(is_workspace).copied().collect();
    let stays = |&&index: &&u32| device.history().allocations[index as usize].freed == NEVER;
    let pairs = side.blocks.iter().filter(stays).filter_map(|&second| {
        let first = of_main.iter().copied().find(|&first| size(first) == size(second))?;
        Some(first.max(second))
    });
    pairs.collect::<BTreeSet<u32>>().into_iter().collect()
}
