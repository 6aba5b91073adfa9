//! Who holds the memory at an instant.

use super::annotations::Annotations;
use super::filter::Filter;
use super::frames::FrameKind;
use super::sites::{NO_STACK, Sites};
use crate::model::{PoolId, Snapshot, StackId};
use crate::replay::{History, Instant, Metric};
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

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

/// What is added up for one label.
#[derive(Default)]
struct Group {
    bytes: u64,
    blocks: u64,
    /// Bytes per stack, to pick the row's example.
    stacks: IndexMap<StackId, u64>,
}

/// A live block (or reserved range), reduced to what grouping needs.
struct Holder {
    bytes: u64,
    stack: StackId,
    /// Index of the allocation, `None` for a reserved range.
    allocation: Option<usize>,
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
        let grouper =
            Grouper { sites, annotations, snapshot, history, pools: Pools::of(snapshot, history, instant), by };
        // Blocks of one stack have most labels in common; only what depends on more is worked out per block.
        let per_stack =
            matches!(by, GroupBy::Site | GroupBy::Stack | GroupBy::Function | GroupBy::File | GroupBy::Module);
        let mut known: IndexMap<(StackId, bool), Vec<String>> = IndexMap::new();
        let mut groups: IndexMap<String, Group> = IndexMap::new();
        let mut total = 0u64;
        for holder in &holders {
            total = total.wrapping_add(holder.bytes);
            let key = (holder.stack, holder.baseline);
            if !per_stack || !known.contains_key(&key) {
                let passes = filter.is_empty() || filter.passes(snapshot, holder.stack);
                let labels = if passes { grouper.labels(holder) } else { vec![FILTERED.to_owned()] };
                known.insert(key, labels);
            }
            for label in &known[&key] {
                if !groups.contains_key(label) {
                    groups.insert(label.clone(), Group::default());
                }
                let group = &mut groups[label];
                group.bytes = group.bytes.wrapping_add(holder.bytes);
                group.blocks += 1;
                let stack_bytes = group.stacks.entry(holder.stack).or_default();
                *stack_bytes = stack_bytes.wrapping_add(holder.bytes);
            }
        }
        let mut rows: Vec<Row> = groups.into_iter().map(|(label, group)| grouper.row(label, &group)).collect();
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
                allocation: None,
                baseline: span.born == 0,
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
        allocation: Some(index),
        baseline: allocation.is_baseline(),
        addr: allocation.addr,
    })
    .collect()
}

struct Grouper<'a> {
    sites: &'a Sites<'a>,
    annotations: &'a Annotations,
    snapshot: &'a Snapshot,
    history: &'a History,
    pools: Pools,
    by: GroupBy,
}

impl Grouper<'_> {
    /// The labels a holder counts under: one, or under [`GroupBy::Function`] every function on its stack.
    fn labels(&self, holder: &Holder) -> Vec<String> {
        let stack = holder.stack;
        let one = match self.by {
            GroupBy::Site | GroupBy::Stack | GroupBy::Function | GroupBy::File | GroupBy::Module
                if stack == StackId::EMPTY =>
            {
                if holder.baseline {
                    BASELINE.to_owned()
                } else {
                    NO_STACK.to_owned()
                }
            }
            GroupBy::Site => self.sites.site(stack),
            // Two stacks may share a label; the number keeps their rows apart and is taken off again in `row`.
            GroupBy::Stack => format!("{}\0{}", self.sites.site(stack), stack.index()),
            GroupBy::File => self.sites.file(stack),
            GroupBy::Module => self.sites.module(stack),
            GroupBy::Function => return self.functions(stack),
            GroupBy::Stream => match holder.allocation {
                Some(index) => format!("stream {}", self.history.stream_and_pool_of(self.snapshot, index).0),
                None => self.pools.stream_label(holder.addr),
            },
            GroupBy::Pool => {
                let recorded =
                    holder.allocation.and_then(|index| self.history.stream_and_pool_of(self.snapshot, index).1);
                pool_label(recorded.or_else(|| self.pools.pool(holder.addr)))
            }
            GroupBy::Annotation => self.annotation(holder),
        };
        vec![one]
    }

    /// Functions of a stack without repetition. Next to Python frames, C++ frames say nothing about whose memory it is.
    fn functions(&self, stack: StackId) -> Vec<String> {
        let python = self.sites.has_python(stack);
        let mut functions: IndexSet<String> = IndexSet::new();
        for &frame in self.snapshot.stacks.frame_ids(stack) {
            let kind = self.sites.kind(frame);
            if kind == FrameKind::Plumbing || (python && !kind.is_python()) {
                continue;
            }
            functions.insert(self.sites.function(frame));
        }
        if functions.is_empty() {
            functions.insert(self.sites.site(stack));
        }
        functions.into_iter().collect()
    }

    fn annotation(&self, holder: &Holder) -> String {
        let Some(row) = holder.allocation.and_then(|index| self.history.born_row(index)) else {
            return if holder.baseline { BASELINE.to_owned() } else { NO_ANNOTATION.to_owned() };
        };
        let time = self.snapshot.entries.times().get(row).copied().unwrap_or(0);
        let names: Vec<&str> =
            self.annotations.enclosing(time).map(|range| self.snapshot.strings.get(range.name)).collect();
        if names.is_empty() { NO_ANNOTATION.to_owned() } else { names.join(" / ") }
    }

    fn row(&self, label: String, group: &Group) -> Row {
        let on_stacks = !matches!(self.by, GroupBy::Stream | GroupBy::Pool | GroupBy::Annotation) && label != FILTERED;
        let example = group.stacks.iter().max_by_key(|&(&stack, &bytes)| (bytes, std::cmp::Reverse(stack)));
        let stack = example.filter(|_| on_stacks).map(|(&stack, _)| self.sites.stack_labels(stack)).unwrap_or_default();
        let label = match label.split_once('\0') {
            Some((site, _)) => site.to_owned(),
            None => label,
        };
        Row { label, bytes: group.bytes, blocks: group.blocks, inferred: false, stack }
    }
}

fn pool_label(pool: Option<PoolId>) -> String {
    match pool {
        None => UNKNOWN_POOL.to_owned(),
        Some((0, 0)) => "default pool".to_owned(),
        Some((first, second)) => format!("private pool ({first}, {second})"),
    }
}

/// Stream and pool by address. Before PyTorch 2.15 entries do not record the pool, but a segment that is still there
/// at the end does, and all its blocks are of its pool.
struct Pools {
    /// Start, end, stream and pool of segments that lived from the instant to the end, in address order.
    ranges: Vec<(u64, u64, u64, PoolId)>,
}

impl Pools {
    fn of(snapshot: &Snapshot, history: &History, instant: Instant) -> Self {
        let mut spans: Vec<_> = history
            .segments
            .iter()
            .filter(|span| span.reserved_at(instant) && span.gone == crate::replay::NEVER)
            .collect();
        spans.sort_by_key(|span| span.addr);
        let segments = snapshot.segments_of(history.device);
        let ranges = spans.into_iter().filter_map(|span| {
            let after = segments.partition_point(|segment| segment.address <= span.addr);
            let segment = segments.get(after.checked_sub(1)?)?;
            let inside = span.addr - segment.address < segment.total_size;
            inside.then_some((span.addr, span.end(), segment.stream, segment.pool))
        });
        Self { ranges: ranges.collect() }
    }

    fn at(&self, addr: u64) -> Option<&(u64, u64, u64, PoolId)> {
        let after = self.ranges.partition_point(|range| range.0 <= addr);
        self.ranges.get(after.checked_sub(1)?).filter(|range| addr < range.1)
    }

    fn pool(&self, addr: u64) -> Option<PoolId> {
        self.at(addr).map(|range| range.3)
    }

    fn stream_label(&self, addr: u64) -> String {
        self.at(addr).map_or_else(|| "(stream not recorded)".to_owned(), |range| format!("stream {}", range.2))
    }
}
