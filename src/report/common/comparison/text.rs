//! How devices compare, as text: a line, and a short table of what makes the difference.

use super::words;
use crate::analysis::peak::comparison::Comparison;
use crate::model::bytes::Bytes;
use crate::report::common::fit::shorten;
use crate::report::common::notes::{self, safe};
use crate::report::common::text::TextStyle;
use crate::report::common::words::starred;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Width of a column of bytes, and what is kept free for a site.
const COLUMN: usize = 12;
const LABEL: usize = 22;

impl TextStyle {
    /// An empty line, and which device holds how much of what.
    pub(crate) fn comparison(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        for (index, line) in self.broken(2, &words::headline(comparison)).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.bold(line))?;
        }
        let width = self.room(0);
        let columns = words::columns(comparison, width.saturating_sub(LABEL) / (COLUMN + 1));
        let line = |cells: Vec<String>, label: &str| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>COLUMN$}")).collect();
            let cells = cells.join(" ");
            format!("{cells}  {}", shorten(&safe(label), width.saturating_sub(cells.width() + 2)))
        };
        if comparison.rows.is_empty() {
            return Ok(());
        }
        let head = columns.iter().map(|&index| words::column(comparison, index)).collect();
        writeln!(out, "{}", self.dim(&line(head, comparison.by.name())))?;
        let peaks = columns.iter().map(|&index| words::bytes(comparison.devices[index])).collect();
        writeln!(out, "{}", line(peaks, &words::compared(comparison)))?;
        for row in &comparison.rows {
            let bytes = columns.iter().map(|&index| Bytes(row.bytes[index]).to_string()).collect();
            writeln!(out, "{}", line(bytes, &starred(&row.label, row.inferred)))?;
        }
        if comparison.rows.iter().any(|row| row.inferred) {
            self.legend(notes::inferred(comparison.by), out)?;
        }
        Ok(())
    }
}
