//! Lists of frames, recognized by their bytes.
//!
//! Two thirds of a large file are `frames` lists: each entry has its own list, which consists of memo references to frames
//! that were written before. A recording has a few hundred to a few thousand different lists, so each is decoded once and
//! then recognized by its bytes: first by comparison with the expected list, which costs little more than reading the bytes,
//! then by its hash.
//!
//! Equal bytes mean equal stacks because memo slots never change. If a file does change one, all known lists are forgotten
//! ([`Lists::forget`]).

use super::opcode as op;
use super::tables::{Tables, reference};
use super::value::Value;
use crate::model::{FrameId, StackId};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;

/// Number of a known list; [`NO_LIST`] means none.
pub type ListId = u32;
/// Not a known list.
pub const NO_LIST: ListId = u32::MAX;

/// The list found in the bytes ahead.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its number, if it was stored.
    pub id: ListId,
    /// Bytes of its items, including the instructions around them.
    pub length: usize,
    pub stack: StackId,
}

/// A list that was seen before.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its position in [`Lists::bytes`]; [`ALL_BYTES`] and [`LIST_BYTES`] ensure that it fits 32 bits.
    start: u32,
    length: u32,
    stack: StackId,
}

impl Known {
    fn range(self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

/// The lists of a file.
#[derive(Debug, Default)]
pub struct Lists {
    /// The bytes of all known lists, one after the other.
    bytes: Vec<u8>,
    known: Vec<Known>,
    /// The list for each hash, and what is known about it, which saves another lookup. If two lists have the same hash, the
    /// later one is decoded each time.
    by_hash: HashMap<u64, (ListId, Known), RandomState>,
    hasher: RandomState,
    /// Frames of the list being decoded; kept to reuse the memory.
    frames: Vec<FrameId>,
    /// Where the last list that did not consist of references stopped being one.
    pub stopped: usize,
    /// Increases when another list than the expected one comes, and decreases when the expected one comes.
    surprise: u8,
}

/// The longest list, in bytes, that is stored. Longer ones are decoded each time.
const LIST_BYTES: usize = 1 << 13;
/// The most bytes of all stored lists, and the most lists. Both limit memory.
const ALL_BYTES: usize = 1 << 24;
const LISTS: usize = 1 << 16;
/// From this value on, lists are assumed to be in no particular order, and are looked up without comparing the expected one.
const NO_ORDER: u8 = 64;

impl Lists {
    /// Forgets every list. Must be called when a memo slot changes its value, which no real writer does.
    pub fn forget(&mut self) {
        self.bytes.clear();
        self.known.clear();
        self.by_hash.clear();
    }

    /// The list whose items `ahead` starts with; most likely it is list `likely`. `None` if the items are not references to
    /// frames, or incomplete.
    #[inline]
    pub fn find(&mut self, ahead: &[u8], likely: ListId, tables: &mut Tables<'_>) -> Option<Found> {
        if self.have_order()
            && let Some(known) = self.known.get(likely as usize)
            && ahead.get(..known.length as usize) == Some(&self.bytes[known.range()])
        {
            self.surprise = self.surprise.saturating_sub(1);
            return Some(Found { id: likely, length: known.length as usize, stack: known.stack });
        }
        let found = self.look_up(ahead, tables)?;
        let is_expected = found.id == likely;
        self.surprise = if is_expected { self.surprise.saturating_sub(1) } else { self.surprise.saturating_add(1) };
        Some(found)
    }

    /// Whether the expected list usually comes.
    #[inline]
    pub fn have_order(&self) -> bool {
        self.surprise < NO_ORDER
    }

    fn look_up(&mut self, ahead: &[u8], tables: &mut Tables<'_>) -> Option<Found> {
        let length = match items_length(ahead) {
            Ok(length) => length,
            Err(stopped) => {
                self.stopped = stopped;
                return None;
            }
        };
        let items = &ahead[..length];
        let hash = self.hasher.hash_one(items);
        let same_hash = self.by_hash.get(&hash).copied();
        if let Some((id, known)) = same_hash
            && items == &self.bytes[known.range()]
        {
            return Some(Found { id, length, stack: known.stack });
        }
        let stack = self.decode(items, tables)?;
        let mut id = NO_LIST;
        let is_room = self.known.len() < LISTS && self.bytes.len() + length <= ALL_BYTES;
        if same_hash.is_none() && length <= LIST_BYTES && is_room {
            id = self.known.len() as ListId;
            let known = Known { start: self.bytes.len() as u32, length: length as u32, stack };
            self.known.push(known);
            self.bytes.extend_from_slice(items);
            self.by_hash.insert(hash, (id, known));
        }
        Some(Found { id, length, stack })
    }

    /// The stack of `items`, if each of them is a frame.
    fn decode(&mut self, items: &[u8], tables: &mut Tables<'_>) -> Option<StackId> {
        self.frames.clear();
        let mut at = usize::from(items.first() == Some(&op::MARK));
        while let Some((slot, length)) = items.get(at..).and_then(reference) {
            let Value::Frame(frame) = tables.heap.resolve(tables.memo.get(slot)?) else { return None };
            self.frames.push(frame);
            at += length;
        }
        Some(tables.findings.stacks.intern_stack(&self.frames))
    }
}

/// Whether `ahead` starts with the items of a list, rather than with what follows an empty one.
pub fn has_items(ahead: &[u8]) -> bool {
    let one_item = || reference(ahead).is_some_and(|(_, length)| ahead.get(length) == Some(&op::APPEND));
    ahead.first() == Some(&op::MARK) || one_item()
}

/// Number of references tested at once.
const RUN: usize = 8;
/// Bytes of a reference in the long form.
const LONG: usize = 5;

/// Length of `MARK ref* APPENDS` or `ref APPEND` in bytes, or the position where `bytes` stop matching it.
fn items_length(bytes: &[u8]) -> Result<usize, usize> {
    if bytes.first() != Some(&op::MARK) {
        let (_, length) = reference(bytes).ok_or(0usize)?;
        return if bytes.get(length) == Some(&op::APPEND) { Ok(length + 1) } else { Err(length) };
    }
    let mut at = 1;
    loop {
        // In a large file nearly all are in the long form, and testing several at once reduces branch mispredictions.
        while let Some(run) = bytes.get(at..at + RUN * LONG) {
            let others = (0..RUN).fold(0, |others, index| others | (run[index * LONG] ^ op::LONG_BINGET));
            if others != 0 {
                break;
            }
            at += RUN * LONG;
        }
        // At a change of form, or at the end: both come in runs, and testing several at once would fail at each step.
        while bytes.get(at) == Some(&op::LONG_BINGET) {
            at += LONG;
        }
        while bytes.get(at) == Some(&op::BINGET) {
            at += 2;
        }
        match bytes.get(at) {
            Some(&op::LONG_BINGET) => {}
            Some(&op::APPENDS) => return Ok(at + 1),
            _ => return Err(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_end_where_the_list_does() {
        let long = [op::LONG_BINGET, 1, 2, 3, 4];
        let short = [op::BINGET, op::APPENDS];
        let many = |items: &[u8]| [&[op::MARK], items, &[op::APPENDS]].concat();
        let mixed = [&long.repeat(9)[..], &short, &long].concat();
        for list in [many(&[]), many(&long.repeat(3)), many(&long.repeat(8)), many(&mixed)] {
            assert_eq!(items_length(&[&list, &b"j1234"[..]].concat()), Ok(list.len()));
            for cut in 0..list.len() {
                assert!(items_length(&list[..cut]).is_err(), "{cut} of {list:?}");
            }
        }
        assert_eq!(items_length(&[op::BINGET, 7, op::APPEND, 0]), Ok(3));
        assert_eq!(items_length(&[op::BINGET, 7, op::APPENDS]), Err(2), "one item, but as if there were more");
        assert_eq!(items_length(&many(&[&long[..], &[op::FRAME; 9], &long].concat())), Err(6));
        assert!(has_items(&[op::LONG_BINGET, 1, 2, 3, 4, op::APPEND]) && has_items(&[op::MARK]));
        assert!(!has_items(&[op::BINGET, 1, op::BINGET, 2]), "the next key and its value");
    }
}
