//! The hot loop, second half: an entry recognised by comparing bytes instead of decoding them.
//!
//! Training repeats itself: what follows the entry of one stack is nearly always what followed it the last time (85 to
//! 90 % on real recordings). So entries that differ only in address, size, time and list of frames share a template:
//! their bytes with holes for the numbers and a gap for the list. What came next after the same entries is remembered,
//! template and list, and when the bytes ahead equal that, only the holes are read. Where entries follow one another
//! in no order, the list is looked up by its hash ([`super::lists`]) and the template is still one of a few dozen.
//!
//! Equal bytes decode equally because memo slots never change; should a file ever change one, everything learned is
//! forgotten.

use super::fast_entry::{Decoded, Hole, HoleKind, Shape, Tables, little_endian};
use super::lists::{ListId, Lists, NO_LIST};
use super::value::Value;
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, ContextId};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Bytes in a word.
const WORD: usize = size_of::<u64>();

/// Bytes with holes.
#[derive(Debug)]
struct Piece {
    length: usize,
    /// The bytes in words, zero in the holes and behind the end; then as many words with ones where those count.
    words: Box<[u64]>,
    holes: Box<[Hole]>,
}

/// An entry with holes.
#[derive(Debug)]
struct Template {
    /// What stands before the items of the list of frames, or all there is when there is no such list.
    head: Piece,
    list: Option<Gap>,
    /// The decoded entry; what stands in the holes and the list is overwritten.
    decoded: Decoded,
}

/// The place of the items of a list.
#[derive(Debug)]
struct Gap {
    /// Which of the memoized values the list is.
    memoized: Option<usize>,
    /// What stands behind it.
    tail: Piece,
}

/// What distinguishes templates, nearly. Of two that share a key the later replaces the other.
type Key = (Action, ContextId, usize, Option<usize>, usize, u64);

/// What came next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    template: u16,
    list: ListId,
}

/// The templates of a file and which of them comes next.
#[derive(Debug, Default)]
pub struct Templates {
    known: Vec<Template>,
    by_key: HashMap<Key, u16, RandomState>,
    /// The last 16 entries, folded: each shifts the ones before by four bits.
    history: u64,
    /// What came next the last time, by the hash of the history.
    next: Vec<Next>,
    /// The last eight templates, whatever their lists.
    kinds: u64,
    /// The template that came next, by the hash of those.
    next_kind: Vec<u16>,
}

/// Binary logarithm of the number of histories kept.
const HISTORY_BITS: u32 = 14;
/// The same for histories of templates only.
const KINDS_BITS: u32 = 12;

/// Number of templates kept: bounds memory.
const TEMPLATES: usize = 1 << 12;
/// Longest entry that makes a template, in bytes without the list.
const TEMPLATE_BYTES: usize = 1024;

impl Templates {
    /// Forgets everything.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The entry at the start of `bytes`, if it equals a template that is likely to come next.
    #[inline]
    pub fn predict(&mut self, bytes: &[u8], lists: &mut Lists, tables: &mut Tables<'_>) -> Option<Decoded> {
        let slot = slot_of(self.history, HISTORY_BITS);
        let likely = *self.next.get(slot)?;
        let mut index = likely.template;
        if !self.known.get(usize::from(index))?.head.is_start_of(bytes) {
            index = self.next_kind[slot_of(self.kinds, KINDS_BITS)];
            if index == likely.template || !self.known.get(usize::from(index))?.head.is_start_of(bytes) {
                return None;
            }
        }
        let (decoded, list) = self.known[usize::from(index)].fit(bytes, likely.list, lists, tables)?;
        let next = Next { template: index, list };
        if next != likely {
            self.next[slot] = next;
            self.next_kind[slot_of(self.kinds, KINDS_BITS)] = index;
        }
        self.remember(next);
        Some(decoded)
    }

    /// Remembers an entry of this shape that was just decoded from `bytes`.
    pub fn learn(&mut self, bytes: &[u8], decoded: &Decoded, shape: &Shape) {
        let list_length = shape.list.map_or(0, |list| list.length);
        if decoded.length - list_length > TEMPLATE_BYTES {
            return;
        }
        if self.known.len() >= TEMPLATES {
            self.forget();
        }
        if self.next.is_empty() {
            self.next = vec![Next::default(); 1 << HISTORY_BITS];
            self.next_kind = vec![0; 1 << KINDS_BITS];
        }
        let (entry, start) = (&decoded.entry, shape.list.map(|list| list.start));
        let places = shape.holes.iter().fold(0, |places: u64, hole| {
            let after = if start.is_some_and(|start| hole.start > start) { list_length } else { 0 };
            places.rotate_left(11) ^ (((hole.start - after) << 4) + hole.length) as u64
        });
        let key = (entry.action, entry.context, decoded.length - list_length, start, shape.holes.len(), places);
        let new = self.known.len() as u16;
        let index = *self.by_key.entry(key).or_insert(new);
        if index == new {
            self.known.push(Template::new(bytes, decoded, shape));
        } else if !self.known[usize::from(index)].head.is_start_of(bytes) {
            self.known[usize::from(index)] = Template::new(bytes, decoded, shape);
        }
        let next = Next { template: index, list: shape.list.map_or(NO_LIST, |list| list.id) };
        self.next[slot_of(self.history, HISTORY_BITS)] = next;
        self.next_kind[slot_of(self.kinds, KINDS_BITS)] = index;
        self.remember(next);
    }

    #[inline]
    fn remember(&mut self, next: Next) {
        let kind = u64::from(next.template);
        self.history = (self.history << 4) ^ kind ^ (u64::from(next.list) << 6);
        self.kinds = (self.kinds << 8) ^ kind;
    }
}

/// Where a table of `2^bits` keeps what follows `history`.
#[inline]
fn slot_of(history: u64, bits: u32) -> usize {
    // Fibonacci hashing: the high bits of the product depend on every bit of the history.
    (history.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}

impl Template {
    fn new(bytes: &[u8], decoded: &Decoded, shape: &Shape) -> Self {
        let Some(list) = shape.list else {
            return Self { head: Piece::new(&bytes[..decoded.length], &shape.holes, 0), list: None, decoded: *decoded };
        };
        let (before, after) = shape.holes.split_at(shape.holes.partition_point(|hole| hole.start < list.start));
        let end = list.start + list.length;
        let tail = Piece::new(&bytes[end..decoded.length], after, end);
        Self {
            head: Piece::new(&bytes[..list.start], before, 0),
            list: Some(Gap { memoized: list.memoized, tail }),
            decoded: *decoded,
        }
    }

    /// The entry that `bytes`, which begin with the head, are, and its list, if the rest is like this template, too.
    #[inline]
    fn fit(
        &self,
        bytes: &[u8],
        likely: ListId,
        lists: &mut Lists,
        tables: &mut Tables<'_>,
    ) -> Option<(Decoded, ListId)> {
        let mut decoded = self.decoded;
        self.head.fill(bytes, tables.memo, &mut decoded.entry)?;
        let Some(gap) = &self.list else { return Some((decoded, NO_LIST)) };
        let list = lists.find(bytes.get(self.head.length..)?, likely, tables)?;
        let rest = bytes.get(self.head.length + list.length..)?;
        if !gap.tail.is_start_of(rest) {
            return None;
        }
        gap.tail.fill(rest, tables.memo, &mut decoded.entry)?;
        decoded.length = self.head.length + list.length + gap.tail.length;
        decoded.entry.stack = list.stack;
        if let Some(slot) = gap.memoized {
            decoded.memoized.values()[slot] = Value::Stack(list.stack);
        }
        Some((decoded, list.id))
    }
}

impl Piece {
    /// The piece with these bytes, which begin at `start` of the entry that `holes` are in.
    fn new(bytes: &[u8], holes: &[Hole], start: usize) -> Self {
        let holes: Box<[Hole]> = holes.iter().map(|hole| Hole { start: hole.start - start, ..*hole }).collect();
        let mut counts = vec![0xff; bytes.len()];
        for hole in &holes {
            counts[hole.start..hole.start + hole.length].fill(0);
        }
        let masks: Vec<u64> = counts.chunks(WORD).map(little_endian).collect();
        let words = bytes.chunks(WORD).zip(&masks).map(|(word, mask)| little_endian(word) & mask);
        Self { length: bytes.len(), words: words.chain(masks.iter().copied()).collect(), holes }
    }

    /// Whether `bytes` begin with this piece, whatever stands in the holes.
    #[inline]
    fn is_start_of(&self, bytes: &[u8]) -> bool {
        let (words, masks) = self.words.split_at(self.words.len() / 2);
        // Holes are read as whole words, too, so a word more must be there; near the end of the bytes ahead it is not,
        // and the entry is decoded.
        let Some(bytes) = bytes.get(..(words.len() + 1) * WORD) else { return false };
        // A head is a dozen words: without a way out in the middle the loop compares several at a time.
        let mut differences = 0;
        for ((ahead, word), mask) in bytes.chunks_exact(WORD).zip(words).zip(masks) {
            differences |= (word_of(ahead) & mask) ^ word;
        }
        differences == 0
    }

    /// Puts what stands in the holes of `bytes` into `entry`.
    #[inline]
    fn fill(&self, bytes: &[u8], memo: &[Value], entry: &mut TraceEntry) -> Option<()> {
        for hole in &self.holes {
            let value = word_of(bytes.get(hole.start..hole.start + WORD)?) & (u64::MAX >> (64 - 8 * hole.length));
            match hole.kind {
                HoleKind::Addr => entry.addr = non_negative(value, hole)?,
                HoleKind::Size => entry.size = non_negative(value, hole)?,
                HoleKind::Time => entry.time_us = non_negative(value, hole)? as i64,
                HoleKind::StackSlot => {
                    let &Value::Stack(stack) = memo.get(value as usize)? else { return None };
                    entry.stack = stack;
                }
                HoleKind::NewSlot(offset) => {
                    if value != (memo.len() + offset) as u64 {
                        return None;
                    }
                }
            }
        }
        Some(())
    }
}

/// Eight bytes as a word.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// `value` if it has no sign or that is clear.
#[inline]
fn non_negative(value: u64, hole: &Hole) -> Option<u64> {
    (!hole.signed || value >> (8 * hole.length - 1) == 0).then_some(value)
}
