//! Live bytes as a tree of stack frames, root to innermost.

use crate::analysis::peak::{DevicePeak, PeakOptions, PeakReport};
use crate::error::{Error, Result};
use crate::facts::code::frames::package;
pub use crate::facts::code::shown_frames::MAX_DEPTH;
use crate::facts::code::shown_frames::ShownFrames;
use crate::facts::code::sites::{CodeOrigin, Sites, clipped};
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::{GroupBy, Grouper, Holder, Key, Mean, whole};
use crate::facts::training::Category;
use crate::model::{FrameId, Snapshot, StackId};
use crate::parallel;
use crate::replay::{Instant, Metric};
use crate::sorting::SortRows;
use indexmap::IndexMap;
use std::collections::HashMap;
use std::sync::Arc;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct FlameOptions {
        /// The instant, counter, filters and devices, as for a peak; `by` and `top` have no meaning here.
        pub peak: PeakOptions,
        /// Whether to keep frames that only pass calls on, such as `_call_impl` of modules, C++ frames next to Python frames, and
        /// frames of the allocator, the dispatcher and the interpreter.
        pub all_frames: bool,
        /// Groups between the root and the frames; each block must be in one of them.
        pub split: Option<GroupBy>,
    }
}

#[derive(Clone, Debug, Default)]
pub struct FlameReport {
    pub devices: Vec<DeviceFlame>,
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct DeviceFlame {
    pub peak: DevicePeak,
    /// Frames, each before its callees, siblings in descending order of bytes. The first one is the root and holds everything.
    pub nodes: Vec<FlameNode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameNode {
    /// `file.py:line function`; for blocks without frames, the group. Shared, since one frame is a node below each of its callers.
    pub label: Arc<str>,
    pub owner: Owner,
    pub bytes: u64,
    /// The bytes that the frame itself holds, without its callees.
    pub own_bytes: u64,
    pub blocks: u64,
    /// The category of more than half of the bytes; `None` if there is none, and for segments.
    pub category: Option<Category>,
    /// Number of frames above; 0 for the root.
    pub depth: usize,
    /// Bytes to its left: those of the siblings before it, and those to the left of its caller.
    pub start: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A Python package, or a file of the user.
    Package(Arc<str>),
    /// C++.
    Native,
    /// A group of [`FlameOptions::split`].
    Group,
    /// No owner: the root, and blocks without frames.
    Nobody,
}

impl FlameNode {
    /// Rounds weights to whole bytes. Its own bytes are to the right of those of its callees.
    fn round(&mut self) {
        let end = self.start.wrapping_add(self.bytes);
        self.own_bytes = whole(end.wrapping_sub(self.own_bytes), self.own_bytes);
        self.bytes = whole(self.start, self.bytes);
        self.start = whole(0, self.start);
    }
}

impl FlameReport {
    /// Builds every device's tree.
    ///
    /// # Errors
    /// Like [`PeakReport::of`]; also if a block can be in several groups of [`FlameOptions::split`], or segments in none.
    pub fn of(recording: &Devices<'_>, options: &FlameOptions) -> Result<Self> {
        let peak = PeakOptions { by: GroupBy::Stack, top: None, ..options.peak.clone() };
        // Without stacks, there is one frame for all memory.
        Self::around(recording, PeakReport::of_any_grouping(recording, &peak)?, options)
    }

    /// Like [`FlameReport::of`], but at known instants.
    pub(crate) fn around(recording: &Devices<'_>, report: PeakReport, options: &FlameOptions) -> Result<Self> {
        if let Some(by) = options.split {
            by.require(options.peak.metric)?;
            if by.is_inclusive() {
                return Err(Error::Request(format!("groups by {} overlap, so they cannot split a tree", by.option())));
            }
        }
        let device = |peak: DevicePeak| {
            let device = recording.get(peak.device)?;
            let (metric, instant) = (peak.metric, peak.instant);
            let nodes = if options.peak.mean {
                let mean = Mean::of(device.track, peak.window.unwrap_or((0, peak.entries))).ok()?;
                let weigh = |holder: &Holder| mean.weight(holder);
                let mut nodes =
                    tree(device, metric, options, metric.name(), |born, gone| mean.counts(born, gone), weigh);
                nodes.iter_mut().for_each(FlameNode::round);
                nodes
            } else {
                let counts = |born, gone| born <= instant && instant < gone;
                tree(device, metric, options, metric.name(), counts, |holder| holder.bytes)
            };
            Some(DeviceFlame { peak, nodes })
        };
        Ok(Self { devices: parallel::filter_map(report.devices, device), skipped: report.skipped })
    }
}

names! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RangePart {
        /// Blocks allocated after its first instant, until its last one.
        Allocated = "allocated",
        /// Blocks freed in the range, whenever they were allocated.
        Freed = "freed",
        /// Blocks allocated in the range and live at its last instant.
        Survived = "survived",
    }
}

impl RangePart {
    pub const ALL: [Self; 3] = [Self::Allocated, Self::Freed, Self::Survived];
}

/// The tree of a part of a range: the metric determines what counts as allocated and freed.
pub fn of_range(
    device: &Device<'_>,
    metric: Metric,
    (from, to): (Instant, Instant),
    part: RangePart,
) -> Vec<FlameNode> {
    let counts = |born: Instant, gone: Instant| {
        let (is_new, is_gone) = (from < born && born <= to, from < gone && gone <= to);
        match part {
            RangePart::Allocated => is_new,
            RangePart::Freed => is_gone,
            RangePart::Survived => is_new && !is_gone,
        }
    };
    tree(device, metric, &FlameOptions::default(), part.name(), counts, |holder| holder.bytes)
}

/// The tree of all blocks whose lifetime counts, below a root with this name.
fn tree(
    device: &Device<'_>,
    metric: Metric,
    options: &FlameOptions,
    root: &str,
    counts: impl Fn(Instant, Instant) -> bool,
    bytes: impl Fn(&Holder) -> u64,
) -> Vec<FlameNode> {
    let grouper = |by| Grouper::new(device, device.sites(), &options.peak.filter, by);
    let stacks = grouper(GroupBy::Stack).inferring(device, options.peak.inference, metric);
    let split = options.split.map(grouper);
    let categories = (metric != Metric::Reserved).then(|| device.categories());
    let mut sums: IndexMap<(Option<Key>, Key, Option<Category>), Held> = IndexMap::new();
    Holder::visit(device.track, metric, counts, |holder| {
        let group = split.as_ref().and_then(|split| split.keys(holder).into_iter().next());
        let category = categories.map(|categories| categories.get(holder.index).category);
        for key in stacks.keys(holder) {
            // Without a stack, the category says what the memory is for.
            let before = category.filter(|category| key.is_before() && category.is_known());
            sums.entry((group.clone(), key, before)).or_default().add(&Held::block(bytes(holder), category));
        }
    });
    let mut tree = Tree::new();
    let mut paths = Paths {
        sites: device.sites(),
        snapshot: device.snapshot(),
        shown: ShownFrames::new(device.sites(), options.all_frames),
        known: HashMap::new(),
    };
    for ((group, key, before), held) in sums {
        // Blocks that a filter excludes, or that are from before the recording, need no group of the same name around them.
        let group = group.filter(|group| *group != key).zip(split.as_ref());
        let mut frames: Vec<_> =
            group.map(|(group, split)| (split.label(&group, false).into(), Owner::Group)).into_iter().collect();
        match key {
            Key::Stack(origin) => frames.extend(paths.of_origin(origin)),
            key => frames.push((stacks.label(&key, false).into(), Owner::Nobody)),
        }
        frames.extend(before.map(|category| (category.name().replace('_', " ").into(), Owner::Nobody)));
        tree.add(frames, &held);
    }
    tree.flatten(root)
}

struct Paths<'a> {
    sites: &'a Sites<'a>,
    snapshot: &'a Snapshot,
    shown: ShownFrames<'a>,
    known: HashMap<FrameId, (Arc<str>, Owner)>,
}

impl Paths<'_> {
    /// Frames of an allocation, root first: its own frames are inside those of the forward stack that it belongs to.
    fn of_origin(&mut self, origin: CodeOrigin) -> Vec<(Arc<str>, Owner)> {
        let own = self.of_stack(origin.stack);
        let Some(forward) = origin.forward else { return own };
        let mut frames = self.of_stack(forward);
        frames.push((origin.marker().into(), Owner::Nobody));
        frames.extend(own);
        frames.truncate(MAX_DEPTH);
        frames
    }

    fn of_stack(&mut self, stack: StackId) -> Vec<(Arc<str>, Owner)> {
        self.shown.of(stack).into_iter().map(|id| self.named(id)).collect()
    }

    fn named(&mut self, id: FrameId) -> (Arc<str>, Owner) {
        let (sites, snapshot) = (self.sites, self.snapshot);
        let name = || {
            let file = snapshot.stacks.frame(id).map_or("", |frame| snapshot.strings.get(frame.filename));
            let python = sites.kind(id).is_python();
            (sites.label(id).into(), if python { Owner::Package(clipped(package(file)).into()) } else { Owner::Native })
        };
        self.known.entry(id).or_insert_with(name).clone()
    }
}

#[derive(Clone, Default)]
struct Held {
    bytes: u64,
    blocks: u64,
    categories: [u64; Category::ALL.len()],
}

impl Held {
    fn block(bytes: u64, category: Option<Category>) -> Self {
        let mut held = Self { bytes, blocks: 1, ..Self::default() };
        if let Some(category) = category {
            held.categories[category as usize] = bytes;
        }
        held
    }

    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.blocks += other.blocks;
        for (sum, bytes) in self.categories.iter_mut().zip(other.categories) {
            *sum = sum.wrapping_add(bytes);
        }
    }

    /// The category of more than half of the bytes.
    fn category(&self) -> Option<Category> {
        Category::ALL.into_iter().find(|&category| self.categories[category as usize] > self.bytes / 2)
    }
}

struct Tree {
    nodes: Vec<Branch>,
    by_frame: HashMap<(usize, Arc<str>), usize>,
}

#[derive(Default)]
struct Branch {
    owner: Option<Owner>,
    label: Arc<str>,
    held: Held,
    own_bytes: u64,
    callees: Vec<usize>,
}

impl Tree {
    fn new() -> Self {
        Self { nodes: vec![Branch::default()], by_frame: HashMap::new() }
    }

    fn add(&mut self, path: Vec<(Arc<str>, Owner)>, held: &Held) {
        let mut at = 0;
        self.nodes[at].held.add(held);
        for (label, owner) in path {
            let known = self.by_frame.get(&(at, Arc::clone(&label))).copied();
            let next = known.unwrap_or_else(|| {
                let next = self.nodes.len();
                self.nodes.push(Branch { owner: Some(owner), label: Arc::clone(&label), ..Branch::default() });
                self.nodes[at].callees.push(next);
                self.by_frame.insert((at, label), next);
                next
            });
            at = next;
            self.nodes[at].held.add(held);
        }
        self.nodes[at].own_bytes = self.nodes[at].own_bytes.wrapping_add(held.bytes);
    }

    fn flatten(mut self, root: &str) -> Vec<FlameNode> {
        self.nodes[0].label = root.into();
        let mut flat = Vec::with_capacity(self.nodes.len());
        let mut left = vec![(0, 0, 0)];
        while let Some((index, depth, start)) = left.pop() {
            let mut callees = std::mem::take(&mut self.nodes[index].callees);
            callees.sort_rows_by(|&a, &b| {
                let (a, b) = (&self.nodes[a], &self.nodes[b]);
                b.held.bytes.cmp(&a.held.bytes).then_with(|| a.label.cmp(&b.label))
            });
            let mut callee_start: u64 = start;
            let placed: Vec<_> = callees
                .into_iter()
                .map(|callee| {
                    let place = (callee, depth + 1, callee_start);
                    callee_start = callee_start.wrapping_add(self.nodes[callee].held.bytes);
                    place
                })
                .collect();
            left.extend(placed.into_iter().rev());
            let Branch { owner, label, held, own_bytes, .. } = std::mem::take(&mut self.nodes[index]);
            let owner = owner.unwrap_or(Owner::Nobody);
            let category = held.category();
            let Held { bytes, blocks, .. } = held;
            flat.push(FlameNode { label, owner, bytes, own_bytes, blocks, category, depth, start });
        }
        flat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_become_a_tree_with_the_largest_first() {
        let mut tree = Tree::new();
        let held = |bytes, blocks| Held { bytes, blocks, ..Held::default() };
        let path = |labels: &[&str]| labels.iter().map(|&label| (label.into(), Owner::Native)).collect();
        tree.add(path(&["main", "small"]), &held(1, 1));
        tree.add(path(&["main", "large"]), &held(5, 2));
        tree.add(path(&["main"]), &held(2, 1));
        tree.add(path(&["main", "small"]), &held(3, 1));
        let nodes = tree.flatten("allocated");
        let shown: Vec<_> = nodes
            .iter()
            .map(|node| (&*node.label, node.depth, node.start, node.bytes, node.own_bytes, node.blocks))
            .collect();
        let expected = [
            ("allocated", 0, 0, 11, 0, 5),
            ("main", 1, 0, 11, 2, 5),
            ("large", 2, 0, 5, 5, 2),
            ("small", 2, 5, 4, 4, 2),
        ];
        assert_eq!(shown, expected);
    }
}
