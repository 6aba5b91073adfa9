//! Interned strings.

use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// ID of a string in [`Strings`]. ID 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(#[doc(hidden)] pub u32);

impl StrId {
    /// The empty string.
    pub const EMPTY: Self = Self(0);

    /// Position in the table, usable as an index into a side table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Every distinct string of a recording, stored once.
///
/// The owner of the table may reserve the first IDs for names that it wants to recognize by ID (see [`Strings::with_known`]).
#[derive(Clone, Debug)]
pub struct Strings {
    set: IndexSet<Box<str>, RandomState>,
    bytes: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self::with_known(&[])
    }
}

impl Strings {
    /// A table that starts with the empty string (ID 0), followed by `known` (IDs 1, 2, ... in order).
    pub fn with_known(known: &[&str]) -> Self {
        let mut strings = Self { set: IndexSet::default(), bytes: 0 };
        strings.intern("");
        for name in known {
            strings.intern(name);
        }
        strings
    }

    pub fn intern(&mut self, text: &str) -> StrId {
        if let Some(index) = self.set.get_index_of(text) {
            return StrId(index as u32);
        }
        self.bytes += text.len();
        StrId(self.set.insert_full(text.into()).0 as u32)
    }

    /// The text with this ID; the empty string if the ID is out of range.
    pub fn get(&self, id: StrId) -> &str {
        self.set.get_index(id.index()).map_or("", |text| text)
    }

    pub fn contains(&self, text: &str) -> bool {
        self.set.contains(text)
    }

    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Always false: the empty string is always there.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Total bytes of text; each distinct string counts once.
    pub fn text_bytes(&self) -> usize {
        self.bytes
    }
}
