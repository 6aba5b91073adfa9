//! From decoded pickle values to a [`Snapshot`]: the keys and layouts of PyTorch 2.0 to 2.15.

mod annotations;
mod segments;
mod settings;
mod snapkit;
mod traces;

use super::pickle::decoded::DecodedPickle;
use super::pickle::findings::{Fields, Findings, expected};
use super::pickle::value::{Heap, Items, Value};
use crate::error::{Error, Result};
use crate::model::{
    DeviceId, DeviceTrace, Frame, HOST_DEVICE, Holders, MAX_DEVICE, MemoryStats, Rehearsal, Snapshot, SourceNotes,
    StackId, StrId, TraceEntries,
};
use crate::sorting::SortRows;
use std::collections::{BTreeMap, HashSet};

pub fn assemble(decoded: DecodedPickle, entries: TraceEntries) -> Result<Snapshot> {
    let DecodedPickle { heap, findings, root, bytes, protocol, cut, cut_behind, followed, failed_behind: _ } = decoded;
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
        protocol: Some(protocol),
        truncated_at: cut.map(|cut| cut.at).or(cut_behind),
        has_times: !assembler.findings.untimed,
        followed,
        ..SourceNotes::default()
    };
    if assembler.is_profile_plot() {
        return Err(Error::Foreign(PROFILE_PLOT.to_owned()));
    }
    assembler.root(root)?;
    Ok(assembler.finish())
}

/// What to do with drawing data of `torch.cuda._memory_viz.profile_plot`: sizes of tensors, in invented segments.
const PROFILE_PLOT: &str = "a page of profile_plot, which contains tensors of a torch.profiler profile instead of the allocator's blocks \
                            and segments; memviz reads the same profile from export_chrome_trace, with profile_memory=True";

/// The least bytes that a record takes in a file.
const RECORD_BYTES: u64 = 16;
/// Number of keys whose cost is included in that of the record; every further group of this size costs the same again.
const EXPECTED_KEYS: usize = 32;
/// The key that says whether the ring buffer dropped entries.
const OVERFLOWED: &str = "trace_alloc_overflowed";
const MAX_ENTRIES: &str = "trace_alloc_max_entries";
/// The number of records that any file may have, however small.
const SMALL_FILE_RECORDS: u64 = 1024;

/// Whether this is a key of a snapshot. There are few, so searching for duplicates costs little.
fn is_known(key: &str) -> bool {
    let lists = ["segments", "host_segments", "device_traces", "host_traces", "external_annotations"];
    lists.contains(&key) || ["allocator_settings", OVERFLOWED, MAX_ENTRIES, MemoryStats::KEY].contains(&key)
}

struct Assembler {
    heap: Heap,
    findings: Findings,
    open_lists: HashSet<u32>,
    /// How many more records, including their keys, may be built. A pickle can refer to the same object many times; without
    /// this limit, a small file could use any amount of memory and time.
    records_left: u64,
    snapshot: Snapshot,
}

impl Assembler {
    fn root(&mut self, root: Value) -> Result<()> {
        let index = match self.heap.resolve(root) {
            Value::Dict(index) => index,
            // `torch.cuda.memory_snapshot()`, pickled by the user, is only the list of segments.
            Value::List(_) if self.starts_with_segment(root) => {
                self.snapshot.notes.segments_only = true;
                return self.segments(0, "segments", root);
            }
            other => {
                let found = other.describe();
                let message =
                    format!("the pickle contains {found}; torch.cuda.memory._dump_snapshot writes a snapshot");
                return Err(Error::NotASnapshot(message));
            }
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
        for (number, &(key, value)) in pairs.iter().enumerate() {
            let Value::Str(id) = key else {
                self.unknown("snapshot", key);
                continue;
            };
            // Python keeps the last of several values. A dictionary that it wrote has only one.
            if is_known(self.text(id)) && pairs[number + 1..].iter().any(|&(later, _)| later == key) {
                let message = format!("expected each key of the snapshot once, found {:?} again", self.text(id));
                self.snapshot.notes.malformed.push(message);
                continue;
            }
            match self.text(id).to_owned().as_str() {
                key @ ("segments" | "host_segments") => self.segments(at, key, value)?,
                "device_traces" => self.device_traces(at, value)?,
                "host_traces" => self.host_traces(at, value)?,
                "external_annotations" => self.annotations(at, value)?,
                "allocator_settings" => self.settings(at, value)?,
                name @ (OVERFLOWED | MAX_ENTRIES) => self.ring(name, value),
                Rehearsal::KEY => self.rehearsal(value),
                Holders::KEY => self.holders(value),
                MemoryStats::KEY => self.memory_stats(value),
                snapkit::SOURCE_CODE => self.source_code(at, value)?,
                snapkit::SHAPE_DATA => self.shape_data(at, value)?,
                _ => self.unknown("snapshot", key),
            }
        }
        Ok(())
    }

    /// Whether `profile_plot` made it: entries have a category, and segments no type.
    fn is_profile_plot(&self) -> bool {
        let strings = &self.findings.strings;
        let has_category = |&(record, key): &(&str, Option<StrId>)| {
            record == "trace entry" && key.is_some_and(|key| strings.get(key) == "category")
        };
        self.findings.unknown_keys.keys().any(has_category) && !strings.contains("segment_type")
    }

    /// Reads facts about the ring buffer, which may be next to the settings or among them.
    fn ring(&mut self, key: &str, value: Value) {
        let notes = &mut self.snapshot.notes;
        if key == OVERFLOWED {
            match value {
                // If one place says that it overflowed, it did, whatever other places say.
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

    fn rehearsal(&mut self, value: Value) {
        let found = match value {
            Value::Str(id) => serde_json::from_str::<Rehearsal>(self.text(id)).ok(),
            _ => None,
        };
        match found.filter(|rehearsal| rehearsal.version == Rehearsal::VERSION) {
            Some(rehearsal) => self.snapshot.notes.rehearsal = Some(rehearsal),
            None => self.malformed(Rehearsal::KEY, "a rehearsal with keys that this version knows", value),
        }
    }

    fn memory_stats(&mut self, value: Value) {
        let found = match value {
            Value::Str(id) => MemoryStats::of_json(self.text(id)),
            _ => None,
        };
        match found {
            Some(stats) => self.snapshot.notes.memory_stats = Some(stats),
            None => self.malformed(MemoryStats::KEY, "counters with keys that this version knows", value),
        }
    }

    /// Reads what holds the memory.
    fn holders(&mut self, value: Value) {
        let found = match value {
            Value::Str(id) => Holders::of_json(self.text(id)),
            _ => None,
        };
        match found {
            Some(mut holders) => {
                for holder in holders.holders.iter_mut().filter(|holder| holder.line > 0) {
                    let Findings { strings, stacks, .. } = &mut self.findings;
                    holder.frame = Some(stacks.intern_frame(Frame {
                        filename: strings.intern(&holder.file),
                        name: strings.intern(&holder.function),
                        line: holder.line.into(),
                        fx: None,
                    }));
                }
                self.snapshot.notes.holders = Some(holders);
            }
            None => self.malformed(Holders::KEY, "holders with keys that this version knows", value),
        }
    }

    fn starts_with_segment(&self, list: Value) -> bool {
        let first = self.items(0, "segments", list).ok().and_then(|items| items.first().copied());
        matches!(first, Some(Value::Dict(_)))
    }

    fn finish(self) -> Snapshot {
        let mut snapshot = self.snapshot;
        snapshot.notes.unread_forward_lines = self.findings.forward.unread;
        snapshot.notes.frames_in_part = self.findings.frames_in_part;
        snapshot.strings = self.findings.strings;
        snapshot.stacks = self.findings.stacks;
        snapshot.contexts = self.findings.contexts;
        let strings = &snapshot.strings;
        let key_name = |key: Option<StrId>| key.map_or("a key that is not a string", |id| strings.get(id));
        let keys = self.findings.unknown_keys.into_iter();
        snapshot.notes.unknown_keys =
            keys.map(|((record, key), count)| (format!("{record}.{}", key_name(key)), count)).collect();
        let actions = self.findings.unknown_actions.into_iter();
        snapshot.notes.unknown_actions =
            actions.map(|(action, count)| (strings.get(action).to_owned(), count)).collect();
        snapshot.segments.sort_rows_by_key(|segment| (segment.device, segment.address));
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

    /// Records a value that cannot be used.
    fn malformed(&mut self, key: &str, expected: &str, found: Value) {
        let found = found.describe();
        self.snapshot.notes.malformed.push(format!("expected {expected} for {key:?}, found {found}"));
    }

    /// Subtracts one more record from what the file's size allows.
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
}

/// The error for a device number that PyTorch does not allow.
fn no_device(at: u64, number: i64) -> Error {
    Error::malformed(at, format!("expected a device from {HOST_DEVICE} to {MAX_DEVICE}, found {number}"))
}
