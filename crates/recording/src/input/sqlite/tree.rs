//! Tables as trees of pages: interior pages refer to pages, leaves contain rows.

use super::pages::{HEADER, Pages, Seen, u16_at, u32_at};
use super::record::varint;
use crate::error::{Error, Result};
use std::io::{Read, Seek};

const INTERIOR: u8 = 0x05;
const LEAF: u8 = 0x0d;
/// The most bytes of a row. Rows of Nsight Systems have a few hundred bytes; texts of users may be longer.
const LONGEST_ROW: u64 = 64 << 20;

/// Calls `each` with the ID and the payload of each row below the page `root`, in the order of the tree.
pub(super) fn scan<R: Read + Seek>(
    pages: &mut Pages<R>,
    root: u32,
    mut each: impl FnMut(i64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut seen = pages.none_seen();
    seen.take(root, 0)?;
    let mut waiting = vec![root];
    let (mut page, mut row) = (Vec::new(), Vec::new());
    while let Some(number) = waiting.pop() {
        pages.read(number, &mut page)?;
        let head = if number == 1 { HEADER } else { 0 };
        let at = pages.start(number);
        let kind = page.get(head).copied().unwrap_or_default();
        let cells = usize::from(u16_at(&page, head + 3));
        let first_cell = head + if kind == INTERIOR { 12 } else { 8 };
        if first_cell + 2 * cells > page.len() {
            return Err(Error::malformed(at, format!("expected at most as many rows as fit in a page, found {cells}")));
        }
        let pointers = (0..cells).map(|cell| usize::from(u16_at(&page, first_cell + 2 * cell)));
        match kind {
            INTERIOR => {
                let children = pointers.map(|pointer| u32_at(&page, pointer));
                let from = waiting.len();
                for child in children.chain([u32_at(&page, head + 8)]) {
                    seen.take(child, number)?;
                    waiting.push(child);
                }
                waiting[from..].reverse();
            }
            LEAF => {
                for pointer in pointers {
                    let cell = page.get(pointer..).unwrap_or_default();
                    let id = payload(pages, &mut seen, number, cell, &mut row)
                        .map_err(|error| located(error, at + pointer as u64))?;
                    each(id, &row).map_err(|error| located(error, at + pointer as u64))?;
                }
            }
            other => {
                return Err(Error::malformed(at, format!("expected a page of a table, found one of kind {other}")));
            }
        }
    }
    Ok(())
}

/// Adds the position of a row to an error about its contents.
fn located(error: Error, at: u64) -> Error {
    match error {
        Error::Malformed { at: 0, message } => Error::Malformed { at, message },
        error => error,
    }
}

/// Collects the payload of a row from its cell and the pages that it continues on. Returns the row's ID.
fn payload<R: Read + Seek>(
    pages: &mut Pages<R>,
    seen: &mut Seen,
    number: u32,
    cell: &[u8],
    row: &mut Vec<u8>,
) -> Result<i64> {
    let cut = || Error::malformed(0, "the row extends past the end of its page");
    let (length, rest) = varint(cell).ok_or_else(cut)?;
    let (id, rest) = varint(rest).ok_or_else(cut)?;
    let length = u64::try_from(length).ok().filter(|&length| length <= pages.bytes().min(LONGEST_ROW));
    let length = length.ok_or_else(|| Error::malformed(0, "expected a row that fits in the file"))? as usize;
    let local = local(length, pages.usable);
    row.clear();
    row.extend_from_slice(rest.get(..local).ok_or_else(cut)?);
    let (mut from, mut next) = (number, u32_at(rest, local));
    let mut page = Vec::new();
    while row.len() < length {
        seen.take(next, from)?;
        pages.read(next, &mut page)?;
        let wanted = (length - row.len()).min(page.len() - 4);
        row.extend_from_slice(&page[4..4 + wanted]);
        (from, next) = (next, u32_at(&page, 0));
    }
    Ok(id)
}

/// How many bytes of a payload are in the cell: all of them if they fit; otherwise as many as fill the other pages
/// completely.
fn local(length: usize, usable: usize) -> usize {
    let most = usable - 35;
    if length <= most {
        return length;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let filling = least + (length - least) % (usable - 4);
    if filling <= most { filling } else { least }
}
