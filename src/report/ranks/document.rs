//! `memviz ranks` for people: a row for each rank as soon as it is known, then the comparison of the ranks.

use super::words;
use crate::analysis::ranks::{Difference, Group, Outlier, RanksReport};
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::common::document::{Cell, Column, Cut, Document, Table, Tone};
use crate::report::common::fit::shorten_end;
use crate::report::common::next::Next;
use crate::report::common::notes::{self, safe, signed};
use crate::report::common::words::{count, starred};
use crate::wire::ranks::{RankLine, RankSummary, TopRow};

/// Screens narrower than this show neither fragmentation nor failed requests, and only the difference of two ranks; paths
/// are on lines of their own.
const STATE_FROM: usize = 64;
/// Screens narrower than this show two of the four maxima, and not the memory at the start.
const MAXIMA_FROM: usize = 110;
/// On narrower screens, the column with the largest site is left out.
pub(super) const SITE_FROM: usize = 190;
/// Screens narrower than this do not show which rank is highest.
const HIGHEST_FROM: usize = 78;
const SITE: usize = 64;
/// Number of outliers that are shown in full, and rows of each.
const DETAILED: usize = 5;
const ROWS: usize = 10;

/// The whole document, for a reader who gets it all at once.
pub(super) fn document(report: &RanksReport) -> Document {
    let what = count(report.ranks().count() as u64, words::noun(report));
    let mut document = Document::new(format!("GPU memory of {what}"));
    let mut table = table();
    report.lines.iter().for_each(|line| add(&mut table, line));
    document.tuck("All ranks", |document| document.table(table));
    if report.failed().next().is_some() {
        document.title("Not analyzed");
        document.items(report.failed().map(|failed| format!("{}: {}", failed.path, failed.error)));
    }
    together(&mut document, report, false);
    document
}

/// The notes below the table, which may have the column with the largest site.
pub(super) fn end(report: &RanksReport, has_site: bool) -> Document {
    let mut document = Document::default();
    together(&mut document, report, has_site);
    document
}

pub(super) fn table() -> Table {
    let wide = |name| Column::right(11, name).gap(2).from(MAXIMA_FROM);
    Table::new([
        Column::right(6, "rank"),
        Column::right(6, "device").gap(2),
        Column::right(11, "allocated").gap(2),
        wide("active"),
        wide("requested"),
        Column::right(11, "reserved").gap(2),
        wide("at start"),
        Column::right(8, "inactive").gap(2).from(STATE_FROM),
        Column::right(4, "ooms").gap(2).from(STATE_FROM),
        Column::left(SITE, "largest site at the peak").gap(2).from(SITE_FROM).on_screens(),
        Column::label("path"),
    ])
    .below(6)
}

pub(super) fn add(table: &mut Table, line: &RankLine) {
    match line {
        RankLine::Rank(rank) => {
            let row = table.row(cells(rank), Cell::code(&rank.path));
            row.is_said = Some(STATE_FROM);
            row.below(std::slice::from_ref(&rank.path));
        }
        RankLine::Empty(empty) => {
            let what = format!("no memory on any device: {}", empty.path);
            table.short(empty.rank.to_string(), what).painted(Tone::Plain);
        }
        RankLine::Failed(failed) => {
            table.short("-", format!("{}: {}", failed.path, failed.error)).painted(Tone::Warn);
        }
        // These are counted below the table.
        RankLine::Skipped(_) => {}
    }
}

fn cells(rank: &RankSummary) -> [String; 10] {
    let maximum = |metric| words::maximum(rank, metric);
    let if_history = |shown: String| if rank.entries > 0 { shown } else { "-".to_owned() };
    [
        rank.rank.to_string(),
        words::device(rank.device),
        maximum(Metric::Allocated),
        maximum(Metric::Active),
        maximum(Metric::Requested),
        maximum(Metric::Reserved),
        if_history(signed(rank.baseline_bytes)),
        words::inactive(rank),
        if_history(rank.ooms.to_string()),
        rank.largest().map(largest).unwrap_or_default(),
    ]
}

fn largest(row: &TopRow) -> String {
    let bytes = Bytes(row.bytes).to_string();
    let star = if row.inferred { starred("", true).len() } else { 0 };
    let room = SITE.saturating_sub(bytes.len() + 1 + star);
    format!("{bytes} {}", starred(&shorten_end(&safe(&row.label), room), row.inferred))
}

fn together(document: &mut Document, report: &RanksReport, has_site: bool) {
    let is_starred = |rank: &RankSummary| rank.largest().is_some_and(|row| row.inferred);
    if has_site && report.ranks().any(|(_, rank)| is_starred(rank)) {
        document.legend(notes::INFERRED_SITE);
    }
    document.notes(words::notes(report));
    failures(document, report);
    report.groups.iter().for_each(|group| across(document, report, group));
    document.gap();
    let outliers = words::by_row(report);
    if outliers.is_empty() {
        document.paragraph(words::no_outlier(report));
        return document.next(two(report));
    }
    for (index, row) in outliers.iter().enumerate() {
        let Some(leading) = words::leading(report, row) else { continue };
        if index >= DETAILED {
            document.paragraph(format!("{}: {}", words::name(report, leading.row), words::distance(leading)));
            continue;
        }
        if index > 0 {
            document.gap();
        }
        outlier(document, report, row, leading);
    }
    let first = outliers.first().and_then(|row| words::leading(report, row));
    document.next(first.and_then(|outlier| compared(report, outlier)));
}

/// Failed requests by signature, and where they happened before.
fn failures(document: &mut Document, report: &RanksReport) {
    if report.failures.is_empty() {
        return;
    }
    document.section("Failed requests by signature");
    let earlier = report.earlier.map(|_| Column::right(7, "earlier").gap(2));
    let columns = [Column::right(8, "requests"), Column::right(5, "ranks").gap(2)].into_iter().chain(earlier);
    let columns =
        columns.chain([Column::left(16, "signature").gap(2), Column::label("failure").cut(Cut::Wrapped).least(20)]);
    let mut table = Table::new(columns).indent(2);
    for failure in &report.failures {
        let earlier = report.earlier.map(|_| failure.earlier.len().to_string());
        let cells = [failure.requests().to_string(), failure.rows.len().to_string()].into_iter().chain(earlier);
        let cells: Vec<String> = cells.chain([safe(&failure.signature.id)]).collect();
        table.row(cells, words::failure(failure));
    }
    document.table(table);
    document.facts(words::failed_where(report));
    document.facts(words::unsigned(report));
}

fn across(document: &mut Document, report: &RanksReport, group: &Group) {
    document.section(format!("Across {}", words::group(report, group)));
    let columns = ["lowest", "median", "highest"].map(|name| Column::right(11, name));
    let columns = [Column::left(20, "")].into_iter().chain(columns);
    let mut table = Table::new(columns.chain([
        Column::right(9, "of median").gap(2).from(HIGHEST_FROM),
        Column::label("where").cut(Cut::End).from(HIGHEST_FROM),
    ]))
    .indent(2);
    for (figure, spread) in &group.spreads {
        let [min, median, max, skew, place] = words::spread(report, group, *figure, spread);
        table.row([words::figure(*figure).to_owned(), min, median, max, skew], place);
    }
    document.table(table);
}

fn outlier(document: &mut Document, report: &RanksReport, row: &[Outlier], outlier: &Outlier) {
    document.alarm(format!("Outlier {}: {}", words::name(report, outlier.row), words::distance(outlier)));
    document.facts(words::scores(report, row));
    document.facts(report.rank(outlier.row).map(|rank| rank.path.as_str()));
    match &outlier.difference {
        Some(found) => difference(document, report, outlier.row, found),
        None => document.fact(words::no_difference(outlier)),
    }
}

fn difference(document: &mut Document, report: &RanksReport, row: usize, difference: &Difference) {
    document.gap();
    document.fact(words::difference(report, row, difference));
    let name = |row: usize| report.rank(row).map_or_else(String::new, |rank| format!("rank {}", rank.rank));
    let mut table = Table::new([
        Column::right(13, "delta"),
        Column::right(12, &name(row)).from(STATE_FROM),
        Column::right(12, &name(difference.reference)).from(STATE_FROM),
        Column::label("site"),
    ]);
    let shown = difference.rows.len().min(ROWS);
    // The last row represents the rest; it is combined with those that are not shown.
    for row in &difference.rows[..shown] {
        let cells = [words::row_delta(row), words::side(row.bytes), words::side(row.reference_bytes)];
        table.row(cells, Cell::code(starred(&row.label, row.inferred)));
    }
    let rest = &difference.rows[shown..];
    if !rest.is_empty() {
        let delta = words::delta(rest.iter().map(|row| row.delta_bytes).sum());
        let label = match rest {
            [row] => starred(&row.label, row.inferred),
            _ => format!("{} more rows", rest.len()),
        };
        table.row([delta, String::new(), String::new()], label);
    }
    let total = |row: usize| Bytes(report.rank(row).map_or(0, |rank| rank.total_bytes)).to_string();
    let totals = [words::delta(difference.delta_bytes), total(row), total(difference.reference)];
    table.row(totals, "total").is_total = true;
    document.table(table);
    let named = if rest.len() == 1 { &difference.rows } else { &difference.rows[..shown] };
    if named.iter().any(|row| row.inferred) {
        document.legend(notes::INFERRED_SITE);
    }
    document.facts(words::bounds_note(difference));
}

/// The command that compares an outlier with another rank in full.
fn compared(report: &RanksReport, outlier: &Outlier) -> Option<Next> {
    compare(report, [outlier.difference.as_ref()?.reference, outlier.row])
}

/// The command that compares two recordings, if there are no others.
fn two(report: &RanksReport) -> Option<Next> {
    let rows: Vec<usize> = report.ranks().map(|(row, _)| row).collect();
    compare(report, rows.try_into().ok()?)
}

/// The command that compares two recordings in full.
fn compare(report: &RanksReport, rows: [usize; 2]) -> Option<Next> {
    let path = |row: usize| report.rank(row).map(|rank| rank.path.as_str());
    let paths = [path(rows[0])?, path(rows[1])?];
    // Several devices of one file are not two recordings.
    (paths[0] != paths[1]).then(|| Next::new("diff", &paths, "", "everything that differs between the two"))
}
