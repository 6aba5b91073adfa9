//! How devices compare, as Markdown.

use super::words;
use crate::analysis::peak::comparison::Comparison;
use crate::model::bytes::Bytes;
use crate::report::common::markdown::{cell, escape};
use crate::report::common::words::starred;
use std::io::{self, Write};

pub(crate) fn comparison(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### {}\n", escape(&words::headline(comparison)))?;
    if comparison.rows.is_empty() {
        return Ok(());
    }
    let columns = words::columns(comparison, usize::MAX);
    let row = |cells: Vec<String>, label: &str| format!("| {} | {label} |", cells.join(" | "));
    let head = columns.iter().map(|&index| words::column(comparison, index)).collect();
    writeln!(out, "{}\n|{}---|", row(head, comparison.by.name()), "--:|".repeat(columns.len()))?;
    let peaks = columns.iter().map(|&index| format!("**{}**", words::bytes(comparison.devices[index]))).collect();
    writeln!(out, "{}", row(peaks, &format!("**{}**", words::compared(comparison))))?;
    for group in &comparison.rows {
        let bytes = columns.iter().map(|&index| Bytes(group.bytes[index]).to_string()).collect();
        writeln!(out, "{}", row(bytes, &cell(&starred(&group.label, group.inferred))))?;
    }
    writeln!(out)
}
