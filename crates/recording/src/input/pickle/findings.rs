//! Trace entries and frames, recognized while the pickle is decoded.
//!
//! A dictionary with an `action` is a trace entry and becomes a row of columns; one with `filename`, `line` and `name` is a
//! frame and is interned. This happens when a dictionary is put into a list, since only then is it complete in every
//! protocol. Any other dictionary is left unchanged; the code that needs it as an entry reports what is wrong with it.

use super::forward::ForwardFrames;
use super::metadata::Metadata;
use super::value::{DictBody, Heap, Items, Value};
use crate::error::{Error, Result};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, Contexts, EntryContext, Frame, FxNode, PoolId, StackId, Stacks, StrId, Strings};
use indexmap::IndexMap;

/// Defines [`KNOWN`] and one [`StrId`] constant for each name, in the same order.
macro_rules! known_names {
    ($($constant:ident $text:literal)*) => {
        /// Names that are interned before anything else, so that they can be recognized by comparing IDs.
        pub const KNOWN: &[&str] = &[$($text),*];
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "only used to number the constants")]
        enum Number {
            /// Id 0 is the empty string.
            _EMPTY,
            $($constant),*
        }
        /// Ids of [`KNOWN`].
        pub mod name {
            use crate::model::StrId;
            use super::Number;
            $(pub const $constant: StrId = StrId(Number::$constant as u32);)*
        }
    };
}

known_names! {
    ACTION "action"
    ADDR "addr"
    SIZE "size"
    STREAM "stream"
    TIME_US "time_us"
    FRAMES "frames"
    COMPILE_CONTEXT "compile_context"
    USER_METADATA "user_metadata"
    INTERNAL_METADATA "internal_metadata"
    POOL_ID "pool_id"
    SEGMENT_POOL_ID "segment_pool_id"
    FORWARD_FRAMES "forward_frames"
    DEVICE_FREE "device_free"
    FILENAME "filename"
    LINE "line"
    NAME "name"
    FX_NODE_OP "fx_node_op"
    FX_NODE_NAME "fx_node_name"
    FX_NODE_TARGET "fx_node_target"
    FX_ORIGINAL_TRACE "fx_original_trace"
    ALLOC "alloc"
    FREE_REQUESTED "free_requested"
    FREE_COMPLETED "free_completed"
    SEGMENT_ALLOC "segment_alloc"
    SEGMENT_FREE "segment_free"
    SEGMENT_MAP "segment_map"
    SEGMENT_UNMAP "segment_unmap"
    SNAPSHOT "snapshot"
    OOM "oom"
    ANNOTATE "annotate"
}

pub fn action(id: StrId) -> Action {
    match id {
        name::ALLOC => Action::Alloc,
        name::FREE_REQUESTED => Action::FreeRequested,
        name::FREE_COMPLETED => Action::FreeCompleted,
        name::SEGMENT_ALLOC => Action::SegmentAlloc,
        name::SEGMENT_FREE => Action::SegmentFree,
        name::SEGMENT_MAP => Action::SegmentMap,
        name::SEGMENT_UNMAP => Action::SegmentUnmap,
        name::SNAPSHOT => Action::Snapshot,
        name::OOM => Action::Oom,
        name::ANNOTATE => Action::Annotate,
        _ => Action::Unknown,
    }
}

/// Entries in the order of the file, ready to be passed on.
#[derive(Debug, Default)]
pub struct Batch {
    pub entries: Vec<TraceEntry>,
    /// The lists that they belong to, in order.
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The list; its device is known only later in the file.
    list: u32,
    /// The first of them in the batch. The run ends where the next one starts.
    start: usize,
}

impl Batch {
    /// The consecutive entries of each list, with the list.
    pub fn runs(&self) -> impl Iterator<Item = (u32, &[TraceEntry])> {
        let ends = self.runs.iter().skip(1).map(|run| run.start).chain([self.entries.len()]);
        self.runs.iter().zip(ends).filter_map(|(run, end)| Some((run.list, self.entries.get(run.start..end)?)))
    }
}

/// Entries in a batch. 2048 of them (80 KiB) fit the second-level cache between two threads.
const BATCH: usize = 2048;

/// Numbers entries in the order of the file and passes them on in batches.
///
/// Only the length limits a batch, so the cost per entry does not depend on its values.
#[derive(Default)]
pub struct Rows {
    batch: Batch,
    /// The list of the last run in the batch.
    list: Option<u32>,
    count: u32,
    emit: Option<Emit>,
}

/// Takes a full batch and returns an empty one, so that a few batches are reused.
type Emit = Box<dyn FnMut(Batch) -> Batch + Send>;

impl Rows {
    pub fn emitting(emit: impl FnMut(Batch) -> Batch + Send + 'static) -> Self {
        Self { emit: Some(Box::new(emit)), ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Numbers an entry that is being put into `list` and adds it to the batch.
    #[expect(
        clippy::inline_always,
        reason = "builds the entry in the batch: copying it right after its fields were stored stalls the processor"
    )]
    #[inline(always)]
    pub fn push(&mut self, list: u32, entry: TraceEntry) -> Value {
        if self.batch.entries.len() >= BATCH || self.list != Some(list) {
            self.begin_run(list);
        }
        self.batch.entries.push(entry);
        self.count += 1;
        Value::Entry(self.count - 1)
    }

    #[cold]
    fn begin_run(&mut self, list: u32) {
        if self.batch.entries.len() >= BATCH {
            self.flush();
        }
        self.list = Some(list);
        self.batch.runs.push(Run { list, start: self.batch.entries.len() });
    }

    pub fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if !batch.entries.is_empty()
            && let Some(emit) = &mut self.emit
        {
            self.batch = emit(batch);
        }
        self.batch.entries.clear();
        self.batch.runs.clear();
        self.list = None;
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Rows").field("count", &self.count).finish_non_exhaustive()
    }
}

/// What decoding has found so far.
#[derive(Debug)]
pub struct Findings {
    pub strings: Strings,
    pub stacks: Stacks,
    pub contexts: Contexts,
    pub rows: Rows,
    /// Keys that this version does not know, by the kind of record that contains them.
    pub unknown_keys: IndexMap<(&'static str, Option<StrId>), u64>,
    pub unknown_actions: IndexMap<StrId, u64>,
    /// Frames without a file, line or name.
    pub frames_in_part: u64,
    pub forward: ForwardFrames,
    /// Texts of `user_metadata`.
    pub metadata: Metadata,
    /// Whether any entry had no `time_us`, as in PyTorch 2.0.
    pub untimed: bool,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            strings: Strings::with_known(KNOWN),
            stacks: Stacks::default(),
            contexts: Contexts::default(),
            rows: Rows::default(),
            unknown_keys: IndexMap::new(),
            frames_in_part: 0,
            unknown_actions: IndexMap::new(),
            forward: ForwardFrames::default(),
            metadata: Metadata::default(),
            untimed: false,
        }
    }
}

impl Findings {
    /// Moves each dictionary in `items` that is a trace entry or a frame out of the heap and replaces it with the result. The
    /// items are being put into `list`.
    pub fn recognize(&mut self, heap: &mut Heap, list: u32, items: &mut [Value]) {
        for item in items {
            let Value::Dict(index) = *item else { continue };
            let Some(dict) = heap.dicts.get(index as usize).filter(|dict| !dict.plain) else { continue };
            let found = match &dict.body {
                DictBody::Moved(moved) => Some(*moved),
                DictBody::Pairs(pairs) => {
                    let has = |key| pairs.iter().any(|&(name, _)| name == Value::Str(key));
                    // The user's own metadata may have an action, too.
                    if has(name::ACTION) && (has(name::SIZE) || has(name::ADDR)) {
                        self.entry(heap, index).ok().map(|entry| self.rows.push(list, entry))
                    } else if has(name::FILENAME) && has(name::NAME) {
                        self.frame(heap, index).ok().map(|frame| Value::Frame(self.stacks.intern_frame(frame)))
                    } else {
                        None
                    }
                }
            };
            let dict = &mut heap.dicts[index as usize];
            let Some(moved) = found else {
                // It may be put into many lists; one check is enough.
                dict.plain = true;
                continue;
            };
            dict.body = DictBody::Moved(moved);
            *item = moved;
        }
    }

    /// The entry in dictionary `index`, or the reason why it is not one.
    pub fn entry(&mut self, heap: &Heap, index: u32) -> Result<TraceEntry> {
        let fields = Fields::of(heap, index, "trace entry")?;
        let action_name = fields.string(name::ACTION, "action")?;
        let action = action(action_name);
        let addr = match action {
            Action::Oom => fields.unsigned(name::DEVICE_FREE, "device_free")?,
            Action::Snapshot | Action::Unknown => fields.unsigned_or(name::ADDR, "addr", 0)?,
            _ => fields.unsigned(name::ADDR, "addr")?,
        };
        let size = match action {
            Action::Annotate | Action::Unknown => fields.unsigned_or(name::SIZE, "size", 0)?,
            _ => fields.unsigned(name::SIZE, "size")?,
        };
        let time_us = fields.optional(name::TIME_US).map(|value| fields.signed(value, "time_us")).transpose()?;
        // Segments use this key, and some writers use it for entries, too.
        let pool = fields.optional(name::POOL_ID).or_else(|| fields.optional(name::SEGMENT_POOL_ID));
        let mut context = EntryContext {
            stream: fields.unsigned_or(name::STREAM, "stream", 0)?,
            pool: pool.map(|value| pool_id(heap, fields.at, value)).transpose()?,
            compile_context: fields.string_or_empty(name::COMPILE_CONTEXT, "compile_context")?,
            user_metadata: match fields.optional(name::USER_METADATA) {
                Some(value) => self.metadata.text(fields.at, heap, &mut self.strings, &self.stacks, value)?,
                None => StrId::EMPTY,
            },
            internal_metadata: fields.string_or_empty(name::INTERNAL_METADATA, "internal_metadata")?,
            forward: StackId::EMPTY,
        };
        let stack = match fields.optional(name::FRAMES) {
            Some(value) => self.stack(heap, fields.at, value)?,
            None => StackId::EMPTY,
        };
        if let Some(value) = fields.optional(name::FORWARD_FRAMES) {
            context.forward = self.forward_stack(heap, value);
        }
        for &(key, _) in fields.pairs {
            let known = matches!(key, Value::Str(key) if key <= name::DEVICE_FREE && key != StrId::EMPTY);
            if !known {
                self.note_unknown("trace entry", key);
            }
        }
        if action == Action::Unknown {
            *self.unknown_actions.entry(action_name).or_default() += 1;
        }
        self.untimed |= time_us.is_none();
        let context = self.contexts.intern(context);
        Ok(TraceEntry { action, addr, size, time_us: time_us.unwrap_or(0), stack, context })
    }

    fn frame(&mut self, heap: &Heap, index: u32) -> Result<Frame> {
        let fields = Fields::of(heap, index, "frame")?;
        let text = |key, name| fields.string_or_empty(key, name);
        let fx = FxNode {
            op: text(name::FX_NODE_OP, "fx_node_op")?,
            name: text(name::FX_NODE_NAME, "fx_node_name")?,
            target: text(name::FX_NODE_TARGET, "fx_node_target")?,
            original_trace: text(name::FX_ORIGINAL_TRACE, "fx_original_trace")?,
        };
        let frame = Frame {
            filename: text(name::FILENAME, "filename")?,
            name: text(name::NAME, "name")?,
            line: fields.unsigned_or(name::LINE, "line", 0)?,
            fx: (fx != FxNode::default()).then_some(fx),
        };
        let is_there = |key| fields.optional(key).is_some();
        if ![name::FILENAME, name::NAME, name::LINE].into_iter().all(is_there) {
            self.frames_in_part += 1;
        }
        for &(key, _) in fields.pairs {
            let known = matches!(key, Value::Str(key) if (name::FILENAME..=name::FX_ORIGINAL_TRACE).contains(&key));
            if !known {
                self.note_unknown("frame", key);
            }
        }
        Ok(frame)
    }

    /// Counts a key that this version does not know.
    pub fn note_unknown(&mut self, record: &'static str, key: Value) {
        let key = match key {
            Value::Str(id) => Some(id),
            _ => None,
        };
        *self.unknown_keys.entry((record, key)).or_default() += 1;
    }

    pub fn forward_stack(&mut self, heap: &Heap, value: Value) -> StackId {
        self.forward.stack(heap, &mut self.strings, &mut self.stacks, value)
    }

    /// The stack of a `frames` value. `at` is the offset of the dictionary that contains it.
    pub fn stack(&mut self, heap: &Heap, at: u64, value: Value) -> Result<StackId> {
        let list = match value {
            Value::Stack(id) => return Ok(id),
            Value::None => return Ok(StackId::EMPTY),
            Value::List(index) => heap.lists.get(index as usize),
            other => return Err(expected(at, "a list of frames for", "frames", other)),
        };
        let Some(Items::Values(items)) = list else {
            return Err(expected(at, "a list of frames for", "frames", Value::Entry(0)));
        };
        let mut frames = Vec::with_capacity(items.len());
        for &item in items {
            match heap.resolve(item) {
                Value::Frame(id) => frames.push(id),
                Value::Dict(index) => {
                    let frame = self.frame(heap, index)?;
                    frames.push(self.stacks.intern_frame(frame));
                }
                other => return Err(expected(at, "a dictionary for each item of", "frames", other)),
            }
        }
        Ok(self.stacks.intern_stack(&frames))
    }
}

/// A kind of record with its article.
fn a(record: &str) -> String {
    let article = if record.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {record}")
}

pub fn expected(at: u64, what: &str, key: &str, found: Value) -> Error {
    Error::malformed(at, format!("expected {what} \"{key}\", found {}", found.describe()))
}

/// A pool ID: a tuple of two integers, or a list after a round trip through JSON.
pub fn pool_id(heap: &Heap, at: u64, value: Value) -> Result<PoolId> {
    let items: &[Value] = match value {
        Value::Tuple(index) => heap.tuples.get(index as usize).map_or(&[], |items| items),
        Value::List(index) => match heap.lists.get(index as usize) {
            Some(Items::Values(items)) => items,
            _ => &[],
        },
        other => return Err(expected(at, "a pair of integers for", "pool_id", other)),
    };
    let part =
        |index: usize| items.get(index).and_then(|&item| heap.as_int(item)).and_then(|id| u64::try_from(id).ok());
    match (items.len(), part(0), part(1)) {
        (2, Some(first), Some(second)) => Ok((first, second)),
        _ => Err(Error::malformed(at, "expected a pair of non-negative integers for \"pool_id\"")),
    }
}

/// Typed access to one dictionary.
pub struct Fields<'h> {
    heap: &'h Heap,
    /// Byte offset at which the dictionary starts.
    pub at: u64,
    record: &'static str,
    pub pairs: &'h [(Value, Value)],
}

impl<'h> Fields<'h> {
    /// The fields of dictionary `index`; `record` is its kind in messages.
    pub fn of(heap: &'h Heap, index: u32, record: &'static str) -> Result<Self> {
        match heap.dicts.get(index as usize) {
            Some(dict) => match &dict.body {
                DictBody::Pairs(pairs) => Ok(Self { heap, at: dict.at, record, pairs }),
                DictBody::Moved(value) => {
                    Err(Error::malformed(dict.at, format!("expected {}, found {}", a(record), value.describe())))
                }
            },
            None => Err(Error::malformed(0, format!("expected {}, found nothing", a(record)))),
        }
    }

    /// The value of `key`; `None` if it is absent or Python's None.
    pub fn optional(&self, key: StrId) -> Option<Value> {
        let pair = self.pairs.iter().rev().find(|&&(name, _)| name == Value::Str(key));
        pair.map(|&(_, value)| value).filter(|&value| value != Value::None)
    }

    pub fn required(&self, key: StrId, name: &str) -> Result<Value> {
        self.optional(key)
            .ok_or_else(|| Error::malformed(self.at, format!("expected \"{name}\" in {}, found none", a(self.record))))
    }

    /// `value` as a signed 64-bit integer.
    pub fn signed(&self, value: Value, name: &str) -> Result<i64> {
        let int = self.heap.as_int(value).ok_or_else(|| expected(self.at, "an integer for", name, value))?;
        i64::try_from(int)
            .map_err(|_| Error::malformed(self.at, format!("expected a 64-bit integer for \"{name}\", found {int}")))
    }

    /// The value of `key` as an unsigned 64-bit integer.
    pub fn unsigned(&self, key: StrId, name: &str) -> Result<u64> {
        let value = self.required(key, name)?;
        let int = self.heap.as_int(value).ok_or_else(|| expected(self.at, "an integer for", name, value))?;
        u64::try_from(int).map_err(|_| {
            Error::malformed(self.at, format!("expected a non-negative 64-bit integer for \"{name}\", found {int}"))
        })
    }

    /// Like [`Fields::unsigned`]; `default` if the key is absent.
    pub fn unsigned_or(&self, key: StrId, name: &str, default: u64) -> Result<u64> {
        if self.optional(key).is_some() { self.unsigned(key, name) } else { Ok(default) }
    }

    pub fn string(&self, key: StrId, name: &str) -> Result<StrId> {
        match self.required(key, name)? {
            Value::Str(id) => Ok(id),
            other => Err(expected(self.at, "a string for", name, other)),
        }
    }

    /// Like [`Fields::string`]; the empty string if the key is absent.
    pub fn string_or_empty(&self, key: StrId, name: &str) -> Result<StrId> {
        if self.optional(key).is_some() { self.string(key, name) } else { Ok(StrId::EMPTY) }
    }
}
