//! CSV: one table per answer, a line per row, bytes as integers. Each report has its own file; this one has the shared
//! code.

use super::notes::safe;
use std::io::{self, Write};

/// A cell with text from a file, which a spreadsheet must not interpret as a formula: such a cell starts with one of these
/// signs, in half or full width, and some programs remove leading white space. A leading apostrophe makes it text.
pub(crate) fn cell(text: &str) -> String {
    let text = safe(text);
    let begin = text.trim_start_matches(|sign: char| sign.is_whitespace() || matches!(sign, '\'' | '"'));
    let is_formula = begin.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text }
}

/// A column of a table: its name, and the cell of a row.
pub(crate) type Column<R> = (&'static str, fn(&R) -> String);

pub(crate) fn table<R>(
    rows: impl IntoIterator<Item = R>,
    columns: &[Column<R>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut lines = Lines(::csv::Writer::from_writer(out));
    lines.line(columns.iter().map(|(name, _)| name))?;
    for row in rows {
        lines.line(columns.iter().map(|(_, cell)| cell(&row)))?;
    }
    lines.end()
}

/// A cell that is empty if there is no value.
pub(crate) fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub(crate) struct Lines<'o>(::csv::Writer<&'o mut dyn Write>);

impl<'o> Lines<'o> {
    /// Writes the header: names separated by commas.
    pub(crate) fn new(head: &str, out: &'o mut dyn Write) -> io::Result<Self> {
        let mut lines = Self(::csv::Writer::from_writer(out));
        lines.line(head.split(','))?;
        Ok(lines)
    }

    /// Writes a line with as many cells as the header has.
    pub(crate) fn line<T: AsRef<[u8]>>(&mut self, cells: impl IntoIterator<Item = T>) -> io::Result<()> {
        self.0.write_record(cells).map_err(io_error)
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The error underneath, so that a closed pipe stays recognizable.
fn io_error(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_formulas() {
        for name in ["=1+1", "@SUM(A1)", "+cmd", "-cmd|' /C calc'!A0", " =1+1", "＝1+1", "\u{3000}＠x", "\"=1"] {
            assert_eq!(cell(name), format!("'{name}"));
        }
        assert_eq!(["-5", "model.py:41 forward", ""].map(cell), ["-5", "model.py:41 forward", ""]);
    }
}
