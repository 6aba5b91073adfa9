//! The hot loop, first half: one whole trace entry decoded straight from the bytes.
//!
//! Nearly all of a large snapshot is entries of one shape: a dictionary whose keys are memo references, whose values
//! are integers or memo references, and whose `frames` are a list of memo references to frames already known. This
//! module decodes that shape in one go, without the machine's stack. Whatever looks different in the slightest is left
//! to the machine, which starts again at the first byte of the entry, so this file decides nothing about validity.
//!
//! While it decodes it notes where the values stand that differ from one entry to the next, so that
//! [`super::template`] can recognise the next entry like it without decoding.

use super::opcode as op;
use super::recording::{Recording, action, name};
use super::value::{Heap, Value};
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, EntryContext, FrameId, PoolId, StackId};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// An entry decoded from the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// Bytes it took.
    pub length: usize,
    pub entry: TraceEntry,
    /// Whether the entry itself takes a memo slot, before [`Decoded::memoized`].
    pub memoize_entry: bool,
    /// Values to append to the memo, in order; the first [`Decoded::memoized_len`] count.
    pub memoized: [Value; 2],
    pub memoized_len: usize,
}

/// Bytes of an entry that hold a value of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Position in the entry's bytes.
    pub start: usize,
    /// Length in bytes; at most 8.
    pub length: usize,
    pub kind: HoleKind,
}

/// What a hole holds: an integer, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoleKind {
    Addr,
    Size,
    Time,
    /// The memo slot of an earlier `frames` list.
    StackSlot,
    /// The memo slot that a BINPUT takes: this many above the slots taken before the entry.
    NewSlot(usize),
}

/// Decodes entries; keeps what it learned about `frames` lists.
#[derive(Debug, Default)]
pub struct EntryDecoder {
    /// Stacks by the bytes of their list. Equal bytes mean equal stacks because memo slots never change: see
    /// [`EntryDecoder::forget`].
    stacks: HashMap<Box<[u8]>, StackId, RandomState>,
    /// Holes of the last entry, in order.
    pub holes: Vec<Hole>,
    /// Frames of the list being decoded; kept for its memory.
    frames: Vec<FrameId>,
    /// The last pool id and its tuple on the heap: one tuple serves all neighbours, since tuples never change.
    pool: Option<(PoolId, Value)>,
}

/// Longest list of frames, in bytes, that is remembered. Longer ones are decoded each time.
const STACK_BYTES: usize = 4096;
/// Number of lists remembered: bounds memory.
const STACKS: usize = 1 << 14;

impl EntryDecoder {
    /// Forgets every list: to be called when a memo slot changes its value, which no real writer does.
    pub fn forget(&mut self) {
        self.stacks.clear();
    }

    #[allow(clippy::too_many_lines, reason = "one loop over the keys of an entry, one arm per kind of value")]
    /// Decodes the entry that starts at `bytes[0]`, an `EMPTY_DICT`, if it has the usual shape and is all there.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        memo: &[Value],
        heap: &mut Heap,
        recording: &mut Recording,
    ) -> Option<Decoded> {
        self.holes.clear();
        let mut at = 1;
        let entry_slot = self.memoization(bytes, at, memo.len(), 0)?;
        at += entry_slot;
        if *bytes.get(at)? != op::MARK {
            return None;
        }
        at += 1;

        let memoize_entry = entry_slot > 0;
        let mut memoized = [Value::Missing; 2];
        let mut memoized_len = 0;
        let mut found_action = None;
        let (mut addr, mut size, mut time_us) = (None, None, None);
        let mut stack = StackId::EMPTY;
        let mut context = EntryContext::default();

        while *bytes.get(at)? != op::SETITEMS {
            let (slot, length) = reference(&bytes[at..])?;
            at += length;
            let &Value::Str(key) = memo.get(slot)? else { return None };
            let rest = bytes.get(at..)?;
            match key {
                name::ADDR | name::DEVICE_FREE => {
                    let (value, length) = integer(rest)?;
                    self.note(at, length, HoleKind::Addr, rest);
                    if addr.replace((key, value)).is_some() {
                        return None;
                    }
                    at += length;
                }
                name::SIZE => {
                    let (value, length) = integer(rest)?;
                    self.note(at, length, HoleKind::Size, rest);
                    size = Some(value);
                    at += length;
                }
                name::TIME_US => {
                    let (value, length) = integer(rest)?;
                    self.note(at, length, HoleKind::Time, rest);
                    time_us = Some(i64::try_from(value).ok()?);
                    at += length;
                }
                name::STREAM => {
                    let (value, length) = integer(rest)?;
                    context.stream = value;
                    at += length;
                }
                name::ACTION | name::COMPILE_CONTEXT | name::USER_METADATA | name::INTERNAL_METADATA => {
                    let (slot, length) = reference(rest)?;
                    let &Value::Str(text) = memo.get(slot)? else { return None };
                    match key {
                        name::ACTION => found_action = Some(action(text)),
                        name::COMPILE_CONTEXT => context.compile_context = text,
                        name::USER_METADATA => context.user_metadata = text,
                        _ => context.internal_metadata = text,
                    }
                    at += length;
                }
                name::FRAMES if rest.first() == Some(&op::EMPTY_LIST) => {
                    at += 1;
                    let offset = usize::from(memoize_entry) + memoized_len;
                    let slot_length = self.memoization(bytes, at, memo.len(), offset)?;
                    at += slot_length;
                    let (id, length) = self.frames_list(bytes.get(at..)?, memo, heap, recording)?;
                    stack = id;
                    at += length;
                    if slot_length > 0 {
                        *memoized.get_mut(memoized_len)? = Value::Stack(stack);
                        memoized_len += 1;
                    }
                }
                name::FRAMES => {
                    let (slot, length) = reference(rest)?;
                    let &Value::Stack(id) = memo.get(slot)? else { return None };
                    self.note(at, length, HoleKind::StackSlot, rest);
                    stack = id;
                    at += length;
                }
                name::POOL_ID => {
                    let (first, first_length) = integer(rest)?;
                    let (second, second_length) = integer(rest.get(first_length..)?)?;
                    at += first_length + second_length;
                    if *bytes.get(at)? != op::TUPLE2 {
                        return None;
                    }
                    at += 1;
                    context.pool = Some((first, second));
                    let offset = usize::from(memoize_entry) + memoized_len;
                    let slot_length = self.memoization(bytes, at, memo.len(), offset)?;
                    at += slot_length;
                    if slot_length > 0 {
                        *memoized.get_mut(memoized_len)? = self.pool_tuple((first, second), heap);
                        memoized_len += 1;
                    }
                }
                _ => return None,
            }
        }

        let action = found_action.filter(|&action| action != Action::Unknown)?;
        let ((addr_key, addr), size) = (addr?, size?);
        if (addr_key == name::DEVICE_FREE) != (action == Action::Oom) {
            return None;
        }
        recording.untimed |= time_us.is_none();
        let time_us = time_us.unwrap_or(0);
        let context = recording.contexts.intern(context);
        let entry = TraceEntry { action, addr, size, time_us, stack, context };
        Some(Decoded { length: at + 1, entry, memoize_entry, memoized, memoized_len })
    }

    /// Notes the operand of the instruction at `at`, which is the start of `rest`, as a hole.
    fn note(&mut self, at: usize, length: usize, kind: HoleKind, rest: &[u8]) {
        // LONG1 has a length byte between opcode and operand.
        let head = if rest.first() == Some(&op::LONG1) { 2 } else { 1 };
        self.holes.push(Hole { start: at + head, length: length - head, kind });
    }

    /// Length of the memoization at `at`, 0 when there is none. It must take the slot `offset` above the `slots` there
    /// are.
    fn memoization(&mut self, bytes: &[u8], at: usize, slots: usize, offset: usize) -> Option<usize> {
        let (slot, length) = match *bytes.get(at..)? {
            [op::MEMOIZE, ..] => return Some(1),
            [op::BINPUT, slot, ..] => (usize::from(slot), 2),
            [op::LONG_BINPUT, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]) as usize, 5),
            [_, ..] => return Some(0),
            [] => return None,
        };
        self.holes.push(Hole { start: at + 1, length: length - 1, kind: HoleKind::NewSlot(offset) });
        (slot == slots + offset).then_some(length)
    }

    /// The stack of a `frames` list whose items start at `list`, and the length of the items in bytes: 0 for an empty
    /// list, which is followed by whatever comes next.
    fn frames_list(
        &mut self,
        list: &[u8],
        memo: &[Value],
        heap: &Heap,
        recording: &mut Recording,
    ) -> Option<(StackId, usize)> {
        let one_item = || reference(list).is_some_and(|(_, length)| list.get(length) == Some(&op::APPEND));
        if *list.first()? != op::MARK && !one_item() {
            return Some((StackId::EMPTY, 0));
        }
        let length = self.collect_frames(list, memo, heap)?;
        let key = &list[..length];
        if let Some(&stack) = self.stacks.get(key) {
            return Some((stack, length));
        }
        let stack = recording.stacks.intern_stack(&self.frames);
        if length <= STACK_BYTES && self.stacks.len() < STACKS {
            self.stacks.insert(key.into(), stack);
        }
        Some((stack, length))
    }

    /// Decodes `MARK ref* APPENDS` or `ref APPEND` into [`EntryDecoder::frames`]; returns its length in bytes.
    fn collect_frames(&mut self, bytes: &[u8], memo: &[Value], heap: &Heap) -> Option<usize> {
        self.frames.clear();
        let many = *bytes.first()? == op::MARK;
        let mut at = usize::from(many);
        loop {
            let (slot, length) = match *bytes.get(at)? {
                op::APPENDS if many => return Some(at + 1),
                op::APPEND if !many => return Some(at + 1),
                _ => reference(&bytes[at..])?,
            };
            let Value::Frame(frame) = heap.resolve(*memo.get(slot)?) else { return None };
            self.frames.push(frame);
            at += length;
        }
    }

    /// The tuple of `pool` on the heap.
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

/// A memo reference: its slot and its length in bytes.
#[inline]
fn reference(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [op::BINGET, slot, ..] => Some((usize::from(slot), 2)),
        [op::LONG_BINGET, a, b, c, d, ..] => Some((u32::from_le_bytes([a, b, c, d]) as usize, 5)),
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
        let mut decoder = EntryDecoder::default();
        assert_eq!(decoder.memoization(&[op::MEMOIZE], 0, 7, 0), Some(1));
        assert_eq!(decoder.memoization(&[op::BINPUT, 7], 0, 7, 0), Some(2));
        assert_eq!(decoder.memoization(&[op::BINPUT, 8], 0, 7, 1), Some(2));
        assert_eq!(decoder.memoization(&[op::BINPUT, 8], 0, 7, 0), None);
        assert_eq!(decoder.memoization(&[op::MARK], 0, 7, 0), Some(0));
    }
}
