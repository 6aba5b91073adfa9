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
use std::hash::BuildHasher;
use std::ops::Range;

/// Number of a known list; [`NO_LIST`] means none.
pub type ListId = u16;
/// Not a known list.
pub const NO_LIST: ListId = ListId::MAX;

/// The list found in the bytes ahead.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub id: ListId,
    /// Bytes of its items, including the instructions around them.
    pub length: usize,
    pub stack: StackId,
}

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

/// A place for a list in a table by hash. It is small, so that the table stays in the processor's cache while the file streams
/// through it, and has all that a list needs, so that nothing but its bytes is looked up elsewhere.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Some other bits of the hash.
    tag: u16,
    /// [`NO_LIST`] if the place is free.
    id: ListId,
    /// Position of the list in [`Lists::bytes`].
    start: u32,
    stack: StackId,
}

/// A free place.
const FREE: Place = Place { tag: 0, id: NO_LIST, start: 0, stack: StackId::EMPTY };
/// The most places where a list may be: many more than a table that is half full needs. If all are taken by others, the list
/// is decoded each time.
const PLACES: usize = 128;
/// Places of a new table.
const FIRST_PLACES: usize = 1 << 10;

#[derive(Debug, Default)]
pub struct Lists {
    bytes: Vec<u8>,
    known: Vec<Known>,
    /// Where lists are found by their hash; the length is a power of two.
    places: Vec<Place>,
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
const LISTS: usize = NO_LIST as usize;
/// From this value on, lists are assumed to be in no particular order, and are looked up without comparing the expected one.
const NO_ORDER: u8 = 64;

impl Lists {
    /// Forgets every list. Must be called when a memo slot changes its value, which no real writer does.
    pub fn forget(&mut self) {
        self.bytes.clear();
        self.known.clear();
        self.places.clear();
    }

    /// The list whose items `ahead` starts with; most likely it is list `likely`. `None` if the items are not references to
    /// frames, or incomplete.
    #[inline]
    pub fn find(&mut self, ahead: &[u8], likely: ListId, tables: &mut Tables<'_>) -> Option<Found> {
        if self.have_order()
            && let Some(known) = self.known.get(usize::from(likely))
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
        if self.places.len() <= 2 * self.known.len() {
            self.enlarge();
        }
        let mut free = None;
        for (index, tag) in places(hash, self.places.len()) {
            let place = self.places[index];
            if place.id == NO_LIST {
                free = Some((index, tag));
                break;
            }
            let start = place.start as usize;
            // No list is the beginning of another one, since an instruction ends it.
            if place.tag == tag && self.bytes.get(start..start + length) == Some(items) {
                return Some(Found { id: place.id, length, stack: place.stack });
            }
        }
        let stack = self.decode(items, tables)?;
        let mut id = NO_LIST;
        let is_room = self.known.len() < LISTS && self.bytes.len() + length <= ALL_BYTES;
        if let Some((index, tag)) = free
            && length <= LIST_BYTES
            && is_room
        {
            id = self.known.len() as ListId;
            let start = self.bytes.len() as u32;
            self.places[index] = Place { tag, id, start, stack };
            self.known.push(Known { start, length: length as u32, stack });
            self.bytes.extend_from_slice(items);
        }
        Some(Found { id, length, stack })
    }

    fn enlarge(&mut self) {
        let length = (2 * self.places.len()).max(FIRST_PLACES);
        self.places = vec![FREE; length];
        for (id, known) in self.known.iter().enumerate() {
            let hash = self.hasher.hash_one(&self.bytes[known.range()]);
            let free = places(hash, length).find(|&(index, _)| self.places[index].id == NO_LIST);
            if let Some((index, tag)) = free {
                self.places[index] = Place { tag, id: id as ListId, start: known.start, stack: known.stack };
            }
        }
    }

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

/// The indexes where a list with this hash may be in a table of `length` places, a power of two, and its tag there.
fn places(hash: u64, length: usize) -> impl Iterator<Item = (usize, u16)> {
    (0..PLACES).map(move |step| ((hash as usize + step) & (length - 1), (hash >> 48) as u16))
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
    use super::super::findings::Findings;
    use super::super::memo::Memo;
    use super::super::value::Heap;
    use super::*;
    use std::collections::HashSet;

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

    #[test]
    fn thousands_of_lists_are_known_the_second_time() {
        let (mut memo, mut heap, mut findings) = (Memo::default(), Heap::default(), Findings::default());
        (0..8000).for_each(|frame| memo.push(Value::Frame(FrameId(frame))));
        let mut tables = Tables { memo: &memo, heap: &mut heap, findings: &mut findings };
        let lists = (0..7990u32).map(|first| {
            let items: Vec<u8> =
                (first..first + 10).flat_map(|slot| [&[op::LONG_BINGET][..], &slot.to_le_bytes()].concat()).collect();
            [&[op::MARK], &items[..], &[op::APPENDS]].concat()
        });
        let lists: Vec<Vec<u8>> = lists.collect();
        let mut known = Lists::default();
        let mut find = |list: &Vec<u8>| known.find(list, NO_LIST, &mut tables).map(|found| (found.id, found.stack));
        let first: Vec<_> = lists.iter().map(&mut find).collect();
        let again: Vec<_> = lists.iter().map(&mut find).collect();
        assert_eq!(again, first);
        let unknown = first.iter().filter(|found| found.is_none_or(|(id, _)| id == NO_LIST)).count();
        assert_eq!(unknown, 0);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), lists.len());
    }
}
