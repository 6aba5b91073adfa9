//! The tables that entries refer to, and memo references.

use super::findings::Findings;
use super::memo::Memo;
use super::opcode as op;
use super::value::Heap;

pub struct Tables<'m> {
    pub memo: &'m Memo,
    pub heap: &'m mut Heap,
    pub findings: &'m mut Findings,
}

/// A memo reference: its slot and its length in bytes.
#[inline]
pub fn reference(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [op::BINGET, slot, ..] => Some((usize::from(slot), 2)),
        [op::LONG_BINGET, a, b, c, d, ..] => Some((u32::from_le_bytes([a, b, c, d]) as usize, 5)),
        _ => None,
    }
}
