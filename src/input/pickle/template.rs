//! The hot loop, second half: an entry recognised by comparing bytes instead of decoding them.
//!
//! Training repeats itself: what follows the entry of one stack is nearly always what followed it the last time (85 to
//! 90 % on real recordings). So each distinct entry is kept as a template, its bytes with holes where address, size
//! and time stand, together with the template that came next. When the bytes ahead equal the predicted template, only
//! the holes are read. Two thirds of a file's bytes are `frames` lists, and here they cost a
//! comparison of words.
//!
//! Equal bytes decode equally because memo slots never change; should a file ever change one, everything learned is
//! forgotten.

use super::fast_entry::{Decoded, EntryDecoder, Hole, HoleKind, little_endian};
use super::value::Value;
use crate::model::{Action, ContextId, StackId};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// An entry with holes.
#[derive(Debug)]
struct Template {
    /// The entry's bytes in words, zero in the holes and behind the end.
    words: Box<[u64]>,
    /// Ones where [`Template::words`] counts.
    masks: Box<[u64]>,
    holes: Box<[Hole]>,
    /// The decoded entry; what stands in the holes is overwritten.
    decoded: Decoded,
}

/// Bytes in a word.
const WORD: usize = size_of::<u64>();

/// What distinguishes templates. Two entries may share a key and still differ in bytes (keys in another order, say);
/// the first one then keeps the place and the other is decoded each time.
type Key = (Action, StackId, ContextId, usize, usize);

/// The templates of a file and which of them comes next.
#[derive(Debug, Default)]
pub struct Templates {
    known: Vec<Template>,
    by_key: HashMap<Key, u16, RandomState>,
    /// The last 16 templates, folded: each shifts the ones before by four bits.
    history: u64,
    /// What came next the last time, by the hash of the history.
    next: Vec<u16>,
}

/// Binary logarithm of the number of histories kept.
const HISTORY_BITS: u32 = 14;

/// Number of templates kept: bounds memory.
const TEMPLATES: usize = 1 << 14;
/// Longest entry kept, in bytes.
const TEMPLATE_BYTES: usize = 4096;

impl Templates {
    /// Forgets everything.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The entry at the start of `bytes`, if it is the predicted one.
    #[inline]
    pub fn predict(&mut self, bytes: &[u8], memo: &[Value]) -> Option<Decoded> {
        let next = *self.next.get(self.slot())?;
        let decoded = self.known.get(usize::from(next))?.fit(bytes, memo)?;
        self.remember(next);
        Some(decoded)
    }

    /// Remembers an entry that `decoder` has just decoded from `bytes`.
    pub fn learn(&mut self, bytes: &[u8], decoded: &Decoded, decoder: &EntryDecoder) {
        let entry = &decoded.entry;
        let key = (entry.action, entry.stack, entry.context, decoded.length, decoder.holes.len());
        let index = match self.by_key.get(&key) {
            Some(&index) => index,
            None if self.known.len() >= TEMPLATES || decoded.length > TEMPLATE_BYTES => return,
            None => {
                let index = self.known.len() as u16;
                self.known.push(Template::new(&bytes[..decoded.length], &decoder.holes, *decoded));
                self.by_key.insert(key, index);
                index
            }
        };
        self.next.resize(1 << HISTORY_BITS, 0);
        let slot = self.slot();
        self.next[slot] = index;
        self.remember(index);
    }

    /// Where [`Templates::next`] keeps what follows the current history.
    #[inline]
    fn slot(&self) -> usize {
        // Fibonacci hashing: the high bits of the product depend on every bit of the history.
        (self.history.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HISTORY_BITS)) as usize
    }

    #[inline]
    fn remember(&mut self, index: u16) {
        self.history = (self.history << 4) ^ u64::from(index);
    }
}

impl Template {
    fn new(bytes: &[u8], holes: &[Hole], decoded: Decoded) -> Self {
        let mut counts = vec![0xff; bytes.len()];
        for hole in holes {
            counts[hole.start..hole.start + hole.length].fill(0);
        }
        let in_words = |bytes: &[u8]| -> Box<[u64]> { bytes.chunks(WORD).map(little_endian).collect() };
        let masks = in_words(&counts);
        let words = in_words(bytes).iter().zip(&masks).map(|(word, mask)| word & mask).collect();
        Self { words, masks, holes: holes.into(), decoded }
    }

    /// The entry at the start of `bytes` if it equals this template outside of the holes.
    #[inline]
    fn fit(&self, bytes: &[u8], memo: &[Value]) -> Option<Decoded> {
        // Holes are read as whole words, too, so a word more must be there; near the end of the bytes ahead it is not,
        // and the entry is decoded.
        let bytes = bytes.get(..(self.words.len() + 1) * WORD)?;
        // Without a way out in the middle the loop compares several words at a time.
        let mut differences = 0;
        for ((ahead, word), mask) in bytes.chunks_exact(WORD).zip(&self.words).zip(&self.masks) {
            differences |= (word_of(ahead) & mask) ^ word;
        }
        if differences != 0 {
            return None;
        }
        let mut entry = self.decoded.entry;
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
        Some(Decoded { entry, ..self.decoded })
    }
}

/// Eight bytes as a word.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// `value` if its sign bit is clear. Operands of one and two bytes have none, but for LONG1, and values of those few
/// are decoded the long way.
fn non_negative(value: u64, hole: &Hole) -> Option<u64> {
    (value >> (8 * hole.length - 1) == 0).then_some(value)
}
