//! The group of a block under each `--by`.

use super::filter::{Filter, Passing, matching_stacks};
use super::holder::Holder;
use super::key::Key;
use super::labels::{
    ALLOCATOR, BASELINE, FILTERED, INSIDE_BACKWARD, NO_ANNOTATION, NO_HOLDER, NO_METADATA, NO_MODULE, NOT_RECORDED,
    NOT_WALKED, UNKNOWN_POOL, UNKNOWN_STREAM,
};
use super::metadata::Metadata;
use super::pools::Pools;
use super::private_pools::{PrivatePool, PrivatePools};
use super::{GroupBy, Inference};
use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::{CodeOrigin, NO_STACK, Sites, backward_of, clipped, line_label};
use crate::facts::device::Device;
use crate::facts::held::{Held, HeldAs, group};
use crate::facts::time::annotations::Annotations;
use crate::facts::training::module_path::ModulePaths;
use crate::facts::training::{
    BackwardSites, Categories, Category, Decision, Evidence, Phase, PhaseSpan, Phases, Roles,
};
use crate::model::{DEFAULT_POOL, EntryContext, FrameId, PoolId, Snapshot, StackId, StrId};
use crate::replay::{BaselineOrigin, Metric, NO_OPERATOR, Track};
use indexmap::IndexSet;
use regex_lite::Regex;

/// `internal_metadata` of blocks in the group [`ALLOCATOR`].
const WITH_ADDRESS: &str = "mallocWithAddress";

/// Finds the groups of blocks of one device.
pub(crate) struct Grouper<'a> {
    pub(crate) track: Track<'a>,
    pub(super) sites: &'a Sites<'a>,
    annotations: &'a Annotations,
    filter: &'a Filter,
    passing: Passing,
    pools: Pools<'a>,
    private: PrivatePools,
    metadata: Option<Metadata<'a>>,
    /// The forward lines of memory that backward allocated, if requested.
    backward: Option<(&'a BackwardSites, &'a Roles)>,
    training: Training<'a>,
    /// The categories of memory, if rows show them and are not categories themselves.
    purposes: Option<&'a Categories>,
    /// The label of blocks from before the first entry without a stack.
    before: &'static str,
    /// Their categories, if these are groups of their own.
    before_by: Option<&'a Categories>,
    /// Whether any entry is marked as the allocator's own.
    has_own: bool,
    /// Whether any entry or block has `forward_frames`.
    has_forward: bool,
    pub(crate) by: GroupBy,
}

/// The properties that determine the groups of holders.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shared {
    /// The code that allocated them, and whether they are from before the recording.
    Origin(CodeOrigin, bool),
    /// With the number of the user's own category.
    Category(Category, Option<usize>),
    /// `None` before the recording.
    Phase(Option<Phase>),
    /// `None` if the file does not record it.
    Stream(Option<u64>),
    Pool(Option<PoolId>),
}

/// Data about the training step, if groups depend on it.
enum Training<'a> {
    NotAsked,
    Modules(ModulePaths),
    Categories(&'a Categories, Chosen<'a>),
    Phases(&'a Phases),
    /// `None` if the recording does not say.
    Held(Option<&'a Held<'a>>, &'a Phases),
}

/// The user's own categories.
struct Chosen<'a> {
    categories: &'a [(String, Regex)],
    /// For each category, which stacks match.
    stacks: Vec<Vec<bool>>,
}

impl<'a> Chosen<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let categories = &snapshot.view.categories;
        let stacks = categories.iter().map(|(_, pattern)| matching_stacks(snapshot, |text| pattern.is_match(text)));
        Self { categories, stacks: stacks.collect() }
    }

    /// The number of the first category that a stack matches.
    fn number(&self, stack: StackId) -> Option<usize> {
        self.stacks.iter().position(|stacks| stacks.get(stack.index()) == Some(&true))
    }

    /// The group of a category. One that has the name of a category of memviz adds to it.
    fn key(&self, number: usize) -> Option<Key> {
        let (name, _) = self.categories.get(number)?;
        let known = Category::ALL.into_iter().find(|category| category.name() == name);
        Some(known.map_or_else(|| Key::Text(clipped(name).to_owned()), |known| Key::Special(known.name())))
    }
}

impl<'a> Training<'a> {
    fn of(device: &'a Device<'_>, by: GroupBy) -> Self {
        match by {
            GroupBy::ModulePath => {
                let paths = ModulePaths::of(device.track, device.sites(), device.phases(), device.roles());
                Self::Modules(paths)
            }
            GroupBy::Phase => Self::Phases(device.phases()),
            GroupBy::Category => Self::Categories(device.categories(), Chosen::of(device.snapshot())),
            GroupBy::Holder | GroupBy::HolderRoot => Self::Held(device.held(), device.phases()),
            _ => Self::NotAsked,
        }
    }
}

impl<'a> Grouper<'a> {
    /// Groups the blocks of a device by code, with the labels of `sites`, or by another property.
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
            private: if by == GroupBy::Pool { PrivatePools::of(track, sites) } else { PrivatePools::default() },
            metadata: (by == GroupBy::Metadata).then(|| Metadata::of(track)),
            backward: None,
            training: Training::of(device, by),
            purposes: None,
            before: if is_recorded { BASELINE } else { NOT_RECORDED },
            before_by: None,
            has_own: contexts.iter().any(|context| is_allocators_own(snapshot, context)),
            has_forward: contexts.iter().any(|context| context.forward != StackId::EMPTY)
                || history.baseline.iter().any(|origin| origin.forward != StackId::EMPTY),
            by,
        }
    }

    /// The same, with forward lines for what backward allocated, if groups are about code. Segments ([`Metric::Reserved`])
    /// contain many allocations, so this does not apply to them.
    pub(crate) fn inferring(mut self, device: &'a Device<'_>, inference: Inference, metric: Metric) -> Self {
        let has_segments = self.track.snapshot.notes.format.has_segments();
        if inference == Inference::On && self.by.is_by_code() && has_segments && metric != Metric::Reserved {
            self.backward = Some((device.backward(), device.roles()));
        }
        self
    }

    /// The same, with a group for each known category of memory from before the recording, if groups are sites: pictures show them
    /// in different colors. Segments ([`Metric::Reserved`]) contain many categories, so this does not apply to them.
    pub(crate) fn splitting_before(mut self, device: &'a Device<'_>, metric: Metric) -> Self {
        self.before_by = (self.by == GroupBy::Site && metric != Metric::Reserved).then(|| device.categories());
        self
    }

    /// The same, with the category of most memory in each group. Segments ([`Metric::Reserved`]) contain many categories, so
    /// this does not apply to them.
    pub(crate) fn with_purposes(mut self, device: &'a Device<'_>, metric: Metric) -> Self {
        self.purposes = (metric != Metric::Reserved).then(|| device.categories());
        self
    }

    /// Whether rows represent code, and some memory from before the recording has a stack.
    pub(crate) fn has_older_lines(&self) -> bool {
        self.by.is_by_code() && self.track.history.baseline.iter().any(|origin| origin.stack != StackId::EMPTY)
    }

    /// Lines of the user's own code that are replaced by groups of a library's lines.
    pub(crate) fn library_below(&self) -> Vec<String> {
        if matches!(self.by, GroupBy::Site | GroupBy::Stack | GroupBy::File) {
            self.sites.library_below()
        } else {
            Vec::new()
        }
    }

    /// The code that allocated a holder.
    pub(crate) fn origin(&self, holder: &Holder) -> CodeOrigin {
        let stack = holder.stack;
        if let Some(forward) = self.recorded_forward(holder) {
            return CodeOrigin { stack, forward: Some(forward), is_recorded: true };
        }
        let inferred =
            |(backward, roles): (&BackwardSites, &Roles)| backward.forward_stack(self.track, roles, holder.index);
        CodeOrigin { stack, forward: self.backward.and_then(inferred), is_recorded: false }
    }

    /// The recorded forward stack of a holder. A line of the user's own code in backward is more specific, since it ran.
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

    /// Whether the allocator made a holder for itself. Such holders still belong to a pool and a stream.
    fn is_allocators_own(&self, holder: &Holder) -> bool {
        self.has_own
            && !matches!(self.by, GroupBy::Stream | GroupBy::Pool)
            && holder.entry.is_some_and(|entry| is_allocators_own(self.track.snapshot, &self.track.context(entry)))
    }

    /// The properties that holders of the same groups share; `None` if each holder must be examined.
    pub(crate) fn shared(&self, holder: &Holder) -> Option<Shared> {
        match self.by {
            _ if self.is_allocators_own(holder) || (self.before_by.is_some() && holder.baseline) => None,
            by if by.is_by_stack() => Some(Shared::Origin(self.origin(holder), holder.baseline)),
            // Filters need the stack.
            _ if !self.filter.is_empty() => None,
            GroupBy::Category => Some(Shared::Category(self.decision(holder).category, self.chosen(holder))),
            GroupBy::Phase => Some(Shared::Phase(self.phase(holder))),
            GroupBy::Stream => Some(Shared::Stream(self.stream(holder))),
            GroupBy::Pool => Some(Shared::Pool(self.pool(holder))),
            _ => None,
        }
    }

    /// The groups that a holder counts in: one, or under [`GroupBy::Function`] every function on its stack.
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
        let one = match self.by {
            by if by.is_by_stack() && stack == StackId::EMPTY => Key::Special(match by {
                _ if holder.baseline => match self.before_by.map(|categories| categories.get(holder.index).category) {
                    Some(category) if category.is_known() => return vec![self.before_of(category)],
                    _ => self.before,
                },
                GroupBy::Operator => NO_OPERATOR,
                GroupBy::NnModule => NO_MODULE,
                _ => NO_STACK,
            }),
            GroupBy::Site => self.site(stack),
            GroupBy::Stack => Key::Stack(CodeOrigin::of(stack)),
            GroupBy::File => Key::Text(self.sites.file(stack)),
            GroupBy::Module => Key::Text(self.sites.module(stack)),
            GroupBy::Function => return self.functions(stack),
            GroupBy::Stream => match self.stream(holder) {
                Some(stream) => Key::Text(format!("stream {stream}")),
                None => Key::Special(UNKNOWN_STREAM),
            },
            GroupBy::Pool => self.pool_key(self.pool(holder)),
            GroupBy::Metadata => match self.metadata.as_ref().and_then(|metadata| metadata.text(holder)) {
                Some(text) => Key::Text(clipped(&text).to_owned()),
                None if holder.baseline => Key::Special(self.before),
                None => Key::Special(NO_METADATA),
            },
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
            GroupBy::Holder | GroupBy::HolderRoot => self.held(holder),
            GroupBy::Category => self.category(holder),
            GroupBy::Phase => Key::Special(self.phase(holder).map_or(self.before, Phase::name)),
        };
        vec![one]
    }

    /// The group of blocks of one category from before the first entry.
    fn before_of(&self, category: Category) -> Key {
        let before = self.before.trim_end_matches(')');
        Key::Text(format!("{before}: {})", category.name().replace('_', " ")))
    }

    /// The group of what holds a block.
    fn held(&self, holder: &Holder) -> Key {
        let Training::Held(Some(held), phases) = &self.training else { return Key::Special(NOT_WALKED) };
        match held.get(holder.index) {
            HeldAs::NotWalked => {
                let span = holder.entry.and_then(|entry| phases.span(entry));
                let is_inside = span.is_some_and(|span| span.phase == Phase::Backward && holder.gone <= span.end);
                let is_inside = is_inside && !self.sites.has_python(holder.stack);
                Key::Special(if is_inside { INSIDE_BACKWARD } else { NOT_WALKED })
            }
            HeldAs::Unheld => Key::Special(NO_HOLDER),
            HeldAs::Held(_) => match held.first(holder.index) {
                Some(first) if self.by == GroupBy::HolderRoot => Key::Text(clipped(&first.variable).to_owned()),
                Some(first) => Key::Text(clipped(&group(&first.path)).to_owned()),
                None => Key::Special(NO_HOLDER),
            },
        }
    }

    /// The category of an allocation; unknown unless grouping by [`GroupBy::Category`].
    pub(crate) fn decision(&self, holder: &Holder) -> Decision {
        let Training::Categories(categories, _) = &self.training else { return Decision::default() };
        let decision = categories.get(holder.index);
        let evidence = self.chosen(holder).map_or(decision.evidence, |_| Evidence::Chosen);
        Decision { evidence, ..decision }
    }

    /// The number of the user's own category of an allocation.
    fn chosen(&self, holder: &Holder) -> Option<usize> {
        let Training::Categories(_, chosen) = &self.training else { return None };
        chosen.number(holder.stack)
    }

    fn category(&self, holder: &Holder) -> Key {
        let Training::Categories(_, chosen) = &self.training else { return Key::Special(self.before) };
        let own = chosen.number(holder.stack).and_then(|number| chosen.key(number));
        own.unwrap_or_else(|| Key::Special(self.decision(holder).category.name()))
    }

    /// The category of an allocation, if groups are categories or rows show them.
    pub(crate) fn purpose(&self, holder: &Holder) -> Option<Category> {
        let categories = match &self.training {
            Training::Categories(categories, _) => Some(*categories),
            _ => self.purposes,
        };
        categories.map(|categories| categories.get(holder.index).category)
    }

    /// The stream of a holder, if the recording shows it.
    fn stream(&self, holder: &Holder) -> Option<u64> {
        let (context, origin) = self.made(holder);
        let recorded = context.map(|context| context.stream).or(origin.map(|origin| origin.stream));
        recorded.or_else(|| Some(self.pools.at(holder)?.stream))
    }

    /// The pool that a holder is in, if the recording shows it.
    fn pool(&self, holder: &Holder) -> Option<PoolId> {
        let (context, origin) = self.made(holder);
        let recorded = context.and_then(|context| context.pool).or(origin.and_then(|origin| origin.pool));
        recorded.or_else(|| self.pools.at(holder)?.pool)
    }

    /// The context of the entry that allocated a holder, or the origin of its block if it is older than the trace, if the
    /// recording has pools.
    fn made(&self, holder: &Holder) -> (Option<EntryContext>, Option<BaselineOrigin>) {
        let has_segments = self.track.snapshot.notes.format.has_segments();
        let context = holder.entry.filter(|_| has_segments).map(|entry| self.track.context(entry));
        (context, holder.origin.filter(|_| has_segments))
    }

    fn pool_key(&self, pool: Option<PoolId>) -> Key {
        match pool {
            None => Key::Special(UNKNOWN_POOL),
            Some(DEFAULT_POOL) => Key::Special("default pool"),
            Some(id) => {
                let kind = self.private.get(id).map(|pool| format!(": {}", pool.kind.words())).unwrap_or_default();
                Key::Text(format!("private pool ({}, {}){kind}", id.0, id.1))
            }
        }
    }

    /// The private pools, if groups are pools.
    pub(crate) fn private_pools(&self) -> Vec<PrivatePool> {
        self.private.all()
    }

    /// The phase in which a block was allocated; `None` for blocks from before the recording.
    fn phase(&self, holder: &Holder) -> Option<Phase> {
        holder.entry.map(|_| self.span(holder).map_or(Phase::Other, |span| span.phase))
    }

    /// The span of the phase in which a holder was allocated.
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
            Training::Categories(..) => {
                let Decision { category, evidence } = self.decision(holder);
                category != Category::Unknown && !evidence.is_recorded()
            }
            Training::Phases(_) => self.span(holder).is_some_and(|span| !span.recorded),
            Training::Held(..) | Training::NotAsked => false,
        }
    }

    fn site(&self, stack: StackId) -> Key {
        let Some(id) = self.sites.site_frame(stack) else { return Key::Special(NO_STACK) };
        let site = self.sites.operator_in_module(stack, id).map_or_else(|| self.line(id), Key::Text);
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

    /// Functions of a stack without repetition. Next to Python frames, C++ frames do not show what the memory belongs to.
    /// Neither do functions of libraries that call the whole program, such as those of a notebook.
    fn functions(&self, stack: StackId) -> Vec<Key> {
        let python = self.sites.has_python(stack);
        let mut functions: IndexSet<Key> = IndexSet::new();
        let frames = self.track.snapshot.stacks.frame_ids(stack);
        let outermost = frames.iter().rposition(|&id| self.sites.is_own(id));
        for &id in outermost.map_or(frames, |outermost| &frames[..=outermost]) {
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

    /// The name of a group, with the whole path of its file if the file's name alone would be ambiguous.
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

/// Whether an entry is one of a pair that the allocator made for itself.
fn is_allocators_own(snapshot: &Snapshot, context: &EntryContext) -> bool {
    snapshot.strings.get(context.internal_metadata) == WITH_ADDRESS
}
