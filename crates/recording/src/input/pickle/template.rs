//! The hot loop, second half: recognizes an entry by comparing bytes instead of decoding them.
//!
//! Training repeats itself: the entry of one stack is nearly always followed by the same entry as the last time (85% to 90%
//! on real recordings). So entries that differ only in address, size, time and list of frames share a template: their bytes,
//! with holes for the numbers and a gap for the list. The template and list that followed the same entries are stored, and if
//! the bytes ahead equal them, only the holes are read. Where entries are in no particular order, the list is looked up by
//! its hash ([`super::lists`]), and the template is still one of a few dozen.
//!
//! Equal bytes decode to equal values because memo slots never change. If a file does change one, everything learned is
//! forgotten.

use super::fast_entry::{DecodedEntry, Hole, HoleKind, Shape, little_endian};
use super::lists::{ListId, Lists, NO_LIST};
use super::memo::{Memo, Slot};
use super::tables::Tables;
use super::value::Value;
use crate::model::trace_entry::TraceEntry;
use crate::model::{Action, ContextId, StackId};
use foldhash::fast::RandomState;
use std::collections::HashMap;

const WORD: usize = size_of::<u64>();

#[derive(Debug)]
struct Piece {
    length: usize,
    /// The bytes in words, with zeros in the holes and after the end; then as many words with ones for the bytes that are
    /// compared.
    words: Box<[u64]>,
}

/// An entry with holes.
#[derive(Debug)]
struct Template {
    /// The bytes before the items of the list of frames, or all bytes if there is no such list.
    head: Piece,
    list: Option<Gap>,
    /// How to read address, size and time.
    numbers: [Number; 3],
    slots: Box<[SlotHole]>,
    /// The entry. The numbers are overwritten, and so is the stack if there is a list.
    entry: TraceEntry,
    memoize_entry: bool,
    /// Values to append to the memo. The entry and the list are overwritten.
    memoized: Box<[Slot]>,
}

#[derive(Debug)]
struct Gap {
    /// Which of the memoized values the list is.
    memoized: Option<usize>,
    tail: Piece,
}

/// A number in an entry: `fixed`, or the value in a hole.
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    at: Position,
    /// Ones for the bytes of the hole; zero if there is none.
    mask: u64,
    /// The sign bit, if the number has one.
    sign: u64,
    fixed: u64,
}

#[derive(Clone, Copy, Debug)]
struct SlotHole {
    at: Position,
    mask: u64,
    /// For a new slot: how many slots the entry uses before it. Otherwise it is the slot of the list of frames.
    taken: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    offset: usize,
    /// All ones if the position is relative to the end of the list of frames, zero if it is relative to the start of the
    /// entry.
    behind_list: usize,
}

/// An entry that was found in the bytes ahead and added to the rows.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    pub length: usize,
    /// The entry.
    pub row: Value,
    stack: StackId,
    template: u16,
}

/// Identifies templates, almost uniquely. If two have the same key, the later one replaces the other.
type Key = (Action, ContextId, usize, Option<usize>, usize, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    template: u16,
    list: ListId,
}

/// The templates of a file, and which one is expected next.
#[derive(Debug, Default)]
pub struct Templates {
    known: Vec<Template>,
    by_key: HashMap<Key, u16, RandomState>,
    /// The last 16 entries, hashed: each shifts the earlier ones by four bits.
    history: u64,
    /// What came next the last time, by the hash of the history.
    next: Vec<Next>,
    /// The last eight templates, regardless of their lists.
    kinds: u64,
    /// The templates that came next, by the hash of `kinds`: the last one, and the last different one.
    next_kind: Vec<[u16; 2]>,
}

/// Binary logarithm of the number of histories stored.
const HISTORY_BITS: u32 = 14;
/// The same for histories of templates only.
const KINDS_BITS: u32 = 12;

/// Binary logarithm of the length of a stretch of entries: longer than most steps.
const STRETCH_BITS: u32 = 15;
/// One stretch in this many asks the history where lists are in no order.
const ASKS: usize = 4;

/// Number of templates stored; this limits memory.
const TEMPLATES: usize = 1 << 12;
/// The longest entry that becomes a template, in bytes without the list.
const TEMPLATE_BYTES: usize = 1024;

impl Templates {
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds the entry at the start of `bytes` to the rows of `list`, if it equals a template that is likely to come next.
    #[inline]
    pub fn predict(&mut self, bytes: &[u8], list: u32, lists: &mut Lists, tables: &mut Tables<'_>) -> Option<Fit> {
        let slot = slot_of(self.history, HISTORY_BITS);
        let [last, before] = *self.next_kind.get(slot_of(self.kinds, KINDS_BITS))?;
        // If lists are in no order, the entry for the history is seldom in the processor's cache, and predicts less than the
        // kinds. So only some stretches ask it, which shows whether there is an order again.
        let in_order = lists.have_order();
        let asks_history = in_order || (tables.findings.rows.len() >> STRETCH_BITS).is_multiple_of(ASKS);
        let likely = if asks_history { *self.next.get(slot)? } else { Next { template: last, list: NO_LIST } };
        let candidates = if in_order { [likely.template, last, before] } else { [last, before, likely.template] };
        let fits = |index: u16| {
            let template = self.known.get(usize::from(index))?;
            template.head.is_start_of(bytes).then_some((index, template))
        };
        let (index, template) = candidates.into_iter().find_map(fits)?;
        let (mut stack, mut frames, mut length, mut list_end) =
            (template.entry.stack, NO_LIST, template.head.length, 0);
        if let Some(gap) = &template.list {
            let found = lists.find(bytes.get(length..)?, likely.list, tables)?;
            list_end = length + found.length;
            if !gap.tail.is_start_of(bytes.get(list_end..)?) {
                return None;
            }
            length = list_end + gap.tail.length;
            (stack, frames) = (found.stack, found.id);
        }
        for slot in &template.slots {
            let value = slot.at.word(bytes, list_end)? & slot.mask;
            match slot.taken {
                Some(before) if value == (tables.memo.len() + before) as u64 => {}
                Some(_) => return None,
                None => {
                    let Value::Stack(known) = tables.memo.get(value as usize)? else { return None };
                    stack = known;
                }
            }
        }
        let [addr, size, time] = &template.numbers;
        let number = |number: &Number| number.read(bytes, list_end);
        let (addr, size, time) = (number(addr)?, number(size)?, number(time)?);
        let entry = TraceEntry { addr, size, time_us: time as i64, stack, ..template.entry };
        let row = tables.findings.rows.push(list, entry);
        let next = Next { template: index, list: frames };
        if next != likely {
            if asks_history {
                self.next[slot] = next;
            }
            self.expect_kind(index);
        }
        self.remember(next);
        Some(Fit { length, row, stack, template: index })
    }

    #[inline]
    pub fn memoize(&self, fit: &Fit, memo: &mut Memo) {
        let Some(template) = self.known.get(usize::from(fit.template)) else { return };
        let start = memo.len();
        memo.extend(&template.memoized);
        if template.memoize_entry {
            memo.replace(start, fit.row);
        }
        if let Some(Gap { memoized: Some(slot), .. }) = template.list {
            memo.replace(start + slot, Value::Stack(fit.stack));
        }
    }

    /// Stores an entry of this shape, which was just decoded from `bytes`, as a template.
    pub fn learn(&mut self, bytes: &[u8], decoded: &DecodedEntry, shape: &Shape) {
        let list_length = shape.list.map_or(0, |list| list.length);
        let number_of = |kind| shape.holes.iter().filter(|hole| hole.kind == kind).count();
        let is_said_twice =
            [HoleKind::Addr, HoleKind::Size, HoleKind::Time].into_iter().any(|kind| number_of(kind) > 1);
        if decoded.length - list_length > TEMPLATE_BYTES || is_said_twice {
            return;
        }
        if self.known.len() >= TEMPLATES {
            self.forget();
        }
        if self.next.is_empty() {
            self.next = vec![Next::default(); 1 << HISTORY_BITS];
            self.next_kind = vec![[0; 2]; 1 << KINDS_BITS];
        }
        let (entry, start) = (&decoded.entry, shape.list.map(|list| list.start));
        let places = shape.holes.iter().fold(0, |places: u64, hole| {
            let after = if start.is_some_and(|start| hole.start > start) { list_length } else { 0 };
            places.rotate_left(11) ^ (((hole.start - after) << 4) + hole.length) as u64
        });
        let key = (entry.action, entry.context, decoded.length - list_length, start, shape.holes.len(), places);
        let known = self.by_key.get(&key).copied();
        let index = match known {
            Some(index) if self.known[usize::from(index)].head.is_start_of(bytes) => index,
            _ => {
                let Some(template) = Template::new(bytes, decoded, shape) else { return };
                let index = known.unwrap_or(self.known.len() as u16);
                match self.known.get_mut(usize::from(index)) {
                    Some(replaced) => *replaced = template,
                    None => self.known.push(template),
                }
                self.by_key.insert(key, index);
                index
            }
        };
        let next = Next { template: index, list: shape.list.map_or(NO_LIST, |list| list.id) };
        self.next[slot_of(self.history, HISTORY_BITS)] = next;
        self.expect_kind(index);
        self.remember(next);
    }

    #[inline]
    fn expect_kind(&mut self, index: u16) {
        let known = &mut self.next_kind[slot_of(self.kinds, KINDS_BITS)];
        if known[0] != index {
            *known = [index, known[0]];
        }
    }

    #[inline]
    fn remember(&mut self, next: Next) {
        let kind = u64::from(next.template);
        self.history = (self.history << 4) ^ kind ^ (u64::from(next.list) << 6);
        self.kinds = (self.kinds << 8) ^ kind;
    }
}

/// The position in a table of `2^bits` for `history`.
#[inline]
fn slot_of(history: u64, bits: u32) -> usize {
    // Fibonacci hashing: the high bits of the product depend on every bit of the history.
    (history.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}

impl Template {
    fn new(bytes: &[u8], decoded: &DecodedEntry, shape: &Shape) -> Option<Self> {
        let (start, end) = shape.list.map_or((decoded.length, 0), |list| (list.start, list.start + list.length));
        let position = |hole: &Hole| match hole.start.checked_sub(end) {
            Some(offset) if hole.start > start => Position { offset, behind_list: usize::MAX },
            _ => Position { offset: hole.start, behind_list: 0 },
        };
        let mask = |hole: &Hole| u64::MAX >> (64 - 8 * hole.length);
        let number = |kind, fixed| {
            let hole = shape.holes.iter().find(|hole| hole.kind == kind);
            hole.map_or(Number { fixed, ..Number::default() }, |hole| {
                let sign = if hole.signed { 1 << (8 * hole.length - 1) } else { 0 };
                Number { at: position(hole), mask: mask(hole), sign, fixed: 0 }
            })
        };
        let new_or_known = |hole: &Hole| {
            let taken = match hole.kind {
                HoleKind::NewSlot(before) => Some(before),
                HoleKind::StackSlot => None,
                HoleKind::Addr | HoleKind::Size | HoleKind::Time => return None,
            };
            Some(SlotHole { at: position(hole), mask: mask(hole), taken })
        };
        let entry = decoded.entry;
        let mut memoized = decoded.memoized;
        Some(Self {
            head: Piece::new(&bytes[..start], &shape.holes, 0),
            list: shape.list.map(|list| Gap {
                memoized: list.memoized,
                tail: Piece::new(&bytes[end..decoded.length], &shape.holes, end),
            }),
            numbers: [
                number(HoleKind::Addr, entry.addr),
                number(HoleKind::Size, entry.size),
                number(HoleKind::Time, entry.time_us as u64),
            ],
            slots: shape.holes.iter().filter_map(new_or_known).collect(),
            entry,
            memoize_entry: decoded.memoize_entry,
            memoized: memoized.values().iter().map(|&value| Slot::of(value)).collect::<Option<_>>()?,
        })
    }
}

impl Position {
    /// The word at this position, given the bytes of the entry and the end of its list.
    #[inline]
    fn word(self, bytes: &[u8], list_end: usize) -> Option<u64> {
        let start = self.offset + (list_end & self.behind_list);
        bytes.get(start..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

impl Number {
    #[inline]
    fn read(&self, bytes: &[u8], list_end: usize) -> Option<u64> {
        let word = self.at.word(bytes, list_end)?;
        (word & self.sign == 0).then_some(word & self.mask | self.fixed)
    }
}

impl Piece {
    /// The piece with these bytes, which start at `start` in the entry that contains `holes`.
    fn new(bytes: &[u8], holes: &[Hole], start: usize) -> Self {
        let mut counts = vec![0xff; bytes.len()];
        for hole in holes {
            let at = hole.start.checked_sub(start);
            if let Some(hole) = at.and_then(|at| counts.get_mut(at..at + hole.length)) {
                hole.fill(0);
            }
        }
        let masks: Vec<u64> = counts.chunks(WORD).map(little_endian).collect();
        let words = bytes.chunks(WORD).zip(&masks).map(|(word, mask)| little_endian(word) & mask);
        Self { length: bytes.len(), words: words.chain(masks.iter().copied()).collect() }
    }

    /// Whether `bytes` start with this piece, ignoring the holes.
    #[inline]
    fn is_start_of(&self, bytes: &[u8]) -> bool {
        let (words, masks) = self.words.split_at(self.words.len() / 2);
        // Holes are read as whole words, too, so one more word must be there. Near the end of the bytes ahead it is not, and
        // the entry is decoded instead.
        let Some(bytes) = bytes.get(..(words.len() + 1) * WORD) else { return false };
        // A head has about a dozen words; without an early exit, the loop compares several at a time.
        let mut differences = 0;
        for ((ahead, word), mask) in bytes.chunks_exact(WORD).zip(words).zip(masks) {
            differences |= (word_of(ahead) & mask) ^ word;
        }
        differences == 0
    }
}

#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
