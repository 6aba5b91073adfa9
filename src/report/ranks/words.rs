//! The text about ranks, the same in every format.

use crate::analysis::ranks::RanksReport;
use crate::analysis::ranks::{
    Difference, DifferenceRow, Figure, Group, MIN_RANKS, MIN_SHARE, MemoryKind, Outlier, Relation, SameFailure, Scale,
    Spread,
};
use crate::model::DeviceId;
use crate::model::bytes::Bytes;
use crate::replay::{Bound, Metric};
use crate::report::common::notes::{self, signed};
use crate::report::common::words::{self, count, mark};
use crate::sorting::SortRows;
use crate::wire::ranks::{FailureSignature, RankLine, RankSummary, SIGNED};
use std::cmp::Reverse;
use std::collections::HashSet;

const LISTED: usize = 8;

pub fn device(device: DeviceId) -> String {
    match MemoryKind::of(device) {
        MemoryKind::Device => device.to_string(),
        MemoryKind::Pinned => "pinned".to_owned(),
        MemoryKind::Cpu => "cpu".to_owned(),
    }
}

/// A maximum, marked if it is a bound.
pub fn maximum(rank: &RankSummary, metric: Metric) -> String {
    match rank.bound(metric) {
        Some(Bound::Unknown) => "unknown".to_owned(),
        bound => format!("{}{}", mark(bound), signed(rank.maxima.get(metric))),
    }
}

/// A figure across a group, as cells: the lowest, the middle and the highest value, the highest compared with the middle, and the
/// rank that has it. Values are marked where those of single ranks are bounds.
pub fn spread(report: &RanksReport, group: &Group, figure: Figure, spread: &Spread) -> [String; 5] {
    let bound = |row: usize| match figure {
        Figure::Maximum(metric) => report.rank(row).and_then(|rank| rank.bound(metric)),
        _ => None,
    };
    let all: Vec<Bound> =
        group.members.iter().filter_map(|&row| bound(row)).filter(|&it| it != Bound::Unknown).collect();
    let is_one_kind = all.windows(2).all(|pair| pair[0] == pair[1]);
    let of_all = all.first().map(|&bound| if is_one_kind { bound } else { Bound::Unknown });
    let lowest = if of_all == Some(Bound::Lower) { bound(spread.min.1) } else { of_all };
    let highest = if of_all == Some(Bound::Upper) { bound(spread.max.1) } else { of_all };
    let marked = |bytes: i64, bound: Option<Bound>| format!("{}{}", mark(bound), signed(bytes));
    // A quotient of bounds is no bound.
    let ratio = mark(of_all.map(|_| Bound::Unknown));
    let place = match spread.count > 1 && spread.min.0 == spread.max.0 {
        false => name(report, spread.max.1),
        true if of_all.is_none() => "all equal".to_owned(),
        true => "-".to_owned(),
    };
    [
        marked(spread.min.0, lowest),
        marked(spread.median, of_all),
        marked(spread.max.0, highest),
        spread.skew().map_or_else(|| "-".to_owned(), |skew| format!("{ratio}{skew:.2}x")),
        place,
    ]
}

pub fn inactive(rank: &RankSummary) -> String {
    rank.inactive_share().map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// What a row represents: a rank, or a recording if they are not ranks.
pub fn noun(report: &RanksReport) -> &'static str {
    if report.unrelated { "recording" } else { "rank" }
}

/// Why the rows of a group are not compared as ranks of one run, if they are not.
pub fn relation(report: &RanksReport, group: &Group) -> Option<String> {
    let rows = |rows: &[usize]| named(report, rows);
    Some(match &group.relation {
        Relation::Ranks => return None,
        Relation::Programs(programs) => {
            let listed: Vec<String> = programs.iter().take(LISTED).map(|program| rows(program)).collect();
            let more = if programs.len() > LISTED { "; and more" } else { "" };
            // A list of all rows says nothing.
            let are_single = programs.iter().all(|program| program.len() == 1);
            let listed = if are_single { String::new() } else { format!(" ({}{more})", listed.join("; ")) };
            let known: HashSet<usize> = programs.iter().flatten().copied().collect();
            let unknown: Vec<usize> = group.members.iter().copied().filter(|row| !known.contains(row)).collect();
            let unknown = match unknown.as_slice() {
                [] => String::new(),
                [one] => format!("; {} has too few lines to identify its program", rows(&[*one])),
                unknown => format!("; {} have too few lines to identify their programs", rows(unknown)),
            };
            let compared = match group.relation.comparable(&group.members).len() {
                0 => ", so memviz does not look for outliers".to_owned(),
                ranks => format!("; memviz looks for outliers among the {ranks} that ran the same program"),
            };
            format!(
                "the inputs are recordings of at least {} different programs{listed}, which share hardly any lines that \
                 allocate memory{compared}{unknown}",
                programs.len()
            )
        }
        Relation::Dumps => "these recordings start with the same entry: successive dumps of one process, not ranks of \
                            one run, so memviz does not look for outliers; memviz diff shows what grew"
            .to_owned(),
        Relation::Apart { shortest_gap_us, longest_gap_us } => {
            let gaps = if shortest_gap_us == longest_gap_us {
                notes::duration(*shortest_gap_us)
            } else {
                format!("{} to {}", notes::duration(*shortest_gap_us), notes::duration(*longest_gap_us))
            };
            format!(
                "these recordings were made in succession on the same device, {gaps} apart: separate runs, or dumps of one run, not \
                 ranks that ran together, so memviz does not look for outliers"
            )
        }
    })
}

/// The rank of a row: `rank 5`, with the device if the rank has several rows of that kind.
pub fn name(report: &RanksReport, row: usize) -> String {
    let Some(rank) = report.rank(row) else { return "(no rank)".to_owned() };
    let kind = MemoryKind::of(rank.device);
    let is_same = |other: &RankSummary| other.rank == rank.rank && MemoryKind::of(other.device) == kind;
    let alone = report.ranks().filter(|(_, other)| is_same(other)).nth(1).is_none();
    let (noun, number) = (noun(report), rank.rank);
    if alone { format!("{noun} {number}") } else { format!("device {} of {noun} {number}", device(rank.device)) }
}

/// The names of rows, the first few: `ranks 0, 1 and 2`.
fn named(report: &RanksReport, rows: &[usize]) -> String {
    let noun = format!("{} ", noun(report));
    let mut names: Vec<String> = rows.iter().take(LISTED).map(|&row| name(report, row)).collect();
    let more = rows.len().saturating_sub(LISTED);
    // Names without a device differ in their numbers only.
    if names.len() > 1 && names.iter().all(|name| name.starts_with(&noun)) {
        names.iter_mut().skip(1).for_each(|name| *name = name.replace(&noun, ""));
        names[0] = names[0].replace(&noun, &format!("{}s ", noun.trim_end()));
    }
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { words::listed(&names) }
}

/// The title of a group: `8 ranks`, `16 devices of 8 ranks`, `9 rows of 8 ranks`.
pub fn group(report: &RanksReport, group: &Group) -> String {
    let distinct: HashSet<u64> =
        group.members.iter().filter_map(|&row| report.rank(row)).map(|rank| rank.rank).collect();
    let ranks = count(distinct.len() as u64, noun(report));
    let memory = match group.memory {
        MemoryKind::Device => "",
        MemoryKind::Pinned => ", pinned host memory",
        MemoryKind::Cpu => ", CPU memory",
    };
    if distinct.len() == group.members.len() {
        return format!("{ranks}{memory}");
    }
    // A rank with two devices has two rows, and so has one with two files.
    let row = if report.duplicates.is_empty() { "device" } else { "row" };
    format!("{} of {ranks}{memory}", count(group.members.len() as u64, row))
}

/// A figure's name for people.
pub fn figure(figure: Figure) -> &'static str {
    match figure {
        Figure::Baseline => "at start",
        Figure::Inactive => "inactive at the peak",
        Figure::Outside => "outside PyTorch",
        Figure::Maximum(_) => figure.name(),
    }
}

/// Inputs that were not analyzed and gaps in the numbers, one line each.
pub fn notes(report: &RanksReport) -> Vec<String> {
    let mut notes: Vec<String> = report.groups.iter().filter_map(|group| relation(report, group)).collect();
    let mut note = |number: usize, one: &str, several: &str| {
        if number > 0 {
            notes.push(format!("{} {}", count(number as u64, "input"), if number == 1 { one } else { several }));
        }
    };
    let lines = |is: fn(&RankLine) -> bool| report.lines.iter().filter(|&line| is(line)).count();
    note(lines(|line| matches!(line, RankLine::Failed(_))), "could not be analyzed", "could not be analyzed");
    let empty = "has no memory on any device, and is not counted below";
    note(
        lines(|line| matches!(line, RankLine::Empty(_))),
        empty,
        "have no memory on any device, and are not counted below",
    );
    let skipped = "was skipped: JSON that is neither a recording nor a summary";
    note(
        lines(|line| matches!(line, RankLine::Skipped(_))),
        skipped,
        "were skipped: JSON that is neither a recording nor a summary",
    );
    let rows = |is: &dyn Fn(&RankSummary) -> bool| report.ranks().filter(|(_, rank)| is(rank)).count() as u64;
    let incomplete = rows(&|rank| !rank.complete_history);
    if incomplete > 0 {
        let verb = if incomplete == 1 { "has" } else { "have" };
        notes.push(format!("{} {verb} an incomplete history", count(incomplete, "row")));
    }
    let bounded = rows(&|rank| rank.bound(report.metric).is_some());
    if bounded > 0 {
        let what =
            if bounded == 1 { "maximum is a bound, not an exact value" } else { "maxima are bounds, not exact values" };
        notes.push(format!("{bounded} {} {what}", report.metric.name()));
    }
    let anomalies = rows(&|rank| rank.anomalies > 0);
    if anomalies > 0 {
        let come = if anomalies == 1 {
            "comes from a recording that contradicts itself"
        } else {
            "come from recordings that contradict themselves"
        };
        notes.push(format!("{} {come}; memviz info shows where", count(anomalies, "row")));
    }
    notes.extend(duplicates(report));
    notes.extend(missing(report));
    notes
}

fn duplicates(report: &RanksReport) -> Option<String> {
    let twice = report.duplicates.iter().take(LISTED);
    let listed: Vec<String> =
        twice.map(|it| format!("rank {} on device {} ({} times)", it.rank, device(it.device), it.rows)).collect();
    let more = report.duplicates.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!listed.is_empty()).then(|| format!("present more than once: {}{more}", listed.join(", ")))
}

fn missing(report: &RanksReport) -> Option<String> {
    let total: u128 = report.missing.iter().map(|&(from, to)| u128::from(to) - u128::from(from) + 1).sum();
    let range = |&(from, to): &(u64, u64)| if from == to { from.to_string() } else { format!("{from} to {to}") };
    let listed: Vec<String> = report.missing.iter().take(LISTED).map(range).collect();
    let more = if report.missing.len() > LISTED { " and more" } else { "" };
    let noun = if total == 1 { "rank is" } else { "ranks are" };
    (total > 0).then(|| format!("{total} {noun} missing: {}{more}", listed.join(", ")))
}

/// Why requests with one signature failed.
pub fn failure(failure: &SameFailure) -> String {
    let FailureSignature { cause, requester, holder, size_class_bytes, .. } = &failure.signature;
    let holder = if holder.is_empty() { String::new() } else { format!("; {holder} held the most") };
    let cause = words::cause(cause);
    let (least, most) = (Bytes(size_class_bytes / 2), Bytes(*size_class_bytes));
    format!("{cause}: {requester} requested between {least} and {most}{holder}")
}

/// The ranks on which requests with one signature failed, and the earlier runs, a line for each signature.
pub fn failed_where(report: &RanksReport) -> Vec<String> {
    let before = |failure: &SameFailure, rows: usize| match failure.earlier.len() {
        0 => format!("; new (compared with {})", count(rows as u64, "earlier rank")),
        seen => format!("; seen before: {}", listed(failure.earlier.iter().map(|of| of.path.clone()), seen)),
    };
    let of = |failure: &SameFailure| {
        let names = listed(failure.rows.iter().map(|&(row, _)| name(report, row)), failure.rows.len());
        let before = report.earlier.map(|rows| before(failure, rows)).unwrap_or_default();
        format!("{}: {names}{before}", failure.signature.id)
    };
    report.failures.iter().map(of).collect()
}

fn listed(names: impl Iterator<Item = String>, number: usize) -> String {
    let more = number.saturating_sub(LISTED);
    let names = names.take(LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

/// Number of failed requests without a signature, if there are any.
pub fn unsigned(report: &RanksReport) -> Option<String> {
    let number = report.unsigned();
    (number > 0).then(|| {
        let verb = if number == 1 { "has" } else { "have" };
        format!(
            "{} {verb} no signature: memviz determines signatures only for the first {SIGNED} failed requests of each row",
            count(number, "failed request")
        )
    })
}

pub fn no_outlier(report: &RanksReport) -> String {
    let is_compared = |group: &Group| !group.relation.comparable(&group.members).is_empty();
    if !report.groups.is_empty() && !report.groups.iter().any(is_compared) {
        return "outliers are not reported, because these are not ranks that do the same work in one run".to_owned();
    }
    if report.groups.iter().all(|group| group.members.len() < MIN_RANKS) {
        return format!("at least {MIN_RANKS} ranks are needed to detect an outlier");
    }
    format!("no rank is an outlier: no maximum both has {}", criterion())
}

/// When a maximum is an outlier.
fn criterion() -> String {
    let (usual, equal) = (Scale::MedianDeviation.threshold(), Scale::MeanDeviation.threshold());
    let share = MIN_SHARE * 100.0;
    format!(
        "an outlier score of at least {usual:.1} ({equal:.1} if most ranks are equal) and differs from the median by at \
         least {share:.0}%"
    )
}

pub fn by_row(report: &RanksReport) -> Vec<&[Outlier]> {
    let mut rows: Vec<&[Outlier]> = report.outliers.chunk_by(|a, b| a.row == b.row).collect();
    let farthest = |row: &&[Outlier]| row.iter().map(|outlier| outlier.score.abs()).fold(0.0, f64::max);
    // Positive floats are in the order of their bits.
    rows.sort_rows_by_key(|row| Reverse(farthest(row).to_bits()));
    rows
}

/// The outlier that introduces a row: that of the selected metric, if it is one.
pub fn leading<'o>(report: &RanksReport, row: &'o [Outlier]) -> Option<&'o Outlier> {
    row.iter().find(|outlier| outlier.metric == report.metric).or_else(|| row.first())
}

/// How far an outlier is from the median: `allocated 6.03 GiB, 2.32 GiB (62.8%) above the median of 3.70 GiB`.
pub fn distance(outlier: &Outlier) -> String {
    let (bytes, median) = (signed(outlier.bytes), signed(outlier.median_bytes));
    let delta = i128::from(outlier.bytes) - i128::from(outlier.median_bytes);
    let side = if delta < 0 { "below" } else { "above" };
    let share = match outlier.median_bytes {
        0 => String::new(),
        median => format!(" ({:.1}%)", delta.unsigned_abs() as f64 * 100.0 / (median as f64).abs()),
    };
    format!("{} {bytes}, {}{share} {side} the median of {median}", outlier.metric.name(), magnitude(delta))
}

pub fn scores(report: &RanksReport, row: &[Outlier]) -> Option<String> {
    let leading = leading(report, row)?;
    let because = match leading.scale {
        Scale::MeanDeviation => ", because most ranks are equal",
        _ => "",
    };
    let (score, threshold) = (leading.score, leading.scale.threshold());
    let mut text = format!("outlier score {score:.1} (threshold {threshold:.1}{because})");
    let others: Vec<String> = row
        .iter()
        .filter(|outlier| outlier.metric != leading.metric)
        .map(|outlier| format!("{} {} ({:.1})", outlier.metric.name(), signed(outlier.bytes), outlier.score))
        .collect();
    if !others.is_empty() {
        text += &format!("; also {}", others.join(", "));
    }
    Some(text)
}

/// The meaning of the rows of the difference between the rank in `row` and another.
pub fn difference(report: &RanksReport, row: usize, difference: &Difference) -> String {
    let (rank, reference) = (name(report, row), name(report, difference.reference));
    let metric = report.metric.name();
    format!(
        "what {rank} holds at its peak of {metric} memory, compared with {reference} (nearest to the median), by site"
    )
}

/// Where to find the rows of an outlier without any.
pub fn no_difference(outlier: &Outlier) -> String {
    format!("--metric {0} shows what holds {0} memory", outlier.metric.name())
}

/// A number of bytes with its sign.
pub fn delta(bytes: i128) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", magnitude(bytes))
}

fn magnitude(bytes: i128) -> Bytes {
    Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX))
}

/// The delta of a row, marked if it is a bound.
pub fn row_delta(row: &DifferenceRow) -> String {
    format!("{}{}", mark(row.bound), delta(row.delta_bytes))
}

/// Bytes on one side of a difference; a dash if they are part of the row for the others.
pub fn side(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes(bytes).to_string())
}

/// The cause of bounds, if there are any.
pub fn bounds_note(difference: &Difference) -> Option<&'static str> {
    let any = difference.rows.iter().any(|row| row.bound.is_some());
    any.then_some(
        "a dash means that the summary does not list the site, which may still be counted in the row for other sites; --top lists more",
    )
}
