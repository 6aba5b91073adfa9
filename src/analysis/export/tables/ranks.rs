//! Summaries of ranks as a table, in which each row also has its whole line of JSON.

use super::{Table, TableColumn as Column, Values};
use crate::replay::{Bound, Counters, Metric};
use crate::wire::rank_lines::write_line;
use crate::wire::rank_table::SUMMARY;
use crate::wire::ranks::{FailureSignature, RankLine, RankSource, RankSummary};
use std::io;

/// A row for each line.
///
/// # Errors
/// If a line cannot be written as JSON.
pub fn of_ranks(lines: &[&RankLine]) -> io::Result<Table> {
    let rows = lines.len();
    let json = |line: &&RankLine| {
        let mut text = Vec::new();
        write_line(line, &mut text)?;
        Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
    };
    let summaries: Vec<String> = lines.iter().map(json).collect::<io::Result<_>>()?;
    let ranks = || lines.iter().map(|line| line.rank());
    let number =
        |name, figure: &dyn Fn(&RankSummary) -> Option<i64>| Column::maybe(name, ranks().map(|rank| figure(rank?)));
    let text = |name, word: &dyn Fn(&RankSummary) -> String| {
        let texts = ranks().map(|rank| rank.map(word).unwrap_or_default()).collect();
        Column::maybe_text(name, texts, ranks().enumerate().map(|(at, rank)| rank.map(|_| at as u32)))
    };
    let counter = |name, metric, counters: fn(&RankSummary) -> &Counters| {
        let is_known = move |rank: &RankSummary| rank.bound(metric) != Some(Bound::Unknown);
        number(name, &move |rank: &RankSummary| is_known(rank).then(|| counters(rank).get(metric)))
    };
    let top = |rank: &RankSummary| rank.top.first().map(|row| (row.label.clone(), row.bytes));
    let failed = |name, word: fn(&FailureSignature) -> String| {
        let of = || ranks().map(|rank| rank.and_then(failure));
        let texts = of().map(|of| of.map(word).unwrap_or_default()).collect();
        Column::maybe_text(name, texts, of().enumerate().map(|(at, of)| of.map(|_| at as u32)))
    };
    let each = || (0..rows as u32).collect::<Vec<u32>>();
    Ok(Table::new(
        rows,
        [
            Column::text("line", lines.iter().map(|line| kind(line).to_owned()).collect(), each()),
            Column::text("path", lines.iter().map(|line| path(line).to_owned()).collect(), each()),
            Column::maybe("rank", lines.iter().map(|line| rank_number(line))),
            text("rank_source", &|rank| source(rank.rank_source).to_owned()),
            number("device", &|rank| Some(i64::from(rank.device))),
            text("format", &|rank| rank.format.name().to_owned()),
            number("entries", &|rank| Some(i64::from(rank.entries))),
            number("first_us", &|rank| rank.time_us.map(|(first, _)| first)),
            number("last_us", &|rank| rank.time_us.map(|(_, last)| last)),
            number("complete_history", &|rank| Some(i64::from(rank.complete_history))),
            number("anomalies", &|rank| i64::try_from(rank.anomalies).ok()),
            counter("allocated_max", Metric::Allocated, |rank| &rank.maxima),
            counter("active_max", Metric::Active, |rank| &rank.maxima),
            counter("requested_max", Metric::Requested, |rank| &rank.maxima),
            counter("reserved_max", Metric::Reserved, |rank| &rank.maxima),
            counter("allocated_end", Metric::Allocated, |rank| &rank.end),
            counter("reserved_end", Metric::Reserved, |rank| &rank.end),
            number("inactive", &|rank| rank.inactive_bytes),
            number("device_total", &|rank| i64::try_from(rank.device_memory?.total_bytes).ok()),
            number("device_used", &|rank| i64::try_from(rank.device_memory?.used_bytes).ok()),
            number("outside", &|rank| Some(rank.device_memory?.outside_bytes)),
            number("ooms", &|rank| i64::try_from(rank.ooms).ok().filter(|_| rank.entries > 0)),
            failed("signature", |of| of.id.clone()),
            failed("requester", |of| of.requester.clone()),
            text("metric", &|rank| rank.metric.name().to_owned()),
            number("total", &|rank| i64::try_from(rank.total_bytes).ok()),
            text("top_site", &|rank| top(rank).map(|(label, _)| label).unwrap_or_default()),
            number("top_site_bytes", &|rank| top(rank).and_then(|(_, bytes)| i64::try_from(bytes).ok())),
            Column::new(SUMMARY, Values::Lines(summaries)),
        ],
    ))
}

/// The first failed request.
fn failure(rank: &RankSummary) -> Option<&FailureSignature> {
    rank.failures.first().map(|failure| &failure.signature)
}

fn kind(line: &RankLine) -> &'static str {
    match line {
        RankLine::Rank(_) => "rank",
        RankLine::Empty(_) => "empty",
        RankLine::Failed(_) => "failed",
        RankLine::Skipped(_) => "skipped",
    }
}

fn path(line: &RankLine) -> &str {
    match line {
        RankLine::Rank(rank) => &rank.path,
        RankLine::Empty(empty) => &empty.path,
        RankLine::Failed(failed) => &failed.path,
        RankLine::Skipped(skipped) => &skipped.path,
    }
}

fn rank_number(line: &RankLine) -> Option<i64> {
    match line {
        RankLine::Rank(rank) => i64::try_from(rank.rank).ok(),
        RankLine::Empty(empty) => i64::try_from(empty.rank).ok(),
        RankLine::Failed(_) | RankLine::Skipped(_) => None,
    }
}

fn source(source: RankSource) -> &'static str {
    match source {
        RankSource::Recorded => "recorded",
        RankSource::Path => "path",
        RankSource::Order => "order",
    }
}
