//! Reads tables of an `SQLite` database, without `SQLite`.
//!
//! In: a file in [version 3 of the format](https://www.sqlite.org/fileformat2.html). Out: the rows of its tables, in the
//! order of their IDs. memviz reads what Nsight Systems exports: ordinary tables with text in UTF-8. Nothing is written, no
//! SQL is executed, each page is read at most once for a table, and a file that contradicts itself is an error.

mod pages;
mod record;
mod schema;
mod tree;

pub use record::Value;

use crate::error::{Error, Result};
use pages::Pages;
use schema::Table;
use std::collections::HashMap;
use std::io::{Read, Seek};

/// The first bytes of each database.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";
/// The page with the list of tables.
const SCHEMA_PAGE: u32 = 1;
/// Columns of the list of tables: type, name, table, root page, statement.
const SCHEMA_COLUMNS: [usize; 5] = [0, 1, 2, 3, 4];

#[derive(Debug)]
pub struct Database<R> {
    pages: Pages<R>,
    tables: HashMap<String, Listed>,
}

/// A table as the database lists it. Its definition is parsed and checked when its rows are requested.
#[derive(Clone, Debug)]
struct Listed {
    root: i64,
    statement: String,
}

impl<R: Read + Seek> Database<R> {
    /// Reads the header and the list of tables.
    ///
    /// # Errors
    /// If the file cannot be read, is not a database, is cut off, damaged, or has text that is not UTF-8.
    pub fn open(file: R) -> Result<Self> {
        let mut pages = Pages::open(file)?;
        let mut tables = HashMap::new();
        tree::scan(&mut pages, SCHEMA_PAGE, |_, payload| {
            let mut values = [Value::Null; 5];
            record::decode(payload, &SCHEMA_COLUMNS, &mut values)?;
            let [Value::Text(kind), Value::Text(name), _, Value::Integer(root), Value::Text(statement)] = values else {
                return Ok(());
            };
            if kind == b"table" {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                tables.insert(text(name), Listed { root, statement: text(statement) });
            }
            Ok(())
        })?;
        Ok(Self { pages, tables })
    }

    pub fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Calls `each` for each row of a table, reduced to these columns. A column that the table does not have is null in each
    /// row; a table that the database does not have has no rows.
    ///
    /// If the table is stored in a way that memviz does not read, is damaged, or `each` fails.
    /// When the table is stored in a way that memviz does not read, is damaged, or `each` fails.
    pub fn rows<const N: usize>(
        &mut self,
        table: &str,
        columns: [&str; N],
        mut each: impl FnMut([Value<'_>; N]) -> Result<()>,
    ) -> Result<()> {
        let Some(listed) = self.tables.get(table) else { return Ok(()) };
        let root = u32::try_from(listed.root).ok().filter(|&root| root > 0).ok_or_else(|| {
            Error::NotASnapshot(format!("table {table}: expected a table that is stored, found a virtual one"))
        })?;
        let parsed = Table::parse(table, &listed.statement)?;
        // A missing column gets a place after the last one of any row.
        let places = columns.map(|name| parsed.column(name).unwrap_or(usize::MAX));
        let is_id = places.map(|place| parsed.row_id == Some(place));
        tree::scan(&mut self.pages, root, |id, payload| {
            let mut values = [Value::Null; N];
            record::decode(payload, &places, &mut values)?;
            for (value, is_id) in values.iter_mut().zip(is_id) {
                if is_id {
                    *value = Value::Integer(id);
                }
            }
            each(values)
        })
    }
}
