//! Which group a block belongs to, under each `--by`.

pub mod attribution;
pub mod filter;

use crate::analysis::code::frames::FrameKind;
use crate::analysis::code::sites::{
    CodeOrigin, LONG_STACKS, LONGEST_STACK, NO_STACK, SHORTENED_STACK, Sites, backward_of, clipped, line_label,
};
use crate::analysis::device::Device;
use crate::analysis::time::annotations::Annotations;
use crate::analysis::training::module_path::ModulePaths;
use crate::analysis::training::{BackwardSites, Categories, Category, Decision, Phase, PhaseSpan, Phases};
use crate::error::{Error, Result};
use crate::model::{DEFAULT_POOL, EntryContext, FrameId, PoolId, Segment, Snapshot, StackId, StrId};
use crate::replay::NO_OPERATOR;
use crate::replay::{Allocation, BaselineOrigin, History, Instant, Metric, NEVER, SegmentSpan, Track};
use filter::{Filter, Passing};
use indexmap::IndexSet;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

/// What rows and bands stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The line of your own code.
    #[default]
    Site,
    /// The whole stack.
    Stack,
    /// Every function on the stack, inclusive.
    ///
    /// A block counts once in each of them, so rows overlap.
    Function,
    /// The file of the site.
    File,
    /// The Python package.
    Module,
    /// The CUDA stream.
    Stream,
    /// The memory pool.
    Pool,
    /// The open `record_function` ranges.
    Annotation,
    /// The operator (profiler traces, with what each allocated and freed; snapshots with C++ stacks).
    Operator,
    /// The calls of `nn.Module` (profiler traces).
    NnModule,
    /// The modules of the model around, one of several by its number: `GPT.Block[3].Attention`.
    ModulePath,
    /// What the memory is for: parameters, gradients, optimizer state, activations and so on.
    ///
    /// See [`Category`].
    Category,
    /// The part of the training step that allocated it.
    ///
    /// See [`Phase`].
    Phase,
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
            Self::Operator => "operator",
            Self::NnModule => "nn_module",
            Self::ModulePath => "module_path",
            Self::Category => "category",
            Self::Phase => "phase",
        }
    }

    /// The groups that there can be, where they are the same for every recording.
    pub(crate) fn all_groups(self) -> Vec<&'static str> {
        match self {
            Self::Category => Category::ALL.map(Category::name).to_vec(),
            Self::Phase => Phase::ALL.map(Phase::name).to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether what a metric counts can be grouped like this.
    ///
    /// # Errors
    /// When it cannot: a segment holds blocks of many categories.
    pub(crate) fn require(self, metric: Metric) -> Result<()> {
        if self == Self::Category && metric == Metric::Reserved {
            let message =
                "segments have no category: expected the metric allocated, active or requested, found reserved";
            return Err(Error::Request(message.to_owned()));
        }
        Ok(())
    }

    /// Whether rows overlap, so that they do not sum to the total.
    pub fn is_inclusive(self) -> bool {
        self == Self::Function
    }

    /// Whether stacks alone decide the groups, and each block is in one of them.
    pub(crate) fn gives_each_stack_one_group(self) -> bool {
        self.is_by_stack() && !self.is_inclusive()
    }

    /// Whether a forward stack says which group a block of backward is in. Snapshots have no operators.
    pub fn is_by_code(self) -> bool {
        matches!(self, Self::Site | Self::Stack | Self::Function | Self::File | Self::Module)
    }

    /// Whether a block's group follows from its stack.
    fn is_by_stack(self) -> bool {
        self.is_by_code() || matches!(self, Self::Operator | Self::NnModule)
    }
}

/// Whether what the recording does not tell is inferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inference {
    /// Memory that backward passes allocate is attributed to lines of forward: see [`BackwardSites`].
    #[default]
    On,
    /// Nothing is inferred.
    Off,
}

/// Label of blocks from before the first kept entry whose stack the file does not hold.
pub const BASELINE: &str = "(before the recording)";
/// Label of the same blocks where nothing was recorded at all.
pub const NOT_RECORDED: &str = "(not recorded)";
/// Label of blocks that a filter excludes.
pub const FILTERED: &str = "(filtered out)";
/// Label of blocks allocated outside of any annotation.
pub const NO_ANNOTATION: &str = "(no annotation)";
/// Label of blocks allocated outside of any `nn.Module`.
pub const NO_MODULE: &str = "(no nn.Module)";
/// Label of blocks whose pool the file does not tell.
pub const UNKNOWN_POOL: &str = "(pool not recorded)";
/// Label of blocks that the allocator made for itself (`mallocWithAddress`), to get a block at an address: they are no
/// code's.
pub const ALLOCATOR: &str = "(allocator itself)";
/// `internal_metadata` of those.
const WITH_ADDRESS: &str = "mallocWithAddress";
/// Label of ranges whose stream the file does not tell.
pub const UNKNOWN_STREAM: &str = "(stream not recorded)";

/// What a group is about. Labels are made at the end: two files may share a name and a line, but not a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A group of its own, such as [`BASELINE`].
    Special(&'static str),
    /// A line of code, by the frame that stands for it.
    Line { file: StrId, line: u64, name: StrId },
    /// A function of a file.
    Function { file: StrId, name: StrId },
    /// A whole stack.
    Stack(CodeOrigin),
    /// Anything that its text identifies.
    Text(String),
    /// Open annotations or modules, outermost first.
    Nested(Vec<StrId>),
    /// What a backward operator goes back to.
    Backward(Box<Key>),
    /// The same where it is inferred.
    InferredBackward(Box<Key>),
}

impl Key {
    /// Groups of what cannot be attributed. They always have a band of their own.
    pub(crate) const APART: [Self; 4] =
        [Self::Special(NO_STACK), Self::Special(FILTERED), Self::Special(BASELINE), Self::Special(NOT_RECORDED)];

    /// Whether the group is one of [`Key::APART`].
    pub(crate) fn stands_apart(&self) -> bool {
        Self::APART.contains(self)
    }

    /// Whether the group is inferred rather than recorded.
    pub(crate) fn is_inferred(&self) -> bool {
        matches!(self, Self::InferredBackward(_) | Self::Stack(CodeOrigin { forward: Some(_), is_recorded: false, .. }))
    }
}

/// A block (or, for [`Metric::Reserved`], a reserved range), reduced to what grouping needs.
pub(crate) struct Holder {
    /// Index into the allocations, or spans, of the history.
    pub(crate) index: usize,
    pub(crate) bytes: u64,
    pub(crate) stack: StackId,
    /// The entry that made it; `None` for what is from before the trace.
    entry: Option<u32>,
    /// Stream and pool of a block from before the trace.
    origin: Option<BaselineOrigin>,
    baseline: bool,
    addr: u64,
    /// First instant at which it counts.
    pub(crate) born: Instant,
    /// First instant at which it does not count any more.
    pub(crate) gone: Instant,
}

impl Holder {
    /// Calls `visit` with everything that counts for a metric at some time, and whose lifetime is `wanted`.
    pub(crate) fn visit(
        track: Track<'_>,
        metric: Metric,
        wanted: impl Fn(Instant, Instant) -> bool,
        mut visit: impl FnMut(&Self),
    ) {
        let history = track.history;
        if metric == Metric::Reserved {
            for (index, span) in history.segments.iter().enumerate().filter(|(_, span)| wanted(span.born, span.gone)) {
                visit(&Self {
                    index,
                    bytes: span.size,
                    stack: span.stack,
                    entry: History::entry_before(span.made),
                    origin: None,
                    baseline: span.made == 0,
                    addr: span.addr,
                    born: span.born,
                    gone: span.gone,
                });
            }
            return;
        }
        for (index, allocation) in history.allocations.iter().enumerate() {
            if wanted(allocation.born, gone(allocation, metric))
                && let Some(holder) = Self::of_allocation(track, metric, index)
            {
                visit(&holder);
            }
        }
    }

    /// The allocation with this index.
    #[inline]
    pub(crate) fn of_allocation(track: Track<'_>, metric: Metric, index: usize) -> Option<Self> {
        let history = track.history;
        let allocation = history.allocations.get(index)?;
        Some(Self {
            index,
            bytes: if metric == Metric::Requested { allocation.requested } else { allocation.size },
            stack: track.stack_of(index),
            entry: History::entry_before(allocation.born),
            origin: history.baseline.get(index).copied(),
            baseline: allocation.is_baseline(),
            addr: allocation.addr,
            born: allocation.born,
            gone: gone(allocation, metric),
        })
    }
}

/// First instant at which an allocation does not count for a metric any more.
#[inline]
fn gone(allocation: &Allocation, metric: Metric) -> Instant {
    if metric == Metric::Allocated { allocation.freed } else { allocation.completed }
}

/// Finds the groups of blocks of one device.
pub(crate) struct Grouper<'a> {
    pub(crate) track: Track<'a>,
    sites: &'a Sites<'a>,
    annotations: &'a Annotations,
    filter: &'a Filter,
    passing: Passing,
    pools: Pools<'a>,
    backward: Cow<'a, BackwardSites>,
    training: Training<'a>,
    /// Label of what is from before the first entry and has no stack.
    before: &'static str,
    /// Whether any entry is marked as the allocator's own.
    has_own: bool,
    /// Whether any entry or block has `forward_frames`.
    has_forward: bool,
    pub(crate) by: GroupBy,
}

/// What decides about the groups of holders that have it in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shared {
    /// The code behind them, and whether they are from before the recording.
    Origin(CodeOrigin, bool),
    Category(Category),
    /// `None` before the recording.
    Phase(Option<Phase>),
}

/// What is known about the training step, where groups are made of it.
enum Training<'a> {
    NotAsked,
    Modules(ModulePaths),
    Categories(&'a Categories),
    Phases(&'a Phases),
}

impl<'a> Training<'a> {
    fn of(device: &'a Device<'_>, by: GroupBy) -> Self {
        match by {
            GroupBy::ModulePath => {
                let paths = ModulePaths::of(device.track, device.sites(), device.phases(), device.roles());
                Self::Modules(paths)
            }
            GroupBy::Phase => Self::Phases(device.phases()),
            GroupBy::Category => Self::Categories(device.categories()),
            _ => Self::NotAsked,
        }
    }
}

impl<'a> Grouper<'a> {
    /// Groups of a device's blocks by code, labelled as `sites` does, or by anything else.
    pub(crate) fn new(device: &'a Device<'_>, sites: &'a Sites<'a>, filter: &'a Filter, by: GroupBy) -> Self {
        let track = device.track;
        let Track { snapshot, history } = track;
        let pools = match by {
            GroupBy::Stream | GroupBy::Pool => Pools::of(track),
            _ => Pools::default(),
        };
        let is_recorded = !history.completeness.no_entries || snapshot.notes.truncated_at.is_some();
        let contexts = &snapshot.contexts;
        Self {
            track,
            sites,
            annotations: device.annotations(),
            filter,
            passing: filter.over(snapshot),
            pools,
            backward: Cow::default(),
            training: Training::of(device, by),
            before: if is_recorded { BASELINE } else { NOT_RECORDED },
            has_own: contexts.iter().any(|context| is_allocators_own(snapshot, context)),
            has_forward: contexts.iter().any(|context| context.forward != StackId::EMPTY)
                || history.baseline.iter().any(|origin| origin.forward != StackId::EMPTY),
            by,
        }
    }

    /// The same with lines of forward for what backward allocated, if groups are about code; given an instant, only for
    /// blocks that are in use then. Segments ([`Metric::Reserved`]) are those of many allocations.
    pub(crate) fn inferring(
        mut self,
        device: &'a Device<'_>,
        inference: Inference,
        metric: Metric,
        instant: Option<Instant>,
    ) -> Self {
        let has_segments = self.track.snapshot.notes.format.has_segments();
        if inference == Inference::On && self.by.is_by_code() && has_segments && metric != Metric::Reserved {
            self.backward = device.backward(instant);
        }
        self
    }

    /// Lines of the user's own that groups of a library's lines stand for.
    pub(crate) fn library_below(&self) -> Vec<String> {
        if matches!(self.by, GroupBy::Site | GroupBy::Stack | GroupBy::File) {
            self.sites.library_below()
        } else {
            Vec::new()
        }
    }

    /// The code behind a holder.
    pub(crate) fn origin(&self, holder: &Holder) -> CodeOrigin {
        let stack = holder.stack;
        if let Some(forward) = self.recorded_forward(holder) {
            return CodeOrigin { stack, forward: Some(forward), is_recorded: true };
        }
        CodeOrigin { stack, forward: self.backward.forward_stack(holder.index), is_recorded: false }
    }

    /// The recorded forward stack of a holder. A line of the user's own in backward says more: it ran.
    fn recorded_forward(&self, holder: &Holder) -> Option<StackId> {
        if !self.has_forward || !self.by.is_by_code() {
            return None;
        }
        let of_entry = holder.entry.map(|entry| self.track.context(entry).forward);
        let forward = of_entry.or(holder.origin.map(|origin| origin.forward))?;
        let frames = self.track.snapshot.stacks.frame_ids(holder.stack);
        let is_own = frames.iter().any(|&frame| self.sites.is_own(frame));
        (forward != StackId::EMPTY && !is_own).then_some(forward)
    }

    /// Whether a holder is the allocator's own. It lies in a pool and on a stream like any other.
    fn is_allocators_own(&self, holder: &Holder) -> bool {
        self.has_own
            && !matches!(self.by, GroupBy::Stream | GroupBy::Pool)
            && holder.entry.is_some_and(|entry| is_allocators_own(self.track.snapshot, &self.track.context(entry)))
    }

    /// What holders must share for their groups to be the same; `None` where each has to be looked at.
    pub(crate) fn shared(&self, holder: &Holder) -> Option<Shared> {
        match self.by {
            _ if self.is_allocators_own(holder) => None,
            by if by.is_by_stack() => Some(Shared::Origin(self.origin(holder), holder.baseline)),
            // Filters look at stacks.
            _ if !self.filter.is_empty() => None,
            GroupBy::Category => Some(Shared::Category(self.decision(holder).category)),
            GroupBy::Phase => Some(Shared::Phase(self.phase(holder))),
            _ => None,
        }
    }

    /// The groups a holder counts in: one, or under [`GroupBy::Function`] every function on its stack.
    pub(crate) fn keys(&self, holder: &Holder) -> Vec<Key> {
        let origin = self.origin(holder);
        if !self.filter.is_empty() && !self.passing.passes(origin) {
            return vec![Key::Special(FILTERED)];
        }
        if self.is_allocators_own(holder) {
            return vec![Key::Special(ALLOCATOR)];
        }
        match origin.forward {
            Some(_) if self.by == GroupBy::Stack => vec![Key::Stack(origin)],
            Some(forward) => {
                let of = if origin.is_recorded { Key::Backward } else { Key::InferredBackward };
                self.recorded_keys(holder, forward).into_iter().map(|key| of(Box::new(key))).collect()
            }
            None => self.recorded_keys(holder, origin.stack),
        }
    }

    /// The groups of a holder with this stack.
    fn recorded_keys(&self, holder: &Holder, stack: StackId) -> Vec<Key> {
        let has_segments = self.track.snapshot.notes.format.has_segments();
        let context = holder.entry.filter(|_| has_segments).map(|entry| self.track.context(entry));
        let origin = holder.origin.filter(|_| has_segments);
        let one = match self.by {
            by if by.is_by_stack() && stack == StackId::EMPTY => Key::Special(match by {
                _ if holder.baseline => self.before,
                GroupBy::Operator => NO_OPERATOR,
                GroupBy::NnModule => NO_MODULE,
                _ => NO_STACK,
            }),
            GroupBy::Site => self.site(stack),
            GroupBy::Stack => Key::Stack(CodeOrigin::of(stack)),
            GroupBy::File => Key::Text(self.sites.file(stack)),
            GroupBy::Module => Key::Text(self.sites.module(stack)),
            GroupBy::Function => return self.functions(stack),
            GroupBy::Stream => {
                let recorded = context.map(|context| context.stream).or(origin.map(|origin| origin.stream));
                match recorded.or_else(|| Some(self.pools.at(holder)?.stream)) {
                    Some(stream) => Key::Text(format!("stream {stream}")),
                    None => Key::Special(UNKNOWN_STREAM),
                }
            }
            GroupBy::Pool => {
                let recorded = context.and_then(|context| context.pool).or(origin.and_then(|origin| origin.pool));
                pool_key(recorded.or_else(|| self.pools.at(holder)?.pool))
            }
            GroupBy::Annotation => self.annotation(holder),
            GroupBy::Operator => match self.sites.operator(stack) {
                Some(operator) => Key::Text(operator),
                None => Key::Special(NO_OPERATOR),
            },
            GroupBy::NnModule => {
                let modules = self.sites.nn_modules(stack);
                if modules.is_empty() { Key::Special(NO_MODULE) } else { Key::Nested(modules) }
            }
            GroupBy::ModulePath => match self.module_path(holder) {
                Some(path) => Key::Text(path.to_owned()),
                None if holder.baseline && stack == StackId::EMPTY => Key::Special(self.before),
                None => Key::Special(NO_MODULE),
            },
            GroupBy::Category => Key::Special(self.decision(holder).category.name()),
            GroupBy::Phase => Key::Special(self.phase(holder).map_or(self.before, Phase::name)),
        };
        vec![one]
    }

    /// What an allocation is for; nothing under other groups than [`GroupBy::Category`].
    pub(crate) fn decision(&self, holder: &Holder) -> Decision {
        match &self.training {
            Training::Categories(categories) => categories.get(holder.index),
            _ => Decision::default(),
        }
    }

    /// The phase that a block was made in; `None` for blocks from before the recording.
    fn phase(&self, holder: &Holder) -> Option<Phase> {
        holder.entry.map(|_| self.span(holder).map_or(Phase::Other, |span| span.phase))
    }

    /// The span of the phase that made a holder.
    fn span(&self, holder: &Holder) -> Option<&PhaseSpan> {
        match &self.training {
            Training::Phases(phases) => phases.span(holder.entry?),
            _ => None,
        }
    }

    /// The modules around a holder, as far as they are known.
    fn module_path(&self, holder: &Holder) -> Option<&str> {
        let Training::Modules(paths) = &self.training else { return None };
        paths.path(holder.stack, holder.entry)
    }

    /// Whether the group of a holder is inferred rather than recorded.
    pub(crate) fn is_inferred(&self, holder: &Holder) -> bool {
        match &self.training {
            Training::Modules(paths) => self.module_path(holder).is_some_and(|path| paths.is_inferred(path)),
            Training::Categories(_) => {
                let Decision { category, evidence } = self.decision(holder);
                category != Category::Unknown && !evidence.is_recorded()
            }
            Training::Phases(_) => self.span(holder).is_some_and(|span| !span.recorded),
            Training::NotAsked => false,
        }
    }

    fn site(&self, stack: StackId) -> Key {
        let Some(id) = self.sites.site_frame(stack) else { return Key::Special(NO_STACK) };
        let site = self.line(id);
        if self.sites.is_backward(stack, id) { Key::Backward(Box::new(site)) } else { site }
    }

    fn line(&self, id: FrameId) -> Key {
        match (self.sites.original_line(id), self.track.snapshot.stacks.frame(id)) {
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
        for &id in self.track.snapshot.stacks.frame_ids(stack) {
            let kind = self.sites.kind(id);
            if kind == FrameKind::Plumbing || (python && !kind.is_python()) {
                continue;
            }
            functions.insert(match self.track.snapshot.stacks.frame(id) {
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
        let Some(entry) = holder.entry else { return Key::Special(self.before) };
        let time = self.track.times().get(entry as usize).copied().unwrap_or(0);
        let names: Vec<StrId> = self.annotations.enclosing(time).map(|range| range.name).collect();
        if names.is_empty() { Key::Special(NO_ANNOTATION) } else { Key::Nested(names) }
    }

    /// The name of a group; with the whole path of its file, where the file's name alone would be ambiguous.
    pub(crate) fn label(&self, key: &Key, whole_path: bool) -> String {
        let strings = &self.track.snapshot.strings;
        match key {
            Key::Special(label) => (*label).to_owned(),
            Key::Text(text) => text.clone(),
            Key::Stack(CodeOrigin { forward: Some(forward), .. }) => backward_of(&self.sites.site(*forward)),
            Key::Stack(CodeOrigin { stack, .. }) => self.sites.site(*stack),
            &Key::Line { file, line, name } => line_label(strings.get(file), line, strings.get(name), whole_path),
            &Key::Function { file, name } => line_label(strings.get(file), 0, strings.get(name), whole_path),
            Key::Backward(forward) | Key::InferredBackward(forward) => backward_of(&self.label(forward, whole_path)),
            Key::Nested(names) => names.iter().map(|&name| clipped(strings.get(name))).collect::<Vec<_>>().join(" / "),
        }
    }
}

/// What a row is called, and an example of its stacks.
pub(crate) struct RowHead {
    pub(crate) label: String,
    pub(crate) inferred: bool,
    pub(crate) stack: Vec<String>,
}

/// Groups in the order in which they were met. Analyses keep sums of their own for each.
pub(crate) struct Groups<'g> {
    pub(crate) grouper: &'g Grouper<'g>,
    keys: IndexSet<Key>,
    /// Groups of what shares them.
    known: HashMap<Shared, Vec<usize>>,
    /// Groups of the last holder that does not.
    last: Vec<usize>,
}

impl<'g> Groups<'g> {
    pub(crate) fn new(grouper: &'g Grouper<'g>) -> Self {
        Self { grouper, keys: IndexSet::new(), known: HashMap::new(), last: Vec::new() }
    }

    /// The groups a holder counts in: one, or under [`GroupBy::Function`] every function on its stack.
    pub(crate) fn of(&mut self, holder: &Holder) -> &[usize] {
        let Self { grouper, keys, known, last } = self;
        let mut enter = || grouper.keys(holder).into_iter().map(|key| keys.insert_full(key).0).collect();
        if let Some(shared) = grouper.shared(holder) {
            known.entry(shared).or_insert_with(enter)
        } else {
            *last = enter();
            last
        }
    }

    /// The groups that the allocation with this index counts in.
    pub(crate) fn of_allocation(&mut self, index: usize) -> &[usize] {
        match Holder::of_allocation(self.grouper.track, Metric::Active, index) {
            Some(holder) => self.of(&holder),
            None => &[],
        }
    }

    /// The code behind the allocation with this index.
    pub(crate) fn origin_of(&self, index: usize) -> CodeOrigin {
        let holder = Holder::of_allocation(self.grouper.track, Metric::Active, index);
        holder.map(|holder| self.grouper.origin(&holder)).unwrap_or_default()
    }

    /// Whether a group is that of blocks which a filter excludes.
    pub(crate) fn is_filtered_out(&self, group: usize) -> bool {
        self.keys.get_index(group) == Some(&Key::Special(FILTERED))
    }

    /// The groups met, with what their rows are called and the stack with most bytes in each, given each group's bytes
    /// by origin. Where two keys of different files would share a label, both show their whole path.
    pub(crate) fn heads<I: Iterator<Item = (CodeOrigin, u64)>>(
        &self,
        bytes_by_origin: impl Fn(usize) -> I,
    ) -> Vec<(Key, RowHead)> {
        let grouper = self.grouper;
        let mut uses: HashMap<String, usize> = HashMap::new();
        for key in &self.keys {
            *uses.entry(grouper.label(key, false)).or_default() += 1;
        }
        let mut length = 0;
        let head = |(index, key): (usize, &Key)| {
            let short = grouper.label(key, false);
            let label = if uses.get(&short).is_some_and(|&uses| uses > 1) { grouper.label(key, true) } else { short };
            let on_stacks = grouper.by.is_by_stack() && *key != Key::Special(FILTERED);
            let example = bytes_by_origin(index).max_by_key(|&(origin, bytes)| (bytes, Reverse(origin)));
            let longest = if length < LONG_STACKS { LONGEST_STACK } else { SHORTENED_STACK };
            let labels = |(origin, _)| grouper.sites.origin_labels(origin, longest);
            let stack = example.filter(|_| on_stacks).map(labels);
            length += stack.iter().flatten().map(String::len).sum::<usize>();
            (key.clone(), RowHead { label, inferred: key.is_inferred(), stack: stack.unwrap_or_default() })
        };
        self.keys.iter().enumerate().map(head).collect()
    }
}

/// Whether an entry is one of a pair that the allocator made for itself.
fn is_allocators_own(snapshot: &Snapshot, context: &EntryContext) -> bool {
    snapshot.strings.get(context.internal_metadata) == WITH_ADDRESS
}

fn pool_key(pool: Option<PoolId>) -> Key {
    match pool {
        None => Key::Special(UNKNOWN_POOL),
        Some(DEFAULT_POOL) => Key::Special("default pool"),
        Some((first, second)) => Key::Text(format!("private pool ({first}, {second})")),
    }
}

/// Stream and pool by address. Before PyTorch 2.15 entries do not record the pool, but a segment that is still there
/// at the end does, and all its blocks are of its pool.
#[derive(Default)]
struct Pools<'a> {
    /// Ranges that are there at the end, in address order, with the segments they belong to.
    ranges: Vec<(&'a SegmentSpan, &'a Segment)>,
}

impl<'a> Pools<'a> {
    fn of(track: Track<'a>) -> Self {
        let history = track.history;
        let segments = track.segments();
        let segment_of = |addr| {
            let after = segments.partition_point(|segment| segment.address <= addr);
            segments.get(after.checked_sub(1)?).filter(|segment| addr - segment.address < segment.total_size)
        };
        let spans = history.segments.iter().filter(|span| span.gone == NEVER);
        let mut ranges: Vec<_> = spans.filter_map(|span| Some((span, segment_of(span.addr)?))).collect();
        ranges.sort_unstable_by_key(|(span, _)| span.addr);
        Self { ranges }
    }

    /// The segment that a block was made in, if that segment lived on to the end.
    fn at(&self, holder: &Holder) -> Option<&'a Segment> {
        let after = self.ranges.partition_point(|(span, _)| span.addr <= holder.addr);
        let &(span, segment) = self.ranges.get(after.checked_sub(1)?)?;
        (holder.addr < span.end() && span.made <= holder.born).then_some(segment)
    }
}
