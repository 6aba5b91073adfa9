//! `memviz fix` as CSV: a line per fix.

use crate::analysis::fix::FixReport;
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

pub(crate) fn write(report: &FixReport, out: &mut dyn Write) -> io::Result<()> {
    table(
        &report.fixes,
        &[
            ("device", |fix| fix.device.to_string()),
            ("number", |fix| fix.number.to_string()),
            ("kind", |fix| fix.advice.kind.name().to_owned()),
            ("change", |fix| cell(fix.change())),
            ("label", |fix| cell(fix.advice.line.as_ref().map_or("", |line| &line.label))),
            ("file", |fix| cell(fix.written.as_ref().map_or("", |written| &written.path))),
            ("saves_allocated_bytes", |fix| optional(fix.saving().allocated())),
            ("reason", |fix| cell(fix.written.as_ref().err().map_or("", |because| because))),
        ],
        out,
    )
}
