//! Tables as [Parquet](https://parquet.apache.org/docs/file-format/), for databases.
//!
//! A column of each part is one page: numbers as differences from the previous number, or as indexes into a dictionary; texts
//! as indexes into a dictionary, or one after the other if they rarely repeat; each compressed with zstd. Types are named in
//! the old way (`converted_type`), which every reader supports.

mod encode;
mod thrift;

use crate::analysis::export::{Table, TableColumn, Values};
use encode::Encoded;
use std::io::{self, Write};
use thrift::Struct;

/// The first and the last bytes of each file.
const MAGIC: &[u8] = b"PAR1";
/// Rows of a row group: as many as readers prefer to read at a time.
const GROUP_ROWS: usize = 1 << 20;

/// Physical types.
const BOOLEAN: i64 = 0;
const INT64: i64 = 2;
const BYTE_ARRAY: i64 = 6;
/// Converted types.
const UTF8: i64 = 0;
const UINT_64: i64 = 14;
const INT_64: i64 = 18;
const REQUIRED: i64 = 0;
const OPTIONAL: i64 = 1;
/// Kinds of pages.
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const CODEC: i64 = if cfg!(target_family = "wasm") { 0 } else { 6 };
#[cfg(not(target_family = "wasm"))]
const ZSTD_LEVEL: i32 = 3;

/// Writes parts of a table, all with the same columns, as one file.
pub struct Writer<W> {
    out: W,
    position: u64,
    rows: usize,
    schema: Vec<Struct>,
    groups: Vec<Struct>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, position: 0, rows: 0, schema: Vec::new(), groups: Vec::new() };
        writer.put(MAGIC)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    pub fn part(&mut self, table: &Table) -> io::Result<()> {
        if self.schema.is_empty() {
            self.schema = schema(&table.columns);
        }
        let mut from = 0;
        while from < table.rows {
            let to = table.rows.min(from + GROUP_ROWS);
            self.group(table, from, to)?;
            from = to;
        }
        self.rows += table.rows;
        Ok(())
    }

    fn group(&mut self, table: &Table, from: usize, to: usize) -> io::Result<()> {
        let (mut columns, mut bytes) = (Vec::new(), 0);
        for column in &table.columns {
            let (described, size) = self.column(column, from, to)?;
            columns.push(described);
            bytes += size;
        }
        let mut group = Struct::default();
        group.structs(1, columns).number(2, bytes as i64).number(3, (to - from) as i64);
        self.groups.push(group);
        Ok(())
    }

    /// Writes the values of a column. Returns its description, and its bytes before compression.
    fn column(&mut self, column: &TableColumn, from: usize, to: usize) -> io::Result<(Struct, u64)> {
        let start = self.position;
        let encoded = Encoded::of(column, from, to);
        let mut sizes = (0, 0);
        let mut dictionary = None;
        if let Some((count, bytes)) = &encoded.dictionary {
            dictionary = Some(self.position);
            let mut head = Struct::default();
            head.number32(1, *count as i64).number32(2, encode::PLAIN);
            self.page(DICTIONARY_PAGE, (7, head), bytes, &mut sizes)?;
        }
        let data = self.position;
        let mut head = Struct::default();
        let rle = encode::RLE;
        head.number32(1, (to - from) as i64).number32(2, encoded.encoding).number32(3, rle).number32(4, rle);
        self.page(DATA_PAGE, (5, head), &encoded.page, &mut sizes)?;
        let (kind, _) = types(&column.values);
        let mut about = Struct::default();
        about
            .number32(1, kind)
            .numbers(2, &[encoded.encoding, encode::PLAIN, rle])
            .texts(3, &[column.name])
            .number32(4, CODEC)
            .number(5, (to - from) as i64)
            .number(6, sizes.0 as i64)
            .number(7, sizes.1 as i64)
            .number(9, data as i64);
        if let Some(dictionary) = dictionary {
            about.number(11, dictionary as i64);
        }
        let mut chunk = Struct::default();
        chunk.number(2, start as i64).inner(3, about);
        Ok((chunk, sizes.0))
    }

    /// Writes a page, and adds its bytes before and after compression to `sizes`.
    fn page(&mut self, kind: i64, (field, head): (u8, Struct), bytes: &[u8], sizes: &mut (u64, u64)) -> io::Result<()> {
        let compressed = compress(bytes)?;
        let size = |bytes: &[u8]| {
            i32::try_from(bytes.len())
                .map_err(|_| io::Error::other("expected a column of less than 2 GiB in a row group"))
        };
        let mut page = Struct::default();
        page.number32(1, kind)
            .number32(2, size(bytes)?.into())
            .number32(3, size(&compressed)?.into())
            .inner(field, head);
        let head = page.finish();
        self.put(&head)?;
        self.put(&compressed)?;
        sizes.0 += (head.len() + bytes.len()) as u64;
        sizes.1 += (head.len() + compressed.len()) as u64;
        Ok(())
    }

    pub fn end(mut self) -> io::Result<()> {
        let mut footer = Struct::default();
        let (schema, groups) = (std::mem::take(&mut self.schema), std::mem::take(&mut self.groups));
        footer.number32(1, 1).structs(2, schema).number(3, self.rows as i64).structs(4, groups);
        footer.text(6, &format!("memviz version {}", env!("CARGO_PKG_VERSION")));
        let footer = footer.finish();
        self.put(&footer)?;
        self.put(&(footer.len() as u32).to_le_bytes())?;
        self.put(MAGIC)
    }
}

#[cfg(not(target_family = "wasm"))]
fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(bytes, ZSTD_LEVEL)
}

/// A page has no compressor.
#[cfg(target_family = "wasm")]
fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    Ok(bytes.to_vec())
}

/// Physical and converted type of a column.
fn types(values: &Values) -> (i64, Option<i64>) {
    match values {
        Values::Rising(_) | Values::Whole(_) => (INT64, Some(INT_64)),
        Values::Unsigned(_) => (INT64, Some(UINT_64)),
        Values::Flags(_) => (BOOLEAN, None),
        Values::Text(..) | Values::Lines(_) => (BYTE_ARRAY, Some(UTF8)),
    }
}

fn schema(columns: &[TableColumn]) -> Vec<Struct> {
    let mut root = Struct::default();
    root.text(4, "memviz").number32(5, columns.len() as i64);
    let column = |column: &TableColumn| {
        let (kind, converted) = types(&column.values);
        let repetition = if column.present.is_some() { OPTIONAL } else { REQUIRED };
        let mut element = Struct::default();
        element.number32(1, kind).number32(3, repetition).text(4, column.name);
        if let Some(converted) = converted {
            element.number32(6, converted);
        }
        element
    };
    std::iter::once(root).chain(columns.iter().map(column)).collect()
}
