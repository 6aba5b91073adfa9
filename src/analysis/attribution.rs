//! Who holds the memory at an instant.

use super::annotations::Annotations;
use super::filter::Filter;
use super::frames::FrameKind;
use super::layout::Layout;
use super::sites::{NO_STACK, Sites, line_label};
use crate::model::{PoolId, Snapshot, StackId, StrId};
use crate::replay::{BaselineOrigin, History, Instant, Metric};
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use std::collections::HashMap;

/// What rows stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The line of the user's own code: see [`Sites::site_frame`].
    #[default]
    Site,
    /// The whole stack.
    Stack,
    /// Every function on the stack, inclusive: a block counts once in each of them, so rows overlap.
    Function,
    /// The file of the site.
    File,
    /// The Python package: see [`Sites::module`].
    Module,
    /// The CUDA stream.
    Stream,
    /// The memory pool.
    Pool,
    /// The `record_function` ranges that were open at the allocation.
    Annotation,
}

impl GroupBy {
    /// The name as in flags and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Stack => "stack",
            Self::Function => "function",
            Self::File => "file",
            Self::Module => "module",
            Self::Stream => "stream",
            Self::Pool => "pool",
            Self::Annotation => "annotation",
        }
    }

    /// Whether rows overlap, so that they do not sum to the total.
    pub fn is_inclusive(self) -> bool {
        self == Self::Function
    }
}

/// Bytes held by one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The group.
    pub label: String,
    /// Bytes of the metric.
    pub bytes: u64,
    /// Blocks; segments for [`Metric::Reserved`].
    pub blocks: u64,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
    /// The stack with most bytes in the group, innermost frame first; empty where stacks are not what is grouped.
    pub stack: Vec<String>,
}

/// Label of the row that [`Attribution::keep_top`] sums up the rest in.
pub const OTHER: &str = "(other)";
/// Label of blocks from before the first kept entry whose stack the file does not hold.
pub const BASELINE: &str = "(before the recording)";
/// Label of blocks that a filter excludes.
pub const FILTERED: &str = "(filtered out)";
/// Label of blocks allocated outside of any annotation.
pub const NO_ANNOTATION: &str = "(no annotation)";
/// Label of blocks whose pool the file does not tell.
pub const UNKNOWN_POOL: &str = "(pool not recorded)";

/// Who holds the memory at an instant. Rows sum to the total, unless grouping is inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// What rows stand for.
    pub by: GroupBy,
    /// Bytes of the metric at the instant.
    pub total_bytes: u64,
    /// Groups, largest first.
    pub rows: Vec<Row>,
}

/// Label of ranges whose stream the file does not tell.
pub const UNKNOWN_STREAM: &str = "(stream not recorded)";

/// What a group is about. Labels are made at the end: two files may share a name and a line, but not a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A group of its own, such as [`BASELINE`].
    Special(&'static str),
    /// A line of code, by the frame that stands for it.
    Line { file: StrId, line: u64, name: StrId },
    /// A function of a file.
    Function { file: StrId, name: StrId },
    /// A whole stack.
    Stack(StackId),
    /// Anything that its text identifies.
    Text(String),
    /// Open annotations, outermost first.
    Annotations(Vec<StrId>),
}

/// What is added up for one key.
#[derive(Default)]
struct Group {
    bytes: u64,
    blocks: u64,
    /// Bytes per stack, to pick the row's example.
    stacks: IndexMap<StackId, u64>,
}

impl Group {
    fn add(&mut self, holder: &Holder) {
        self.bytes = self.bytes.wrapping_add(holder.bytes);
        self.blocks += 1;
        let stack_bytes = self.stacks.entry(holder.stack).or_default();
        *stack_bytes = stack_bytes.wrapping_add(holder.bytes);
    }
}

/// A live block (or reserved range), reduced to what grouping needs.
struct Holder {
    bytes: u64,
    stack: StackId,
    /// Row of the entry that made it; `None` for what is from before the trace.
    row: Option<usize>,
    /// Stream and pool of what is from before the trace.
    origin: BaselineOrigin,
    baseline: bool,
    addr: u64,
}

impl Attribution {
    /// Groups everything that counts for `metric` at an instant.
    pub fn of(
        sites: &Sites<'_>,
        annotations: &Annotations,
        filter: &Filter,
        snapshot: &Snapshot,
        history: &History,
        at: (Metric, Instant),
        by: GroupBy,
    ) -> Self {
        let (metric, instant) = at;
        let holders = holders(snapshot, history, metric, instant);
        // Streams and pools of reserved ranges and, before PyTorch 2.15, pools of blocks are known by address only.
        let layout = match by {
            GroupBy::Stream | GroupBy::Pool => Layout::at(snapshot, history, instant),
            _ => Layout::default(),
        };
        let grouper = Grouper { sites, annotations, snapshot, layout, metric, by };
        let mut groups: IndexMap<Key, Group> = IndexMap::new();
        // Blocks of one stack mostly share their keys; only what depends on more is worked out for each block.
        let per_stack =
            matches!(by, GroupBy::Site | GroupBy::Stack | GroupBy::Function | GroupBy::File | GroupBy::Module);
        let mut known: HashMap<(StackId, bool), Vec<usize>> = HashMap::new();
        let mut total = 0u64;
        for holder in &holders {
            total = total.wrapping_add(holder.bytes);
            let shared = (holder.stack, holder.baseline);
            if !per_stack || !known.contains_key(&shared) {
                let passes = filter.is_empty() || filter.passes(snapshot, holder.stack);
                let keys = if passes { grouper.keys(holder) } else { vec![Key::Special(FILTERED)] };
                let enter = |key| {
                    let entry = groups.entry(key);
                    let index = entry.index();
                    entry.or_default();
                    index
                };
                known.insert(shared, keys.into_iter().map(enter).collect());
            }
            for &index in &known[&shared] {
                groups[index].add(holder);
            }
        }
        let mut rows = grouper.rows(&groups);
        rows.sort_by(|a, b| {
            b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)).then_with(|| a.stack.cmp(&b.stack))
        });
        Self { by, total_bytes: total, rows }
    }

    /// Keeps the `top` largest rows and sums up the rest in one labelled [`OTHER`]. Inclusive rows overlap, so there
    /// the rest is dropped.
    pub fn keep_top(&mut self, top: usize) {
        if self.rows.len() <= top {
            return;
        }
        let rest = self.rows.split_off(top);
        if self.by.is_inclusive() {
            return;
        }
        self.rows.push(Row {
            label: OTHER.to_owned(),
            bytes: rest.iter().fold(0, |sum: u64, row| sum.wrapping_add(row.bytes)),
            blocks: rest.iter().map(|row| row.blocks).sum(),
            inferred: false,
            stack: Vec::new(),
        });
    }
}

fn holders(snapshot: &Snapshot, history: &History, metric: Metric, instant: Instant) -> Vec<Holder> {
    if metric == Metric::Reserved {
        let spans = history.segments.iter().filter(|span| span.reserved_at(instant));
        return spans
            .map(|span| Holder {
                bytes: span.size,
                stack: span.stack,
                row: span.made.checked_sub(1).map(|entry| history.rows.start + entry as usize),
                origin: BaselineOrigin::default(),
                baseline: span.made == 0,
                addr: span.addr,
            })
            .collect();
    }
    let live = history.allocations.iter().enumerate().filter(|(_, allocation)| match metric {
        Metric::Allocated => allocation.allocated_at(instant),
        _ => allocation.active_at(instant),
    });
    live.map(|(index, allocation)| Holder {
        bytes: if metric == Metric::Requested { allocation.requested } else { allocation.size },
        stack: history.stack_of(snapshot, index),
        row: history.born_row(index),
        origin: history.baseline.get(index).copied().unwrap_or_default(),
        baseline: allocation.is_baseline(),
        addr: allocation.addr,
    })
    .collect()
}

struct Grouper<'a> {
    sites: &'a Sites<'a>,
    annotations: &'a Annotations,
    snapshot: &'a Snapshot,
    layout: Layout,
    metric: Metric,
    by: GroupBy,
}

impl Grouper<'_> {
    /// The groups a holder counts in: one, or under [`GroupBy::Function`] every function on its stack.
    fn keys(&self, holder: &Holder) -> Vec<Key> {
        let stack = holder.stack;
        let context = holder.row.map(|row| self.snapshot.contexts.get(self.snapshot.entries.context(row)));
        let one = match self.by {
            GroupBy::Site | GroupBy::Stack | GroupBy::Function | GroupBy::File | GroupBy::Module
                if stack == StackId::EMPTY =>
            {
                Key::Special(if holder.baseline { BASELINE } else { NO_STACK })
            }
            GroupBy::Site => self.site(stack),
            GroupBy::Stack => Key::Stack(stack),
            GroupBy::File => Key::Text(self.sites.file(stack)),
            GroupBy::Module => Key::Text(self.sites.module(stack)),
            GroupBy::Function => return self.functions(stack),
            GroupBy::Stream => match (context, self.metric) {
                (Some(context), _) => Key::Text(format!("stream {}", context.stream)),
                (None, Metric::Reserved) => match self.layout.segment_of(holder.addr).and_then(|found| found.stream) {
                    Some(stream) => Key::Text(format!("stream {stream}")),
                    None => Key::Special(UNKNOWN_STREAM),
                },
                (None, _) => Key::Text(format!("stream {}", holder.origin.stream)),
            },
            GroupBy::Pool => {
                let recorded = context.map_or(holder.origin.pool, |context| context.pool);
                pool_key(recorded.or_else(|| self.layout.segment_of(holder.addr)?.pool))
            }
            GroupBy::Annotation => self.annotation(holder),
        };
        vec![one]
    }

    fn site(&self, stack: StackId) -> Key {
        let Some(id) = self.sites.site_frame(stack) else { return Key::Special(NO_STACK) };
        match (self.sites.original_line(id), self.snapshot.stacks.frame(id)) {
            (Some(original), _) => Key::Text(original),
            (None, Some(frame)) if self.sites.kind(id).is_python() => {
                Key::Line { file: frame.filename, line: frame.line, name: frame.name }
            }
            _ => Key::Text(self.sites.label(id)),
        }
    }

    /// Functions of a stack without repetition. Next to Python frames, C++ frames say nothing about whose memory it is.
    fn functions(&self, stack: StackId) -> Vec<Key> {
        let python = self.sites.has_python(stack);
        let mut functions: IndexSet<Key> = IndexSet::new();
        for &id in self.snapshot.stacks.frame_ids(stack) {
            let kind = self.sites.kind(id);
            if kind == FrameKind::Plumbing || (python && !kind.is_python()) {
                continue;
            }
            functions.insert(match self.snapshot.stacks.frame(id) {
                Some(frame) if kind.is_python() => Key::Function { file: frame.filename, name: frame.name },
                _ => Key::Text(self.sites.function(id)),
            });
        }
        if functions.is_empty() {
            functions.insert(self.site(stack));
        }
        functions.into_iter().collect()
    }

    fn annotation(&self, holder: &Holder) -> Key {
        let Some(row) = holder.row else { return Key::Special(BASELINE) };
        let time = self.snapshot.entries.times().get(row).copied().unwrap_or(0);
        let names: Vec<StrId> = self.annotations.enclosing(time).map(|range| range.name).collect();
        if names.is_empty() { Key::Special(NO_ANNOTATION) } else { Key::Annotations(names) }
    }

    /// Rows with labels.
    fn rows(&self, groups: &IndexMap<Key, Group>) -> Vec<Row> {
        let row = |((key, group), label): ((&Key, &Group), String)| {
            let on_stacks = !matches!(self.by, GroupBy::Stream | GroupBy::Pool | GroupBy::Annotation)
                && *key != Key::Special(FILTERED);
            let example = group.stacks.iter().max_by_key(|&(&stack, &bytes)| (bytes, std::cmp::Reverse(stack)));
            let stack =
                example.filter(|_| on_stacks).map(|(&stack, _)| self.sites.stack_labels(stack)).unwrap_or_default();
            Row { label, bytes: group.bytes, blocks: group.blocks, inferred: false, stack }
        };
        groups.iter().zip(self.labels(groups.keys())).map(row).collect()
    }

    /// A label for each key. Where two of different files would share one, both show their whole path.
    fn labels<'k>(&self, keys: impl Iterator<Item = &'k Key> + Clone) -> Vec<String> {
        let mut uses: HashMap<String, usize> = HashMap::new();
        for key in keys.clone() {
            *uses.entry(self.label(key, false)).or_default() += 1;
        }
        let label = |key| {
            let short = self.label(key, false);
            if uses.get(&short).is_some_and(|&uses| uses > 1) { self.label(key, true) } else { short }
        };
        keys.map(label).collect()
    }

    fn label(&self, key: &Key, whole_path: bool) -> String {
        let strings = &self.snapshot.strings;
        match key {
            Key::Special(label) => (*label).to_owned(),
            Key::Text(text) => text.clone(),
            Key::Stack(stack) => self.sites.site(*stack),
            &Key::Line { file, line, name } => line_label(strings.get(file), line, strings.get(name), whole_path),
            &Key::Function { file, name } => line_label(strings.get(file), 0, strings.get(name), whole_path),
            Key::Annotations(names) => names.iter().map(|&name| strings.get(name)).collect::<Vec<_>>().join(" / "),
        }
    }
}

/// Groups of blocks by what their stacks say, for analyses that look at more than one instant.
pub(super) struct StackGroups<'a> {
    grouper: Grouper<'a>,
    filter: &'a Filter,
    keys: IndexSet<Key>,
    /// Group of each stack, of baseline blocks and of others; `None` for stacks that the filter excludes.
    known: HashMap<(StackId, bool), Option<usize>>,
}

impl<'a> StackGroups<'a> {
    /// No groups yet. `by` is one that [`StackGroups::supports`].
    pub(super) fn new(
        sites: &'a Sites<'a>,
        annotations: &'a Annotations,
        snapshot: &'a Snapshot,
        filter: &'a Filter,
        by: GroupBy,
    ) -> Self {
        let metric = Metric::Allocated;
        let grouper = Grouper { sites, annotations, snapshot, layout: Layout::default(), metric, by };
        Self { grouper, filter, keys: IndexSet::new(), known: HashMap::new() }
    }

    /// Whether stacks alone decide the groups, and each block is in one of them.
    pub(super) fn supports(by: GroupBy) -> bool {
        matches!(by, GroupBy::Site | GroupBy::Stack | GroupBy::File | GroupBy::Module)
    }

    /// The group of a stack; `None` when the filter excludes it.
    pub(super) fn index_of(&mut self, stack: StackId, baseline: bool) -> Option<usize> {
        if let Some(&index) = self.known.get(&(stack, baseline)) {
            return index;
        }
        let passes = self.filter.is_empty() || self.filter.passes(self.grouper.snapshot, stack);
        let holder = Holder { bytes: 0, stack, row: None, origin: BaselineOrigin::default(), baseline, addr: 0 };
        let key = self.grouper.keys(&holder).into_iter().next().filter(|_| passes);
        let index = key.map(|key| self.keys.insert_full(key).0);
        self.known.insert((stack, baseline), index);
        index
    }

    /// A label for each group, in the order of their indexes.
    pub(super) fn labels(&self) -> Vec<String> {
        self.grouper.labels(self.keys.iter())
    }
}

fn pool_key(pool: Option<PoolId>) -> Key {
    match pool {
        None => Key::Special(UNKNOWN_POOL),
        Some((0, 0)) => Key::Special("default pool"),
        Some((first, second)) => Key::Text(format!("private pool ({first}, {second})")),
    }
}
