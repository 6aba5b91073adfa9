//! `memviz ranks` as text: a row for each rank as soon as it is there, then what the ranks are together.

use super::words;
use crate::analysis::ranks::RanksReport;
use crate::analysis::ranks::{Difference, Group, Outlier};
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::next::Next;
use crate::report::common::notes::{self, safe, signed};
use crate::report::common::text::TextStyle;
use crate::report::common::words::starred;
use crate::wire::ranks::{RankLine, RankSummary, TopRow};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Terminals narrower than this show neither fragmentation nor failed requests.
const STATE_FROM: usize = 64;
/// Terminals narrower than this show two of the four maxima, and no baseline.
const MAXIMA_FROM: usize = 110;
/// Terminals narrower than this do not show what holds most.
const SITE_FROM: usize = 170;
/// Terminals narrower than this do not show which rank is highest, and shorten the names of figures.
const HIGHEST_FROM: usize = 78;
const NAMES_FROM: usize = 59;
/// Columns of what holds most.
const SITE: usize = 44;
/// Ranks that stand out of which all is said, and rows of each.
const DETAILED: usize = 5;
const ROWS: usize = 10;

impl TextStyle {
    /// A line of the table, the first one with its head.
    pub(crate) fn rank_line(&self, index: usize, line: &RankLine, out: &mut dyn Write) -> io::Result<()> {
        if index == 0 {
            writeln!(out, "{}", self.dim(self.rank_row(&HEAD.map(str::to_owned), "path").trim_end()))?;
        }
        let width = self.room(0);
        let said = |rank: &str, what: &str| shorten_end(&format!("{rank:>6}  {what}"), width);
        match line {
            RankLine::Rank(rank) => writeln!(out, "{}", self.rank_row(&cells(rank), &rank.path)),
            RankLine::Empty(empty) => {
                writeln!(
                    out,
                    "{}",
                    said(&empty.rank.to_string(), &format!("no memory on any device: {}", safe(&empty.path)))
                )
            }
            RankLine::Failed(failed) => {
                let what = format!("{}: {}", safe(&failed.path), safe(&failed.error));
                writeln!(out, "{}", self.warn(&said("-", &what)))
            }
            // Counted below the table.
            RankLine::Skipped(_) => Ok(()),
        }
    }

    /// Cells as many as there is room for, and the path in what is left.
    fn rank_row(&self, cells: &[String; HEAD.len()], path: &str) -> String {
        let [rank, device, allocated, active, requested, reserved, baseline, inactive, ooms, site] = cells;
        let mut row = format!("{rank:>6}  {device:>6}  {allocated:>11}");
        if self.has(MAXIMA_FROM) {
            row += &format!("  {active:>11}  {requested:>11}");
        }
        row += &format!("  {reserved:>11}");
        if self.has(MAXIMA_FROM) {
            row += &format!("  {baseline:>11}");
        }
        if self.has(STATE_FROM) {
            row += &format!("  {inactive:>8}  {ooms:>4}");
        }
        if self.has(SITE_FROM) {
            row += &format!("  {site}{}", " ".repeat(SITE.saturating_sub(site.width())));
        }
        let room = self.room(row.width() + 2);
        if room > 0 { format!("{row}  {}", shorten(&safe(path), room)) } else { row }
    }

    /// What the ranks are together.
    pub(crate) fn ranks_end(&self, report: &RanksReport, out: &mut dyn Write) -> io::Result<()> {
        let is_starred = |rank: &RankSummary| rank.largest().is_some_and(|row| row.inferred);
        if self.has(SITE_FROM) && report.ranks().any(|(_, rank)| is_starred(rank)) {
            self.legend(notes::INFERRED_SITE, out)?;
        }
        self.notes(&words::notes(report), out)?;
        report.groups.iter().try_for_each(|group| self.rank_group(report, group, out))?;
        writeln!(out)?;
        let outliers = words::by_row(report);
        if outliers.is_empty() {
            return self.words("", &words::no_outlier(report), out);
        }
        for (index, row) in outliers.iter().take(DETAILED).enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            self.rank_outlier(report, row, out)?;
        }
        for row in outliers.iter().skip(DETAILED) {
            if let Some(outlier) = words::leading(report, row) {
                self.words("", &format!("{}: {}", words::name(report, outlier.row), words::distance(outlier)), out)?;
            }
        }
        let first = outliers.first().and_then(|row| words::leading(report, row));
        self.next(first.and_then(|outlier| compared(report, outlier)).as_slice(), out)
    }

    /// How the figures are distributed.
    fn rank_group(&self, report: &RanksReport, group: &Group, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n{}", self.bold(&format!("Across {}", words::group(report, group))))?;
        let wide = self.has(HIGHEST_FROM);
        let names = if self.has(NAMES_FROM) { 20 } else { 11 };
        let line = |[name, min, median, max, skew, rank]: [&str; 6]| {
            let skew = if wide { format!("  {skew:>9}  {rank}") } else { String::new() };
            let name = shorten_end(name, names);
            let line = format!("  {name:names$} {min:>11} {median:>11} {max:>11}{skew}");
            shorten_end(line.trim_end(), self.room(0))
        };
        writeln!(out, "{}", self.dim(&line(["", "lowest", "median", "highest", "to median", "where"])))?;
        for (figure, spread) in &group.spreads {
            let [min, median, max] = [spread.min.0, spread.median, spread.max.0].map(signed);
            let highest = words::highest(report, spread);
            let name = words::figure(*figure);
            writeln!(out, "{}", line([name, &min, &median, &max, &words::skew(spread.skew()), &highest]))?;
        }
        Ok(())
    }

    /// A rank that stands out.
    fn rank_outlier(&self, report: &RanksReport, row: &[Outlier], out: &mut dyn Write) -> io::Result<()> {
        let Some(outlier) = words::leading(report, row) else { return Ok(()) };
        let title = format!("Outlier {}: {}", words::name(report, outlier.row), words::distance(outlier));
        for (index, line) in self.broken(2, &title).iter().enumerate() {
            writeln!(out, "{}{}", if index == 0 { "" } else { "  " }, self.warn(line))?;
        }
        if let Some(scores) = words::scores(report, row) {
            self.words("  ", &scores, out)?;
        }
        let path = report.rank(outlier.row).map_or("", |rank| rank.path.as_str());
        writeln!(out, "  {}", shorten(&safe(path), self.room(2)))?;
        match &outlier.difference {
            Some(difference) => self.rank_difference(report, outlier.row, difference, out),
            None => self.words("  ", &words::no_difference(outlier), out),
        }
    }

    fn rank_difference(
        &self,
        report: &RanksReport,
        row: usize,
        difference: &Difference,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        writeln!(out)?;
        self.words("  ", &words::difference(report, difference), out)?;
        let line = |delta: &str, left: &str, right: &str, label: &str| {
            let line = format!("{delta:>13} {left:>12} {right:>12}  ");
            let room = self.room(line.width());
            format!("{line}{}", shorten(&safe(label), room))
        };
        let name = |row: usize| report.rank(row).map_or_else(String::new, |rank| format!("rank {}", rank.rank));
        writeln!(out, "{}", self.dim(&line("delta", &name(row), &name(difference.reference), "site")))?;
        let shown = difference.rows.len().min(ROWS);
        // The last row stands for what is not listed; it joins those that are not shown.
        for row in &difference.rows[..shown] {
            let (left, right) = (words::side(row.bytes), words::side(row.reference_bytes));
            let label = starred(&row.label, row.inferred);
            writeln!(out, "{}", line(&words::row_delta(row), &left, &right, &label))?;
        }
        let rest = &difference.rows[shown..];
        if !rest.is_empty() {
            let delta = words::delta(rest.iter().map(|row| row.delta_bytes).sum());
            let label = match rest {
                [row] => starred(&row.label, row.inferred),
                _ => format!("{} more rows", rest.len()),
            };
            writeln!(out, "{}", line(&delta, "", "", &label))?;
        }
        let total = |row: usize| report.rank(row).map_or(0, |rank| rank.total_bytes);
        let (left, right) = (Bytes(total(row)).to_string(), Bytes(total(difference.reference)).to_string());
        writeln!(out, "{}", line(&words::delta(difference.delta_bytes), &left, &right, "in all"))?;
        let named = if rest.len() == 1 { &difference.rows } else { &difference.rows[..shown] };
        if named.iter().any(|row| row.inferred) {
            self.legend(notes::INFERRED_SITE, out)?;
        }
        words::bounds_note(difference).map_or(Ok(()), |note| self.words("  ", note, out))
    }
}

/// The command that compares a rank that stands out with another one in full.
fn compared(report: &RanksReport, outlier: &Outlier) -> Option<Next> {
    let path = |row: usize| report.rank(row).map(|rank| rank.path.as_str());
    let paths = [path(outlier.difference.as_ref()?.reference)?, path(outlier.row)?];
    // The devices of one file are no two recordings.
    (paths[0] != paths[1]).then(|| Next::new("diff", &paths, "", "all that differs between the two"))
}

/// Names of the columns before the path.
const HEAD: [&str; 10] = [
    "rank",
    "device",
    "allocated",
    "active",
    "requested",
    "reserved",
    "baseline",
    "inactive",
    "ooms",
    "most at the peak",
];

fn cells(rank: &RankSummary) -> [String; HEAD.len()] {
    let maximum = |metric| words::maximum(rank, metric);
    [
        rank.rank.to_string(),
        words::device(rank.device),
        maximum(Metric::Allocated),
        maximum(Metric::Active),
        maximum(Metric::Requested),
        maximum(Metric::Reserved),
        signed(rank.baseline_bytes),
        words::inactive(rank),
        rank.ooms.to_string(),
        rank.largest().map(largest).unwrap_or_default(),
    ]
}

/// What a site holds, in as many columns as there are for it.
fn largest(row: &TopRow) -> String {
    let bytes = Bytes(row.bytes).to_string();
    let room = SITE.saturating_sub(bytes.len() + 1);
    format!("{bytes} {}", shorten(&starred(&safe(&row.label), row.inferred), room))
}
