//! `memviz ranks` as Markdown.

use super::words;
use crate::analysis::ranks::RanksReport;
use crate::analysis::ranks::{Group, Outlier};
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::{self, signed};
use crate::report::common::words::{count, starred};
use crate::wire::ranks::RankLine;
use std::io::{self, Write};

pub(crate) fn write(report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## GPU memory of {}\n", count(report.ranks().count() as u64, words::noun(report)))?;
    for note in words::notes(report) {
        writeln!(out, "> {}\n", escape(&note))?;
    }
    report.groups.iter().try_for_each(|group| across(report, group, out))?;
    let outliers = words::by_row(report);
    if outliers.is_empty() {
        writeln!(out, "{}.\n", escape(&words::no_outlier(report)))?;
    }
    outliers.iter().try_for_each(|row| outlier(report, row, out))?;
    failed(report, out)?;
    rows(report, out)
}

fn across(report: &RanksReport, group: &Group, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### Across {}\n", words::group(report, group))?;
    writeln!(out, "| | Lowest | Median | Highest | Highest to median | Highest is |\n|---|--:|--:|--:|--:|---|")?;
    for (figure, spread) in &group.spreads {
        let [min, median, max] = [spread.min.0, spread.median, spread.max.0].map(signed);
        let (name, skew) = (words::figure(*figure), words::skew(spread.skew()));
        let highest = words::highest(report, spread);
        writeln!(out, "| {name} | {min} | {median} | {max} | {skew} | {highest} |")?;
    }
    writeln!(out)
}

fn outlier(report: &RanksReport, row: &[Outlier], out: &mut dyn Write) -> io::Result<()> {
    let Some(outlier) = words::leading(report, row) else { return Ok(()) };
    let name = words::name(report, outlier.row);
    writeln!(out, "### Outlier {name}: {}\n", words::distance(outlier))?;
    if let Some(scores) = words::scores(report, row) {
        writeln!(out, "- {}", escape(&scores))?;
    }
    if let Some(rank) = report.rank(outlier.row) {
        writeln!(out, "- {}", code(&rank.path))?;
    }
    let Some(difference) = &outlier.difference else {
        return writeln!(out, "- {}\n", escape(&words::no_difference(outlier)));
    };
    writeln!(out, "\n{}:\n", escape(&words::difference(report, difference)))?;
    let reference = words::name(report, difference.reference);
    writeln!(out, "| Delta | {name} | {reference} | site |\n|--:|--:|--:|---|")?;
    for row in &difference.rows {
        let (left, right) = (words::side(row.bytes), words::side(row.reference_bytes));
        let label = cell(&starred(&row.label, row.inferred));
        writeln!(out, "| {} | {left} | {right} | {label} |", words::row_delta(row))?;
    }
    let total = |row: usize| Bytes(report.rank(row).map_or(0, |rank| rank.total_bytes));
    let delta = words::delta(difference.delta_bytes);
    writeln!(out, "| **{delta}** | {} | {} | in all |\n", total(outlier.row), total(difference.reference))?;
    if difference.rows.iter().any(|row| row.inferred) {
        writeln!(out, "{}\n", escape(notes::INFERRED_SITE))?;
    }
    match words::bounds_note(difference) {
        Some(note) => writeln!(out, "{}.\n", escape(note)),
        None => Ok(()),
    }
}

fn failed(report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
    if report.failed().next().is_none() {
        return Ok(());
    }
    writeln!(out, "### Not analyzed\n")?;
    for failed in report.failed() {
        writeln!(out, "- {}: {}", code(&failed.path), escape(&failed.error))?;
    }
    writeln!(out)
}

/// Every row, folded away.
fn rows(report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<details><summary>All ranks</summary>\n")?;
    writeln!(out, "| Rank | Device | Allocated | Active | Requested | Reserved | Baseline | Inactive | OOMs | Path |")?;
    writeln!(out, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")?;
    for line in &report.lines {
        match line {
            RankLine::Rank(rank) => {
                let [allocated, active, requested, reserved] =
                    [Metric::Allocated, Metric::Active, Metric::Requested, Metric::Reserved]
                        .map(|metric| words::maximum(rank, metric));
                let (baseline, inactive) = (signed(rank.baseline_bytes), words::inactive(rank));
                let (device, ooms, path) = (words::device(rank.device), rank.ooms, cell(&rank.path));
                writeln!(
                    out,
                    "| {} | {device} | {allocated} | {active} | {requested} | {reserved} | {baseline} | {inactive} \
                     | {ooms} | {path} |",
                    rank.rank
                )?;
            }
            RankLine::Empty(empty) => writeln!(out, "| {} | none | | | | | | | | {} |", empty.rank, cell(&empty.path))?,
            RankLine::Failed(_) | RankLine::Skipped(_) => {}
        }
    }
    writeln!(out, "\n</details>")
}
