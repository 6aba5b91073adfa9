//! Decoded pickle values to a [`Snapshot`]: the keys and layouts of PyTorch 2.0 to 2.15.

use super::alloc_conf;
use super::pickle::decoded::DecodedPickle;
use super::pickle::findings::{Fields, Findings, expected, name, pool_id};
use super::pickle::value::{Heap, Items, Value};
use crate::error::{Error, Result};
use crate::model::{
    AllocatorSettings, Annotation, Block, BlockState, DeviceId, DeviceTrace, HOST_DEVICE, MAX_DEVICE, Segment,
    SegmentType, Snapshot, SourceNotes, StackId, Stage, StrId, Strings, TraceEntries,
};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Turns a decoded pickle into a snapshot.
pub fn assemble(decoded: DecodedPickle, entries: TraceEntries) -> Result<Snapshot> {
    let DecodedPickle { heap, findings, root, bytes, protocol, cut, followed, failed_behind: _ } = decoded;
    let open_lists = cut.as_ref().map(|cut| cut.open_lists.clone()).unwrap_or_default();
    let mut assembler = Assembler {
        heap,
        findings,
        open_lists,
        records_left: bytes / RECORD_BYTES + SMALL_FILE_RECORDS,
        snapshot: Snapshot { entries, ..Snapshot::default() },
    };
    assembler.snapshot.notes = SourceNotes {
        bytes,
        protocol,
        truncated_at: cut.map(|cut| cut.at),
        has_times: !assembler.findings.untimed,
        followed,
        ..SourceNotes::default()
    };
    assembler.root(root)?;
    Ok(assembler.finish())
}

/// Bytes that the shortest record takes in a file, at least.
const RECORD_BYTES: u64 = 16;
/// Keys of a record that are paid for with it; every so many more cost as much again.
const EXPECTED_KEYS: usize = 32;
/// How the name of the variable ends whose text is among the settings; it begins with the device's.
const ALLOC_CONF: &str = "ALLOC_CONF";
/// Whether the ring buffer lost entries, and how many it holds.
const OVERFLOWED: &str = "trace_alloc_overflowed";
const MAX_ENTRIES: &str = "trace_alloc_max_entries";
/// Records that a file may have however small it is.
const SMALL_FILE_RECORDS: u64 = 1024;

struct Assembler {
    heap: Heap,
    findings: Findings,
    /// Lists that a truncated file left open.
    open_lists: HashSet<u32>,
    /// Records, and their keys, that may still be built. A pickle can name one object many times over, and without
    /// this a small file could ask for any amount of memory and time.
    records_left: u64,
    snapshot: Snapshot,
}

impl Assembler {
    fn root(&mut self, root: Value) -> Result<()> {
        let index = match self.heap.resolve(root) {
            Value::Dict(index) => index,
            // `torch.cuda.memory_snapshot()` pickled by hand is the bare list of segments.
            Value::List(_) if self.starts_with_segment(root) => {
                self.snapshot.notes.segments_only = true;
                return self.segments(0, "segments", root);
            }
            other => return Err(Error::NotASnapshot(format!("the pickle holds {}", other.describe()))),
        };
        let at = Fields::of(&self.heap, index, "snapshot")?.at;
        let pairs = Fields::of(&self.heap, index, "snapshot")?.pairs.to_vec();
        let known = |text: &str| ["segments", "device_traces"].contains(&text);
        let is_snapshot = pairs.iter().any(|&(key, _)| matches!(key, Value::Str(id) if known(self.text(id))));
        if !is_snapshot && self.snapshot.notes.truncated_at.is_none() {
            let message = "expected a dictionary with \"segments\" and \"device_traces\"; torch.cuda.memory._dump_snapshot writes \
                           one"
                .to_owned();
            return Err(Error::NotASnapshot(message));
        }
        for (key, value) in pairs {
            let Value::Str(id) = key else {
                self.unknown("snapshot", key);
                continue;
            };
            match self.text(id).to_owned().as_str() {
                key @ ("segments" | "host_segments") => self.segments(at, key, value)?,
                "device_traces" => self.device_traces(at, value)?,
                "host_traces" => self.host_traces(at, value)?,
                "external_annotations" => self.annotations(at, value)?,
                "allocator_settings" => self.settings(at, value)?,
                key @ (OVERFLOWED | MAX_ENTRIES) => self.ring(key, value),
                _ => self.unknown("snapshot", key),
            }
        }
        Ok(())
    }

    /// What is said about the ring buffer, whether it stands beside the settings or among them.
    fn ring(&mut self, key: &str, value: Value) {
        let notes = &mut self.snapshot.notes;
        if key == OVERFLOWED {
            match value {
                // One that overflowed somewhere did, whatever is said elsewhere.
                Value::Bool(overflowed) => {
                    notes.trace_overflowed = Some(overflowed || notes.trace_overflowed == Some(true));
                }
                _ => self.malformed(key, "a boolean", value),
            }
        } else {
            match self.heap.as_int(value).and_then(|entries| u64::try_from(entries).ok()) {
                Some(entries) => notes.ring_capacity = Some(entries),
                None => self.malformed(key, "a number of entries", value),
            }
        }
    }

    fn starts_with_segment(&self, list: Value) -> bool {
        let first = self.items(0, "segments", list).ok().and_then(|items| items.first().copied());
        matches!(first, Some(Value::Dict(_)))
    }

    fn finish(self) -> Snapshot {
        let mut snapshot = self.snapshot;
        snapshot.notes.unread_forward_lines = self.findings.forward.unread;
        snapshot.strings = self.findings.strings;
        snapshot.stacks = self.findings.stacks;
        snapshot.contexts = self.findings.contexts;
        let strings = &snapshot.strings;
        let key_name = |key: Option<StrId>| key.map_or("a key that is no string", |id| strings.get(id));
        let keys = self.findings.unknown_keys.into_iter();
        snapshot.notes.unknown_keys =
            keys.map(|((record, key), count)| (format!("{record}.{}", key_name(key)), count)).collect();
        let actions = self.findings.unknown_actions.into_iter();
        snapshot.notes.unknown_actions =
            actions.map(|(action, count)| (strings.get(action).to_owned(), count)).collect();
        snapshot.segments.sort_by_key(|segment| (segment.device, segment.address));
        let mut traces: BTreeMap<DeviceId, DeviceTrace> = BTreeMap::new();
        for segment in &snapshot.segments {
            let device = segment.device;
            traces.entry(device).or_insert(DeviceTrace { device, rows: 0..0, truncated: false });
        }
        for trace in std::mem::take(&mut snapshot.traces) {
            // A device without entries and segments was not used.
            if !trace.rows.is_empty() || traces.contains_key(&trace.device) {
                traces.insert(trace.device, trace);
            }
        }
        snapshot.traces = traces.into_values().collect();
        if !snapshot.notes.has_times {
            for trace in &snapshot.traces {
                snapshot.entries.number_times(trace.rows.clone());
            }
        }
        snapshot
    }

    fn text(&self, id: StrId) -> &str {
        self.findings.strings.get(id)
    }

    fn unknown(&mut self, record: &'static str, key: Value) {
        self.findings.note_unknown(record, key);
    }

    /// Notes a value that is of no use.
    fn malformed(&mut self, key: &str, expected: &str, found: Value) {
        let found = found.describe();
        self.snapshot.notes.malformed.push(format!("expected {expected} for {key:?}, found {found}"));
    }

    /// Pays for one more record out of the file's bytes.
    fn record(&mut self, at: u64) -> Result<()> {
        self.records(at, 1)
    }

    fn records(&mut self, at: u64, count: u64) -> Result<()> {
        self.records_left = self.records_left.checked_sub(count).ok_or_else(|| Error::Limit {
            at,
            message: "more records than the file has bytes: objects are repeated".to_owned(),
        })?;
        Ok(())
    }

    /// The items of a list (or tuple) of values.
    fn items(&self, at: u64, key: &str, value: Value) -> Result<Vec<Value>> {
        match value {
            Value::List(index) => match self.heap.lists.get(index as usize) {
                Some(Items::Values(items)) => Ok(items.clone()),
                Some(Items::Entries(rows)) => Ok(rows.clone().map(Value::Entry).collect()),
                None => Ok(Vec::new()),
            },
            Value::Tuple(index) => {
                Ok(self.heap.tuples.get(index as usize).map(|items| items.to_vec()).unwrap_or_default())
            }
            Value::Stack(StackId::EMPTY) => Ok(Vec::new()),
            other => Err(expected(at, "a list for", key, other)),
        }
    }

    fn device_traces(&mut self, at: u64, value: Value) -> Result<()> {
        for (number, list) in (0..).zip(self.items(at, "device_traces", value)?) {
            let device = DeviceId::try_from(number).ok().filter(|&device| device <= MAX_DEVICE);
            self.trace(at, device.ok_or_else(|| no_device(at, number))?, "device_traces", list)?;
        }
        Ok(())
    }

    /// Pinned host memory: one flat list, or one list per device.
    fn host_traces(&mut self, at: u64, value: Value) -> Result<()> {
        let nested = match value {
            Value::List(index) => match self.heap.lists.get(index as usize) {
                Some(Items::Values(items)) => items.iter().all(|item| matches!(item, Value::List(_))),
                _ => false,
            },
            _ => false,
        };
        if !nested {
            return self.trace(at, HOST_DEVICE, "host_traces", value);
        }
        let lists = self.items(at, "host_traces", value)?;
        if lists.len() > 1 {
            let message = format!("expected one list of entries in \"host_traces\", found {}", lists.len());
            return Err(Error::malformed(at, message));
        }
        lists.into_iter().try_for_each(|list| self.trace(at, HOST_DEVICE, "host_traces", list))
    }

    fn trace(&mut self, at: u64, device: DeviceId, key: &str, value: Value) -> Result<()> {
        let truncated = matches!(value, Value::List(index) if self.open_lists.contains(&index));
        let consecutive: Option<Range<u32>> = match value {
            Value::List(index) => match self.heap.lists.get(index as usize) {
                Some(Items::Entries(rows)) => Some(rows.clone()),
                _ => None,
            },
            _ => None,
        };
        let rows = match consecutive {
            Some(rows) => {
                // Paid for like copies would be: two devices may name one list.
                self.records(at, u64::from(rows.end - rows.start))?;
                rows.start as usize..rows.end as usize
            }
            None => self.gather(at, key, value)?,
        };
        // Without entries there is nothing that the final segments could be too late for.
        let truncated = truncated && !rows.is_empty();
        self.snapshot.traces.push(DeviceTrace { device, rows, truncated });
        Ok(())
    }

    /// Copies the entries of a list that are not consecutive rows to consecutive ones.
    fn gather(&mut self, at: u64, key: &str, value: Value) -> Result<Range<usize>> {
        let items = self.items(at, key, value)?;
        let start = self.snapshot.entries.len();
        for item in items {
            self.record(at)?;
            match self.heap.resolve(item) {
                Value::Entry(row) => {
                    if let Some(entry) = self.snapshot.entries.get(row as usize) {
                        self.snapshot.entries.push(entry);
                    }
                }
                Value::Dict(index) => {
                    let entry = self.findings.entry(&self.heap, index)?;
                    self.snapshot.entries.push(entry);
                }
                other => return Err(expected(at, "a trace entry in", key, other)),
            }
        }
        Ok(start..self.snapshot.entries.len())
    }

    fn segments(&mut self, at: u64, key: &str, value: Value) -> Result<()> {
        self.snapshot.notes.segments_truncated |=
            matches!(value, Value::List(index) if self.open_lists.contains(&index));
        for item in self.items(at, key, value)? {
            self.record(at)?;
            let Value::Dict(index) = item else { return Err(expected(at, "a segment in", key, item)) };
            let segment = self.segment(index)?;
            self.snapshot.segments.push(segment);
        }
        Ok(())
    }

    fn segment(&mut self, index: u32) -> Result<Segment> {
        let key = Keys::intern(&mut self.findings.strings);
        let fields = Fields::of(&self.heap, index, "segment")?;
        let at = fields.at;
        let keys = (fields.pairs.len() / EXPECTED_KEYS) as u64;
        self.records(at, keys)?;
        let fields = Fields::of(&self.heap, index, "segment")?;
        let device = fields.required(key.device, "device")?;
        let number = fields.signed(device, "device")?;
        let device = DeviceId::try_from(number).ok().filter(|device| (HOST_DEVICE..=MAX_DEVICE).contains(device));
        let device = device.ok_or_else(|| no_device(at, number))?;
        let segment_type = fields.string(key.segment_type, "segment_type")?;
        let mut segment = Segment {
            device,
            address: fields.unsigned(key.address, "address")?,
            total_size: fields.unsigned(key.total_size, "total_size")?,
            allocated_size: fields.unsigned_or(key.allocated_size, "allocated_size", 0)?,
            active_size: fields.unsigned_or(key.active_size, "active_size", 0)?,
            requested_size: match fields.optional(key.requested_size) {
                Some(_) => Some(fields.unsigned(key.requested_size, "requested_size")?),
                None => None,
            },
            stream: fields.unsigned_or(name::STREAM, "stream", 0)?,
            segment_type: match self.text(segment_type) {
                "small" => SegmentType::Small,
                "large" => SegmentType::Large,
                other => {
                    let message = format!("expected \"small\" or \"large\" for \"segment_type\", found {other:?}");
                    return Err(Error::malformed(at, message));
                }
            },
            pool: fields.optional(name::SEGMENT_POOL_ID).map(|value| pool_id(&self.heap, at, value)).transpose()?,
            is_expandable: match fields.optional(key.is_expandable) {
                None => false,
                Some(Value::Bool(expandable)) => expandable,
                Some(other) => return Err(expected(at, "a boolean for", "is_expandable", other)),
            },
            stack: StackId::EMPTY,
            blocks: Vec::new(),
        };
        if segment.address.checked_add(segment.total_size).is_none() {
            return Err(Error::malformed(at, "expected a segment that ends below 2^64"));
        }
        let frames = fields.optional(name::FRAMES);
        let blocks = fields.required(key.blocks, "blocks")?;
        let names: Vec<Value> = fields.pairs.iter().map(|&(name, _)| name).collect();
        for name in names {
            if !matches!(name, Value::Str(id) if key.segment_keys().contains(&id)) {
                self.unknown("segment", name);
            }
        }
        if let Some(frames) = frames {
            segment.stack = self.findings.stack(&self.heap, at, frames)?;
        }
        let mut next = segment.address;
        for item in self.items(at, "blocks", blocks)? {
            self.record(at)?;
            let Value::Dict(index) = item else { return Err(expected(at, "a block in", "blocks", item)) };
            let block = self.block(index, &key, next)?;
            next = block
                .address
                .checked_add(block.size)
                .ok_or_else(|| Error::malformed(at, "expected blocks that end below 2^64"))?;
            segment.blocks.push(block);
        }
        Ok(segment)
    }

    fn block(&mut self, index: u32, key: &Keys, next: u64) -> Result<Block> {
        let fields = Fields::of(&self.heap, index, "block")?;
        let at = fields.at;
        let keys = (fields.pairs.len() / EXPECTED_KEYS) as u64;
        self.records(at, keys)?;
        let fields = Fields::of(&self.heap, index, "block")?;
        let state = fields.string(key.state, "state")?;
        let mut block = Block {
            address: fields.unsigned_or(key.address, "address", next)?,
            size: fields.unsigned(name::SIZE, "size")?,
            requested_size: fields.unsigned_or(key.requested_size, "requested_size", 0)?,
            state: match self.text(state) {
                "active_allocated" => BlockState::ActiveAllocated,
                "active_pending_free" | "active_awaiting_free" => BlockState::ActivePendingFree,
                "inactive" => BlockState::Inactive,
                other => {
                    return Err(Error::malformed(at, format!("expected a block state for \"state\", found {other:?}")));
                }
            },
            stack: StackId::EMPTY,
            forward: StackId::EMPTY,
        };
        let forward = fields.optional(name::FORWARD_FRAMES);
        let frames = match fields.optional(name::FRAMES) {
            Some(frames) => Some(frames),
            None => self.history_frames(&fields, key)?,
        };
        let names: Vec<Value> = fields.pairs.iter().map(|&(name, _)| name).collect();
        for name in names {
            if !matches!(name, Value::Str(id) if key.block_keys().contains(&id)) {
                self.unknown("block", name);
            }
        }
        if let Some(frames) = frames {
            block.stack = self.findings.stack(&self.heap, at, frames)?;
        }
        if let Some(forward) = forward {
            block.forward = self.findings.forward_stack(&self.heap, forward);
        }
        Ok(block)
    }

    /// PyTorch 2.0 keeps a block's frames in its `history`, newest first.
    fn history_frames(&self, fields: &Fields<'_>, key: &Keys) -> Result<Option<Value>> {
        let Some(history) = fields.optional(key.history) else { return Ok(None) };
        let newest = self.items(fields.at, "history", history)?.first().copied();
        let Some(Value::Dict(index)) = newest else { return Ok(None) };
        Ok(Fields::of(&self.heap, index, "block history")?.optional(name::FRAMES))
    }

    fn annotations(&mut self, at: u64, value: Value) -> Result<()> {
        let key = Keys::intern(&mut self.findings.strings);
        for item in self.items(at, "external_annotations", value)? {
            self.record(at)?;
            let Value::Dict(index) = item else {
                return Err(expected(at, "an annotation in", "external_annotations", item));
            };
            let fields = Fields::of(&self.heap, index, "annotation")?;
            let stage = fields.string(key.stage, "stage")?;
            let device = fields.optional(key.device).map_or(Ok(0), |value| fields.signed(value, "device"))?;
            let time = fields.required(name::TIME_US, "time_us")?;
            self.snapshot.annotations.push(Annotation {
                stage: match self.text(stage) {
                    "START" => Stage::Start,
                    "END" => Stage::End,
                    other => {
                        let message = format!("expected \"START\" or \"END\" for \"stage\", found {other:?}");
                        return Err(Error::malformed(fields.at, message));
                    }
                },
                name: fields.string(name::NAME, "name")?,
                device: device as DeviceId,
                time_us: fields.signed(time, "time_us")?,
            });
        }
        Ok(())
    }

    fn settings(&mut self, at: u64, value: Value) -> Result<()> {
        let Value::Dict(index) = value else {
            return Err(expected(at, "a dictionary for", "allocator_settings", value));
        };
        let fields = Fields::of(&self.heap, index, "allocator_settings")?;
        let (at, pairs) = (fields.at, fields.pairs.to_vec());
        let mut settings = AllocatorSettings { recorded: true, ..AllocatorSettings::default() };
        let mut missing = vec!["max_split_size", "expandable_segments", "roundup_power2_divisions", ALLOC_CONF];
        for (key, value) in pairs {
            let Value::Str(id) = key else { continue };
            let name = self.text(id).to_owned();
            missing.retain(|&known| known != name && !(known == ALLOC_CONF && name.ends_with(known)));
            match name.as_str() {
                "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" => {
                    if !matches!(value, Value::Str(_)) {
                        self.malformed(&name, "a string", value);
                    }
                    settings.alloc_conf = self.show(value);
                    let problems = alloc_conf::read(&settings.alloc_conf.clone(), &mut settings);
                    self.snapshot.notes.malformed.extend(problems);
                }
                OVERFLOWED | MAX_ENTRIES => self.ring(&name, value),
                "max_split_size" => match self.heap.as_int(value) {
                    Some(size) => {
                        settings.max_split_size = u64::try_from(size).ok().filter(|&size| size < u64::MAX);
                    }
                    None => self.malformed(&name, "an integer", value),
                },
                "expandable_segments" => match value {
                    Value::Bool(expandable) => settings.expandable_segments = expandable,
                    _ => self.malformed(&name, "a boolean", value),
                },
                "garbage_collection_threshold" => match self.float(value) {
                    Some(threshold) => settings.garbage_collection_threshold = threshold,
                    None => self.malformed(&name, "a number", value),
                },
                "roundup_power2_divisions" => match value {
                    Value::Dict(_) => settings.roundup_power2_divisions = self.divisions(at, value)?,
                    _ => self.malformed(&name, "a dictionary", value),
                },
                _ => settings.other.push((name, self.show(value))),
            }
        }
        for name in missing {
            let message = format!("expected {name:?} among the allocator settings, found none");
            self.snapshot.notes.malformed.push(message);
        }
        self.snapshot.settings = settings;
        Ok(())
    }

    /// `{"1": 0, "2": 0, ...}`: divisions by the bucket's size in MiB.
    fn divisions(&mut self, at: u64, value: Value) -> Result<[u64; 16]> {
        let (mut divisions, mut found) = ([0; 16], 0);
        let Value::Dict(index) = value else { return Ok(divisions) };
        for &(key, value) in Fields::of(&self.heap, index, "roundup_power2_divisions")?.pairs {
            let Value::Str(id) = key else { continue };
            let bucket = self.text(id).parse::<u64>().ok().filter(|mib| mib.is_power_of_two());
            let slot = bucket.and_then(|mib| divisions.get_mut(mib.trailing_zeros() as usize));
            let count = self.heap.as_int(value).and_then(|count| u64::try_from(count).ok());
            match (slot, count) {
                (Some(slot), Some(count)) => {
                    *slot = count;
                    found += 1;
                }
                _ => {
                    return Err(Error::malformed(
                        at,
                        "expected powers of two and counts in \"roundup_power2_divisions\"",
                    ));
                }
            }
        }
        if found < divisions.len() {
            let expected = divisions.len();
            let message = format!("expected {expected} counts in \"roundup_power2_divisions\", found {found}");
            self.snapshot.notes.malformed.push(message);
        }
        Ok(divisions)
    }

    fn float(&self, value: Value) -> Option<f64> {
        match value {
            Value::Float(index) => self.heap.floats.get(index as usize).copied(),
            other => self.heap.as_int(other).map(|int| int as f64),
        }
    }

    /// A setting's value as text.
    fn show(&self, value: Value) -> String {
        match value {
            Value::None => "None".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Str(id) => self.text(id).to_owned(),
            Value::Float(_) => self.float(value).unwrap_or_default().to_string(),
            other => self.heap.as_int(other).map_or_else(|| other.describe().to_owned(), |int| int.to_string()),
        }
    }
}

/// The error for a device that PyTorch has no number for.
fn no_device(at: u64, number: i64) -> Error {
    Error::malformed(at, format!("expected a device from {HOST_DEVICE} to {MAX_DEVICE}, found {number}"))
}

/// Ids of the keys of segments, blocks and annotations.
struct Keys {
    device: StrId,
    address: StrId,
    total_size: StrId,
    allocated_size: StrId,
    active_size: StrId,
    requested_size: StrId,
    segment_type: StrId,
    is_expandable: StrId,
    /// NCCL's, and of no interest.
    registration_counter: StrId,
    blocks: StrId,
    state: StrId,
    history: StrId,
    stage: StrId,
}

impl Keys {
    fn intern(strings: &mut Strings) -> Self {
        Self {
            device: strings.intern("device"),
            address: strings.intern("address"),
            total_size: strings.intern("total_size"),
            allocated_size: strings.intern("allocated_size"),
            active_size: strings.intern("active_size"),
            requested_size: strings.intern("requested_size"),
            segment_type: strings.intern("segment_type"),
            registration_counter: strings.intern("registration_counter"),
            is_expandable: strings.intern("is_expandable"),
            blocks: strings.intern("blocks"),
            state: strings.intern("state"),
            history: strings.intern("history"),
            stage: strings.intern("stage"),
        }
    }

    fn segment_keys(&self) -> [StrId; 14] {
        [
            self.device,
            self.address,
            self.total_size,
            self.allocated_size,
            self.active_size,
            self.requested_size,
            self.segment_type,
            name::SEGMENT_POOL_ID,
            self.registration_counter,
            self.is_expandable,
            self.blocks,
            name::STREAM,
            name::FRAMES,
            // Of the request that made it, which its `segment_alloc` entry has, too.
            name::FORWARD_FRAMES,
        ]
    }

    fn block_keys(&self) -> [StrId; 7] {
        let frames = [name::FRAMES, name::FORWARD_FRAMES];
        [self.address, self.requested_size, self.state, self.history, name::SIZE, frames[0], frames[1]]
    }
}
