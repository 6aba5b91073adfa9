//! From `export_chrome_trace` to [`Profile`], in one pass.
//!
//! The kind of each event is found first; only memory events, operators, annotations and Python functions are read further.
//! The rest (kernels, flows, metadata: most of a large trace) is skipped.

use super::cursor::{Cursor, Parsed, missing, unescape};
use super::devices::{self, TracedGpu};
use super::event::{Event, Kind};
use super::feed::Feed;
use super::parallel::{self, Part, Progress};
use crate::error::{Error, Result};
use crate::input::ReadOptions;
use crate::model::profile::{DeviceType, MemoryEvent, MemoryKind, Profile, ProfileThread, Sequence, Span, SpanKind};
use crate::model::{CPU_DEVICE, DeviceId, Format, MAX_DEVICE, StrId};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::io::Read;

/// How the names of Python functions written in C start.
const BUILT_IN: &[u8] = b"<built-in ";
/// What to do with a trace of `XProf`.
const XPROF: &str = "an XProf trace of JAX or TensorFlow, which records operations but no memory; memviz reads files written by \
                     jax.profiler.save_device_memory_profile";
/// More bytes than any device has. Differences between smaller totals fit 63 bits.
const TOO_MANY_BYTES: u64 = 1 << 60;

/// Reads a trace, starting at its top-level object or bare array of events.
pub fn read<R: Read + Send>(feed: &mut Feed<R>, options: &ReadOptions) -> Result<Profile> {
    let mut reader = TraceReader::default();
    let threads = if options.on_one_thread { 1 } else { rayon::current_num_threads() };
    let result = reader.top(feed, threads);
    let notes = &mut reader.profile.notes;
    notes.format = Format::ProfilerTrace;
    notes.has_times = true;
    match result {
        Err(Error::Truncated { at, .. }) if options.allow_truncated => notes.truncated_at = Some(at),
        result => result?,
    }
    notes.bytes = feed.offset();
    notes.coarse_times = !reader.has_fractions && !reader.profile.memory.is_empty();
    if reader.profile.memory.is_empty() && !reader.has_memory_flag {
        return Err(if reader.is_of_xprof {
            Error::Foreign(XPROF.to_owned())
        } else if reader.has_events {
            Error::NoMemoryEvents
        } else {
            let message = if reader.has_nodes {
                "a PyTorch execution trace (ExecutionTraceObserver), which records operators but no memory: \
                 torch.profiler.profile(profile_memory=True, with_stack=True) records both"
            } else {
                "not a profiler trace or memory timeline: expected a key \"traceEvents\", found none"
            };
            Error::UnknownJson(message.to_owned())
        });
    }
    Ok(reader.profile)
}

/// A trace, or a part of one, as far as it was read.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct TraceReader {
    profile: Profile,
    threads: HashMap<(i64, i64), u32, RandomState>,
    /// The thread of the previous event, which is nearly always the thread of the next one.
    last_thread: Option<((i64, i64), u32)>,
    /// What memory events contain; the first one determines it.
    memory_keys: Option<MemoryKeys>,
    /// Whether a time had a fraction of a microsecond.
    has_fractions: bool,
    has_events: bool,
    has_memory_flag: bool,
    /// Whether the file has the list that an execution trace has instead of events.
    has_nodes: bool,
    /// Whether processes have the names that `XProf` gives them.
    is_of_xprof: bool,
}

/// What the memory events of a trace contain, which depends on the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryKeys {
    /// `Addr`, since PyTorch 1.11.
    addresses: bool,
    /// `Total Allocated` and `Total Reserved`, since PyTorch 1.11.
    totals: bool,
}

enum TopKey {
    Events,
    BaseTime,
    Distributed,
    ProfileMemory,
    Nodes,
    Gpus,
    Other,
}

impl TraceReader {
    fn top<R: Read + Send>(&mut self, feed: &mut Feed<R>, threads: usize) -> Result<()> {
        let is_object = feed.item("the start", |cursor| Ok(cursor.peek()? == b'{'))?;
        if !is_object {
            return self.events(feed, threads);
        }
        feed.item("the start", |cursor| cursor.expect(b'{', "an object"))?;
        let mut first = true;
        loop {
            let key = feed.item("the top-level object", |cursor| {
                Ok(cursor.key(first)?.map(|key| match &*key {
                    b"traceEvents" => TopKey::Events,
                    b"baseTimeNanoseconds" => TopKey::BaseTime,
                    b"distributedInfo" => TopKey::Distributed,
                    b"profile_memory" => TopKey::ProfileMemory,
                    b"nodes" => TopKey::Nodes,
                    b"deviceProperties" => TopKey::Gpus,
                    _ => TopKey::Other,
                }))
            })?;
            first = false;
            match key {
                None => return end(feed),
                Some(TopKey::Events) => self.events(feed, threads)?,
                Some(TopKey::BaseTime) => {
                    let expected = "an integer for \"baseTimeNanoseconds\"";
                    self.profile.base_time_ns = feed.item("a time", |cursor| cursor.integer(expected))?;
                }
                Some(TopKey::Distributed) => {
                    self.profile.notes.rank = feed.item("\"distributedInfo\"", distributed_info)?;
                }
                Some(TopKey::ProfileMemory) => {
                    self.has_memory_flag = feed.item("a flag", |cursor| {
                        let is_one = cursor.peek()? == b'1';
                        cursor.skip()?;
                        Ok(is_one)
                    })?;
                }
                Some(TopKey::Nodes) => {
                    self.has_nodes = true;
                    feed.item("the top-level object", skip)?;
                }
                Some(TopKey::Gpus) => {
                    let gpus = feed.item("\"deviceProperties\"", |cursor| match cursor.peek()? {
                        b'[' => devices::list(cursor),
                        _ => cursor.skip().map(|()| Vec::new()),
                    })?;
                    let memory = |gpu: TracedGpu| Some((gpu.id?, gpu.memory)).filter(|(_, memory)| *memory > 0);
                    self.profile.notes.device_memory = gpus.into_iter().filter_map(memory).collect();
                }
                Some(TopKey::Other) => feed.item("the top-level object", skip)?,
            }
        }
    }

    fn events<R: Read + Send>(&mut self, feed: &mut Feed<R>, threads: usize) -> Result<()> {
        if self.has_events {
            return Err(Error::malformed(feed.offset(), "expected one \"traceEvents\", found a second"));
        }
        self.has_events = true;
        feed.item("\"traceEvents\"", |cursor| cursor.expect(b'[', "an array of events"))?;
        self.is_of_xprof = feed.look(|bytes| Some(names_xprof_device(bytes)))?.unwrap_or(false);
        let mut first = true;
        if threads > 1 {
            match parallel::read_events(feed, self, threads) {
                Progress::Closed => return Ok(()),
                Progress::Open { at_start } => first = at_start,
            }
        }
        feed.items("\"traceEvents\"", |cursor| {
            let more = self.event(cursor, first)?;
            first = false;
            Ok(more)
        })
    }
}

impl Part for TraceReader {
    fn event(&mut self, cursor: &mut Cursor<'_>, first: bool) -> Parsed<bool> {
        if !cursor.element(first, b']')? {
            return Ok(false);
        }
        if let Some(event) = Event::read(cursor)? {
            self.keep(&event)?;
        }
        Ok(true)
    }

    /// All parts must agree with the first memory event.
    fn goes_with(&self, next: &Self) -> bool {
        fn agree<T: Copy + PartialEq>(ours: Option<T>, theirs: Option<T>) -> bool {
            ours.zip(theirs).is_none_or(|(ours, theirs)| ours == theirs)
        }
        agree(self.memory_keys, next.memory_keys)
            && agree(self.profile.notes.device_type, next.profile.notes.device_type)
    }

    fn append(&mut self, next: Self) {
        let TraceReader { profile: part, memory_keys, has_fractions, .. } = next;
        let profile = &mut self.profile;
        // Names and threads are numbered in order of appearance, both in the part and in the whole.
        let name = |id: usize| StrId(id as u32);
        let names: Vec<StrId> =
            (0..part.strings.len()).map(|id| profile.strings.intern(part.strings.get(name(id)))).collect();
        let first_sequence = profile.sequences.len() as u32;
        profile.sequences.extend(part.sequences);
        let mut threads = Vec::with_capacity(part.threads.len());
        for thread in part.threads {
            let index = *self.threads.entry(thread.id).or_insert_with(|| {
                profile.threads.push(ProfileThread { id: thread.id, spans: Vec::new() });
                (profile.threads.len() - 1) as u32
            });
            threads.push(index);
            profile.threads[index as usize].spans.extend(thread.spans.into_iter().map(|span| {
                let sequence = match span.sequence {
                    Span::NO_SEQUENCE => Span::NO_SEQUENCE,
                    sequence => first_sequence + sequence,
                };
                let [name, modules] = [span.name, span.modules].map(|id| names[id.index()]);
                Span { name, modules, sequence, ..span }
            }));
        }
        let memory = part.memory.into_iter();
        profile.memory.extend(memory.map(|event| MemoryEvent { thread: threads[event.thread as usize], ..event }));
        let (notes, more) = (&mut profile.notes, part.notes);
        for (reason, count) in more.left_out {
            *notes.left_out.entry(reason).or_default() += count;
        }
        notes.memory_left_out += more.memory_left_out;
        notes.runs_on_gpu |= more.runs_on_gpu;
        notes.device_type = notes.device_type.or(more.device_type);
        notes.no_addresses |= more.no_addresses;
        notes.no_totals |= more.no_totals;
        self.memory_keys = self.memory_keys.or(memory_keys);
        self.has_fractions |= has_fractions;
    }
}

impl TraceReader {
    fn keep(&mut self, event: &Event<'_>) -> Parsed<()> {
        if event.kind == Kind::OnGpu {
            self.profile.notes.runs_on_gpu = true;
            return Ok(());
        }
        let (Some(id), Some(time_ns)) = (event.pid.zip(event.tid), event.ts) else {
            self.profile.notes.memory_left_out += u64::from(event.tells_of_memory());
            self.leave_out("events without a time or a thread");
            return Ok(());
        };
        self.has_fractions |= time_ns % 1000 != 0;
        let kind = match event.kind {
            Kind::Memory => return self.keep_memory(event, id, time_ns),
            Kind::Span(kind) => kind,
            Kind::OnGpu => return Ok(()),
        };
        match event.dur {
            None => self.leave_out("events without a duration"),
            Some(..0) => self.leave_out("events with a negative duration"),
            // Python functions without a source line: the operator inside them is more specific.
            Some(_) if kind == SpanKind::Python && event.name.starts_with(BUILT_IN) => {}
            Some(duration) => {
                // Before PyTorch 1.11, `record_function` ranges are operators, too. Those of PyTorch itself
                // (`ProfilerStep#3`, `Optimizer.step#SGD.step`) contain a character that operator names do not.
                let is_range = kind == SpanKind::Operator && event.name.contains(&b'#');
                let kind = if is_range { SpanKind::Annotation } else { kind };
                let name = self.name(event.name);
                let modules = if event.args.modules.is_empty() { StrId::EMPTY } else { self.name(event.args.modules) };
                let sequence = self.sequence(event);
                let thread = self.thread(id);
                let end_ns = time_ns.saturating_add(duration);
                let span = Span { start_ns: time_ns, end_ns, name, modules, kind, sequence };
                self.profile.threads[thread as usize].spans.push(span);
            }
        }
        Ok(())
    }

    fn keep_memory(&mut self, event: &Event<'_>, id: (i64, i64), time_ns: i64) -> Parsed<()> {
        let kind = match event.name {
            b"[memory]" => MemoryKind::Change,
            b"[OutOfMemory]" => MemoryKind::OutOfMemory,
            _ => {
                if event.tells_of_memory() {
                    self.profile.notes.memory_left_out += 1;
                    self.leave_out("memory events with a name other than [memory]");
                }
                return Ok(());
            }
        };
        let args = &event.args;
        let needed = |value: Option<i64>, key: &str| match value {
            Some(value) => Ok(value),
            None => missing(event.at, &format!("{key:?} in a {} event", String::from_utf8_lossy(event.name))),
        };
        let device_type = DeviceType::of(needed(args.device_type, "Device Type")?);
        let device_id = needed(args.device_id, "Device Id")?;
        let device = if device_type == DeviceType::Cpu {
            CPU_DEVICE
        } else {
            // Devices are distinguished only by their number.
            let known = *self.profile.notes.device_type.get_or_insert(device_type);
            if known != device_type {
                self.profile.notes.memory_left_out += 1;
                self.leave_out(&format!("memory of {}, in addition to {}", device_type.name(), known.name()));
                return Ok(());
            }
            match DeviceId::try_from(device_id) {
                Ok(device @ 0..=MAX_DEVICE) => device,
                _ => return missing(event.at, &format!("a device from 0 to {MAX_DEVICE}, found {device_id},")),
            }
        };
        let found = MemoryKeys { addresses: args.addr.is_some(), totals: args.allocated.is_some() };
        let MemoryKeys { addresses, totals } = *self.memory_keys.get_or_insert(found);
        let addr = match kind {
            MemoryKind::Change if addresses => needed(args.addr.map(|addr| addr as i64), "Addr")? as u64,
            _ => 0,
        };
        let total = |value, key| if totals { needed(value, key) } else { Ok(0) };
        let memory = MemoryEvent {
            kind,
            time_ns,
            thread: self.thread(id),
            device,
            addr,
            bytes: needed(args.bytes, "Bytes")?,
            allocated: total(args.allocated, "Total Allocated")?,
            reserved: total(args.reserved, "Total Reserved")?,
        };
        if [memory.bytes, memory.allocated, memory.reserved].iter().any(|bytes| bytes.unsigned_abs() >= TOO_MANY_BYTES)
        {
            return missing(event.at, "fewer bytes than an exbibyte");
        }
        self.profile.notes.no_addresses = !addresses;
        self.profile.notes.no_totals = !totals;
        self.profile.memory.push(memory);
        Ok(())
    }

    fn leave_out(&mut self, reason: &str) {
        *self.profile.notes.left_out.entry(reason.to_owned()).or_default() += 1;
    }

    fn name(&mut self, raw: &[u8]) -> StrId {
        match std::str::from_utf8(raw) {
            Ok(plain) if !raw.contains(&b'\\') => self.profile.strings.intern(plain),
            _ => self.profile.strings.intern(&unescape(raw)),
        }
    }

    fn sequence(&mut self, event: &Event<'_>) -> u32 {
        let Some(number) = event.args.sequence.and_then(|number| u64::try_from(number).ok()) else {
            return Span::NO_SEQUENCE;
        };
        let forward_thread = event.args.forward_thread.and_then(|thread| u64::try_from(thread).ok()).unwrap_or(0);
        self.profile.sequences.push(Sequence { number, forward_thread });
        (self.profile.sequences.len() - 1) as u32
    }

    fn thread(&mut self, id: (i64, i64)) -> u32 {
        match self.last_thread {
            Some((last, thread)) if last == id => return thread,
            _ => {}
        }
        let threads = &mut self.profile.threads;
        let thread = *self.threads.entry(id).or_insert_with(|| {
            threads.push(ProfileThread { id, spans: Vec::new() });
            (threads.len() - 1) as u32
        });
        self.last_thread = Some((id, thread));
        thread
    }
}

/// Whether the events begin as those of `XProf` do: with the names of devices as names of processes.
fn names_xprof_device(events: &[u8]) -> bool {
    const FIRST: usize = 512;
    let first = &events[..events.len().min(FIRST)];
    [&b"\"/device:"[..], b"\"/host:"].iter().any(|name| first.windows(name.len()).any(|window| window == *name))
}

pub fn skip(cursor: &mut Cursor<'_>) -> Parsed<()> {
    cursor.skip()
}

pub fn end<R: Read>(feed: &mut Feed<R>) -> Result<()> {
    if feed.is_at_end()? {
        return Ok(());
    }
    Err(Error::malformed(feed.offset(), "expected the end of the file, found more"))
}

/// Rank and world size, if they are integers.
fn distributed_info(cursor: &mut Cursor<'_>) -> Parsed<Option<(u64, Option<u64>)>> {
    if cursor.peek()? != b'{' {
        cursor.skip()?;
        return Ok(None);
    }
    cursor.expect(b'{', "an object")?;
    let (mut rank, mut world_size, mut first) = (None, None, true);
    while let Some(key) = cursor.key(first)? {
        first = false;
        let slot = match &*key {
            b"rank" => &mut rank,
            b"world_size" => &mut world_size,
            _ => {
                cursor.skip()?;
                continue;
            }
        };
        *slot = u64::try_from(cursor.integer("an integer")?).ok();
    }
    Ok(rank.map(|rank| (rank, world_size)))
}
