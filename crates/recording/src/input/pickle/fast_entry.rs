//! The hot loop, first half: decodes one whole trace entry directly from the bytes.
//!
//! Nearly all of a large snapshot consists of entries of one shape: a dictionary whose keys are memo references, whose values
//! are integers, strings (written out or memo references) or a pair of integers, and whose `frames` are a list of memo
//! references to known frames, or a reference to such a list. This module decodes that shape in one step, with the keys in
//! any order, without the machine's stack. Anything that differs is left to the machine, which starts again at the first byte
//! of the entry, so this file decides nothing about validity.
//!
//! While decoding, it records the positions of the values that differ from one entry to the next, so that [`super::template`]
//! can recognize the next similar entry without decoding.

use super::findings::{Findings, action, name, pool_id};
use super::lists::{ListId, Lists, NO_LIST, has_items};
use super::opcode as op;
use super::tables::{Tables, reference};
use super::value::{Heap, Value};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, EntryContext, PoolId, StackId, StrId};

#[derive(Clone, Copy, Debug)]
pub struct DecodedEntry {
    pub length: usize,
    pub entry: TraceEntry,
    /// Whether the first of [`DecodedEntry::memoized`] is the entry itself. It has no number yet: [`Value::Missing`].
    pub memoize_entry: bool,
    pub memoized: Memoized,
}

/// Values that an entry puts into the memo, in order: the entry, its strings, its list of frames, its pool.
#[derive(Clone, Copy, Debug)]
pub struct Memoized {
    values: [Value; 8],
    count: usize,
}

impl Memoized {
    fn push(&mut self, value: Value) -> Option<()> {
        *self.values.get_mut(self.count)? = value;
        self.count += 1;
        Some(())
    }

    #[inline]
    pub fn values(&mut self) -> &mut [Value] {
        &mut self.values[..self.count]
    }
}

/// The parts of an entry that differ from the next similar entry.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// In order.
    pub holes: Vec<Hole>,
    pub list: Option<ListPlace>,
}

/// Bytes of an entry that contain a value of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Position in the entry's bytes.
    pub start: usize,
    /// Length in bytes; at most 8.
    pub length: usize,
    /// Whether the top bit is a sign. It must not be set: no value here is negative.
    pub signed: bool,
    pub kind: HoleKind,
}

/// The value in a hole: a little-endian integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoleKind {
    Addr,
    Size,
    Time,
    /// The memo slot of an earlier `frames` list.
    StackSlot,
    /// The memo slot of a BINPUT: this many above the slots used before the entry.
    NewSlot(usize),
}

#[derive(Clone, Copy, Debug)]
pub struct ListPlace {
    /// Position in the entry's bytes.
    pub start: usize,
    pub length: usize,
    pub id: ListId,
    /// Which of the memoized values the list is, if any.
    pub memoized: Option<usize>,
}

#[derive(Debug, Default)]
pub struct EntryDecoder {
    pub lists: Lists,
    /// The shape of the last entry.
    pub shape: Shape,
    /// Where the last entry that was left to the machine stopped having the usual shape, if an instruction starts there.
    pub stopped: usize,
    longest_string: u64,
    /// The last pool ID and its tuple on the heap. Neighboring entries share one tuple, since tuples never change.
    pool: Option<(PoolId, Value)>,
}

impl EntryDecoder {
    /// A decoder that leaves entries with longer strings to the machine.
    pub fn new(longest_string: u64) -> Self {
        Self { longest_string, ..Self::default() }
    }

    /// Decodes the entry that starts at `bytes[0]`, an `EMPTY_DICT`, if it has the usual shape and is complete.
    pub fn decode(&mut self, bytes: &[u8], tables: &mut Tables<'_>) -> Option<DecodedEntry> {
        self.shape.holes.clear();
        self.shape.list = None;
        self.stopped = 0;
        let mut memoized = Memoized { values: [Value::Missing; 8], count: 0 };
        let mut at = 1;
        let memoize_entry = self.memoize(bytes, &mut at, Value::Missing, &mut memoized, tables)?;
        self.stopped = at;
        if *bytes.get(at)? != op::MARK {
            return None;
        }
        at += 1;

        let mut found = Found::default();
        loop {
            self.stopped = at;
            if *bytes.get(at)? == op::SETITEMS {
                break;
            }
            let (slot, length) = reference(&bytes[at..])?;
            let Value::Str(key) = tables.memo.get(slot)? else { return None };
            at += length;
            self.stopped = at;
            self.value(key, bytes, &mut at, &mut found, &mut memoized, tables)?;
        }
        let entry = found.entry(tables.findings)?;
        Some(DecodedEntry { length: at + 1, entry, memoize_entry, memoized })
    }

    /// Decodes the value of `key` at `at` and moves past it.
    fn value(
        &mut self,
        key: StrId,
        bytes: &[u8],
        at: &mut usize,
        found: &mut Found,
        memoized: &mut Memoized,
        tables: &mut Tables<'_>,
    ) -> Option<()> {
        match key {
            name::ADDR | name::DEVICE_FREE => {
                let value = self.hole(bytes, at, HoleKind::Addr)?;
                if found.addr.replace((key, value)).is_some() {
                    return None;
                }
            }
            name::SIZE => found.size = Some(self.hole(bytes, at, HoleKind::Size)?),
            name::TIME_US => {
                let value = self.hole(bytes, at, HoleKind::Time)?;
                found.time_us = Some(i64::try_from(value).ok()?);
            }
            name::STREAM => {
                let (value, length) = integer(bytes.get(*at..)?)?;
                found.context.stream = value;
                *at += length;
            }
            name::ACTION => found.action = Some(action(self.string(bytes, at, memoized, tables)?)),
            name::COMPILE_CONTEXT => found.context.compile_context = self.string(bytes, at, memoized, tables)?,
            name::USER_METADATA => found.context.user_metadata = self.string(bytes, at, memoized, tables)?,
            name::INTERNAL_METADATA => found.context.internal_metadata = self.string(bytes, at, memoized, tables)?,
            name::FRAMES => found.stack = self.frames(bytes, at, memoized, tables)?,
            name::POOL_ID => found.context.pool = Some(self.pool(bytes, at, memoized, tables)?),
            _ => return None,
        }
        Some(())
    }

    /// A non-negative integer that is a hole.
    fn hole(&mut self, bytes: &[u8], at: &mut usize, kind: HoleKind) -> Option<u64> {
        let rest = bytes.get(*at..)?;
        let (value, length) = integer(rest)?;
        let opcode = *rest.first()?;
        // LONG1 has a length byte between its opcode and operand.
        let head = if opcode == op::LONG1 { 2 } else { 1 };
        let signed = matches!(opcode, op::BININT | op::LONG1);
        self.shape.holes.push(Hole { start: *at + head, length: length - head, signed, kind });
        *at += length;
        Some(value)
    }

    /// A string, written out or by reference; empty for None.
    fn string(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        memoized: &mut Memoized,
        tables: &mut Tables<'_>,
    ) -> Option<StrId> {
        let rest = bytes.get(*at..)?;
        let (head, length) = match *rest {
            [op::SHORT_BINUNICODE, length, ..] => (2, usize::from(length)),
            [op::BINUNICODE, a, b, c, d, ..] => (5, u32::from_le_bytes([a, b, c, d]) as usize),
            [op::NONE, ..] => {
                *at += 1;
                return Some(StrId::EMPTY);
            }
            _ => {
                let (slot, length) = reference(rest)?;
                let Value::Str(text) = tables.memo.get(slot)? else { return None };
                *at += length;
                return Some(text);
            }
        };
        if length as u64 > self.longest_string {
            return None;
        }
        let text = std::str::from_utf8(rest.get(head..head + length)?).ok()?;
        let id = tables.findings.strings.intern(text);
        *at += head + length;
        self.memoize(bytes, at, Value::Str(id), memoized, tables)?;
        Some(id)
    }

    /// A list of frames, written out or by reference; empty for None.
    fn frames(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        memoized: &mut Memoized,
        tables: &mut Tables<'_>,
    ) -> Option<StackId> {
        let rest = bytes.get(*at..)?;
        match *rest.first()? {
            op::EMPTY_LIST => {}
            op::NONE => {
                *at += 1;
                return Some(StackId::EMPTY);
            }
            _ => {
                let (slot, length) = reference(rest)?;
                let stack = match tables.memo.get(slot)? {
                    Value::Stack(stack) => stack,
                    // A list that the machine has read.
                    list @ Value::List(_) => tables.findings.stack(tables.heap, 0, list).ok()?,
                    _ => return None,
                };
                let (start, length_of_slot) = (*at + 1, length - 1);
                self.shape.holes.push(Hole { start, length: length_of_slot, signed: false, kind: HoleKind::StackSlot });
                *at += length;
                return Some(stack);
            }
        }
        *at += 1;
        let slot = memoized.count;
        let is_memoized = self.memoize(bytes, at, Value::Stack(StackId::EMPTY), memoized, tables)?;
        let items = bytes.get(*at..)?;
        if !has_items(items) {
            self.stopped = *at;
            return Some(StackId::EMPTY);
        }
        let Some(list) = self.lists.find(items, NO_LIST, tables) else {
            self.stopped = *at + self.lists.stopped;
            return None;
        };
        if is_memoized {
            memoized.values[slot] = Value::Stack(list.stack);
        }
        let place = ListPlace { start: *at, length: list.length, id: list.id, memoized: is_memoized.then_some(slot) };
        if self.shape.list.replace(place).is_some() {
            return None;
        }
        *at += list.length;
        Some(list.stack)
    }

    /// A pool ID: a tuple of two integers, written out or by reference.
    fn pool(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        memoized: &mut Memoized,
        tables: &mut Tables<'_>,
    ) -> Option<PoolId> {
        let rest = bytes.get(*at..)?;
        if let Some((slot, length)) = reference(rest) {
            // A list could still grow.
            let tuple @ Value::Tuple(_) = tables.memo.get(slot)? else { return None };
            *at += length;
            return pool_id(tables.heap, 0, tuple).ok();
        }
        let (first, first_length) = integer(rest)?;
        let (second, second_length) = integer(rest.get(first_length..)?)?;
        *at += first_length + second_length;
        if *bytes.get(*at)? != op::TUPLE2 {
            return None;
        }
        *at += 1;
        let pool = (first, second);
        if memoization(bytes.get(*at..)?).is_some() {
            let tuple = self.pool_tuple(pool, tables.heap);
            self.memoize(bytes, at, tuple, memoized, tables)?;
        }
        Some(pool)
    }

    /// Moves past the instruction that puts `value` into the memo, if there is one at `at`, and returns whether there was. It
    /// must use the slot after those already used.
    fn memoize(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        value: Value,
        memoized: &mut Memoized,
        tables: &Tables<'_>,
    ) -> Option<bool> {
        let Some((slot, length)) = memoization(bytes.get(*at..)?) else { return Some(false) };
        let offset = memoized.count;
        if let Some(slot) = slot {
            if slot != tables.memo.len() + offset {
                return None;
            }
            let kind = HoleKind::NewSlot(offset);
            self.shape.holes.push(Hole { start: *at + 1, length: length - 1, signed: false, kind });
        }
        memoized.push(value)?;
        *at += length;
        Some(true)
    }

    fn pool_tuple(&mut self, pool: PoolId, heap: &mut Heap) -> Value {
        match self.pool {
            Some((known, tuple)) if known == pool => tuple,
            _ => {
                let items = [heap.int(i128::from(pool.0)), heap.int(i128::from(pool.1))];
                let tuple = heap.tuple(&items);
                self.pool = Some((pool, tuple));
                tuple
            }
        }
    }
}

#[derive(Default)]
struct Found {
    action: Option<Action>,
    /// The key of the address, and the address or the free bytes.
    addr: Option<(StrId, u64)>,
    size: Option<u64>,
    time_us: Option<i64>,
    stack: StackId,
    context: EntryContext,
}

impl Found {
    fn entry(self, findings: &mut Findings) -> Option<TraceEntry> {
        let action = self.action.filter(|&action| action != Action::Unknown)?;
        let ((addr_key, addr), size) = (self.addr?, self.size?);
        if (addr_key == name::DEVICE_FREE) != (action == Action::Oom) {
            return None;
        }
        findings.untimed |= self.time_us.is_none();
        let context = findings.contexts.intern(self.context);
        Some(TraceEntry { action, addr, size, time_us: self.time_us.unwrap_or(0), stack: self.stack, context })
    }
}

/// The instruction that puts a value into the memo, if `bytes` start with one: its slot and its length.
fn memoization(bytes: &[u8]) -> Option<(Option<usize>, usize)> {
    match *bytes {
        [op::MEMOIZE, ..] => Some((None, 1)),
        [op::BINPUT, slot, ..] => Some((Some(usize::from(slot)), 2)),
        [op::LONG_BINPUT, a, b, c, d, ..] => Some((Some(u32::from_le_bytes([a, b, c, d]) as usize), 5)),
        _ => None,
    }
}

/// A non-negative integer and its length in bytes.
#[inline]
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    match *bytes {
        [op::BININT1, value, ..] => Some((u64::from(value), 2)),
        [op::BININT2, a, b, ..] => Some((u64::from(u16::from_le_bytes([a, b])), 3)),
        [op::BININT, a, b, c, d, ..] => {
            let value = i32::from_le_bytes([a, b, c, d]);
            Some((u64::try_from(value).ok()?, 5))
        }
        [op::LONG1, length @ 1..=8, ..] => {
            let length = usize::from(length);
            let value = little_endian(bytes.get(2..2 + length)?);
            // The top bit of the last byte is the sign.
            (value >> (8 * length - 1) == 0).then_some((value, 2 + length))
        }
        _ => None,
    }
}

/// An unsigned integer of up to eight bytes, least significant first.
#[inline]
pub fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::memo::Memo;
    use super::*;

    #[test]
    fn integers_of_every_width_are_read_or_left_alone() {
        let long = |bytes: &[u8]| {
            let mut all = vec![op::LONG1, bytes.len() as u8];
            all.extend_from_slice(bytes);
            integer(&all).map(|(value, _)| value)
        };
        assert_eq!(long(&[0x00, 0x01]), Some(256));
        assert_eq!(long(&[0xff, 0x7f]), Some(0x7fff));
        assert_eq!(long(&[0xff, 0xff]), None, "negative");
        assert_eq!(long(&[0xff; 8]), None, "negative");
        assert_eq!(long(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Some(i64::MAX as u64));
        assert_eq!(long(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]), None, "nine bytes");
        assert_eq!(integer(&[op::BININT, 0xff, 0xff, 0xff, 0xff]), None, "negative");
        assert_eq!(integer(&[op::BININT2, 1, 2]), Some((513, 3)));
        assert_eq!(integer(&[op::LONG1, 6, 1, 2]), None, "cut off");
    }

    #[test]
    fn a_memoization_must_take_the_next_slot() {
        let mut memo = Memo::default();
        (0..7).for_each(|_| memo.push(Value::None));
        let taken = |bytes: &[u8], before: usize| {
            let mut findings = Findings::default();
            let tables = Tables { memo: &memo, heap: &mut Heap::default(), findings: &mut findings };
            let mut memoized = Memoized { values: [Value::Missing; 8], count: before };
            let mut at = 0;
            let is_there = EntryDecoder::default().memoize(bytes, &mut at, Value::None, &mut memoized, &tables)?;
            Some((is_there, at, memoized.count - before))
        };
        assert_eq!(taken(&[op::MEMOIZE], 0), Some((true, 1, 1)));
        assert_eq!(taken(&[op::BINPUT, 7], 0), Some((true, 2, 1)));
        assert_eq!(taken(&[op::BINPUT, 8], 1), Some((true, 2, 1)));
        assert_eq!(taken(&[op::LONG_BINPUT, 8, 0, 0, 0], 1), Some((true, 5, 1)));
        assert_eq!(taken(&[op::BINPUT, 8], 0), None);
        assert_eq!(taken(&[op::MEMOIZE], 8), None, "more than an entry has");
        assert_eq!(taken(&[op::MARK], 0), Some((false, 0, 0)));
    }
}
