//! Reads summaries from a Parquet table: the column with the lines of JSON.
//!
//! memviz reads the tables that `memviz ranks --format parquet` writes, but not those of other programs: text in one page for
//! each group of rows, one after the other, compressed with zstd.

use crate::error::{Error, Result};
use crate::input::unzstd;

/// The column with a line of JSON for each rank.
pub const SUMMARY: &str = "summary";
/// The first and the last bytes of each Parquet file.
pub const MAGIC: &[u8] = b"PAR1";
/// The most bytes of a group's lines.
const MOST: usize = 1 << 30;
/// The deepest nesting of Thrift values in a footer.
const DEEPEST: usize = 16;

/// Physical type, repetition, encoding and compression of the column.
const BYTE_ARRAY: i64 = 6;
const REQUIRED: i64 = 0;
const PLAIN: i64 = 0;
const ZSTD: i64 = 6;

/// A value of Thrift's compact protocol.
#[derive(Clone, Debug, PartialEq)]
enum Thrift<'a> {
    /// A number, or 0 for no and 1 for yes.
    Number(i64),
    Bytes(&'a [u8]),
    List(Vec<Thrift<'a>>),
    Struct(Vec<(i64, Thrift<'a>)>),
    /// A floating-point number, which no field here has.
    Other,
}

/// The lines of JSON in a table, each followed by a line break.
///
/// # Errors
/// [`Error::UnknownJson`] if it is not a table of ranks; other errors if it is damaged.
pub fn lines(file: &[u8]) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::Request(format!("damaged Parquet table: expected {what}"));
    let foreign = || {
        Error::UnknownJson(
            "a Parquet table that memviz ranks --format parquet did not write; if another program rewrote such a table, export \
             its summary column as JSON lines"
                .to_owned(),
        )
    };
    let body = file.strip_suffix(MAGIC).ok_or_else(|| damaged("PAR1 at its end"))?;
    let (body, length) = body.split_last_chunk::<4>().ok_or_else(|| damaged("a footer"))?;
    let start = body.len().checked_sub(u32::from_le_bytes(*length) as usize).ok_or_else(|| damaged("a footer"))?;
    let footer = Reader(&body[start..]).structure(0).ok_or_else(|| damaged("a description"))?;
    let schema = footer.field(2).and_then(Thrift::list).ok_or_else(foreign)?;
    let leaves = schema.get(1..).unwrap_or_default();
    let place = leaves.iter().position(|leaf| leaf.field(4) == Some(&Thrift::Bytes(SUMMARY.as_bytes())));
    let place = place.ok_or_else(foreign)?;
    let number = |value: &Thrift<'_>, field| value.field(field).and_then(Thrift::number);
    let is_ours = |leaf: &Thrift<'_>| number(leaf, 1) == Some(BYTE_ARRAY) && number(leaf, 3) == Some(REQUIRED);
    let is_flat = leaves.iter().all(|leaf| number(leaf, 5).unwrap_or(0) == 0);
    if !is_flat || !is_ours(&leaves[place]) {
        return Err(foreign());
    }
    let mut lines = Vec::new();
    for group in footer.field(4).and_then(Thrift::list).unwrap_or_default() {
        let chunk = group.field(1).and_then(Thrift::list).and_then(|columns| columns.get(place));
        let about = chunk.and_then(|chunk| chunk.field(3)).ok_or_else(|| damaged("a column for each row group"))?;
        if number(about, 4) != Some(ZSTD) || about.field(11).is_some() {
            return Err(foreign());
        }
        let size = |field| number(about, field).and_then(|number| usize::try_from(number).ok());
        let (rows, at) = size(5).zip(size(9)).ok_or_else(|| damaged("a page of each column"))?;
        let mut reader = Reader(body.get(at..start).ok_or_else(|| damaged("a page inside the file"))?);
        let head = reader.structure(0).ok_or_else(|| damaged("a page header"))?;
        let is_plain = head.field(5).and_then(|data| number(data, 2)) == Some(PLAIN);
        let compressed = number(&head, 3).and_then(|length| reader.take(usize::try_from(length).ok()?));
        let compressed = compressed.ok_or_else(|| damaged("a page inside the file"))?;
        let length = number(&head, 2).and_then(|length| usize::try_from(length).ok()).filter(|&length| length <= MOST);
        let length = length.ok_or_else(|| damaged("a page of at most 1 GiB"))?;
        if !is_plain {
            return Err(foreign());
        }
        let page = unzstd(compressed.to_vec(), length)?;
        let mut texts = Reader(&page);
        for _ in 0..rows {
            lines.extend_from_slice(texts.text().ok_or_else(|| damaged("a string for each row"))?);
            lines.push(b'\n');
        }
    }
    Ok(lines)
}

impl Thrift<'_> {
    fn field(&self, wanted: i64) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(number, _)| *number == wanted).map(|(_, value)| value)
    }

    fn number(&self) -> Option<i64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    fn list(&self) -> Option<&[Self]> {
        if let Self::List(values) = self { Some(values) } else { None }
    }
}

/// Bytes that are read from the start. Each function returns `None` at their end, or if they do not follow the protocol.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// A text of a page: four bytes of length, followed by the text.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.take(4)?.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))?;
        self.take(length as usize)
    }

    fn structure(&mut self, depth: usize) -> Option<Thrift<'a>> {
        let (mut fields, mut last) = (Vec::new(), 0_i64);
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(Thrift::Struct(fields));
            }
            last = match head >> 4 {
                0 => self.zigzag()?,
                step => last.checked_add(i64::from(step))?,
            };
            let value = match head & 0xf {
                kind @ (1 | 2) => Thrift::Number(i64::from(kind == 1)),
                kind => self.value(kind, depth)?,
            };
            fields.push((last, value));
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<Thrift<'a>> {
        match kind {
            1..=3 => Some(Thrift::Number(i64::from(self.byte()?))),
            4..=6 => Some(Thrift::Number(self.zigzag()?)),
            7 => self.take(8).map(|_| Thrift::Other),
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Some(Thrift::Bytes(self.take(length)?))
            }
            9 | 10 if depth < DEEPEST => {
                let head = self.byte()?;
                let length = match head >> 4 {
                    15 => usize::try_from(self.varint()?).ok()?,
                    length => usize::from(length),
                };
                // Each value takes at least one byte.
                if length > self.0.len() {
                    return None;
                }
                (0..length).map(|_| self.value(head & 0xf, depth + 1)).collect::<Option<_>>().map(Thrift::List)
            }
            12 if depth < DEEPEST => self.structure(depth + 1),
            _ => None,
        }
    }
}
