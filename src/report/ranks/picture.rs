//! `memviz ranks -o`: a bar for each rank with outliers marked, and the memory that they hold and the median rank does not.

use super::words;
use crate::analysis::ranks::RanksReport;
use crate::analysis::ranks::{Difference, Figure, Group as Ranks, Outlier, Spread};
use crate::replay::Metric;
use crate::report::common::fit::shorten_end;
use crate::report::common::notes::signed;
use crate::report::common::picture::chart::{self, Area, Axis, Unit};
use crate::report::common::picture::palette::{self, Color};
use crate::report::common::picture::shape::{Anchor, px, rectangle, text, titled};
use crate::report::common::picture::titles::shown;
use crate::report::common::picture::{Cell, Picture, Script, caption, remark, stacked, table, warnings};
use crate::report::common::words::{count, starred};
use crate::wire::ranks::RankSummary;
use std::collections::HashSet;
use std::fmt::Write as _;
use svg::node::Blob;
use svg::node::element::{Group, Line as SvgLine, Path};

/// The plot, in pixels.
const LEFT: u32 = 84;
const PLOT_WIDTH: u32 = 790;
const PLOT_HEIGHT: u32 = 280;
/// The most columns of bars. More ranks share columns.
const COLUMNS: usize = PLOT_WIDTH as usize / 2;
/// Up to this many ranks each bar has a tooltip.
const WITH_TOOLTIPS: usize = 128;
/// From this width on, in pixels, bars have room between them.
const GAP_FROM: f64 = 4.0;
/// Half the height of a label of the axis.
const LABEL: u32 = 8;
/// Widest bar, in pixels.
const WIDEST: f64 = 90.0;
/// Room for names of ranks above the plot and for a name.
const NAMES: f64 = 18.0;
const NAME_WIDTH: f64 = 124.0;
const NAME_LENGTH: usize = 18;
/// The most numbers of ranks below the plot.
const TICKS: usize = 24;
/// Number of outliers that are shown in full, and rows of each.
const DETAILED: usize = 3;
const ROWS: usize = 12;

/// The metric's maxima, with reserved memory in the background.
const MAXIMUM: Color = palette::FIGURE;
const OUTLIER: Color = palette::TEXT;
const RESERVED: Color = palette::GRID;

/// All kinds of memory below each other.
pub fn draw(report: &RanksReport) -> Picture {
    let title = format!("Memory by {}", words::noun(report));
    let title = text(16.0, 28.0, Anchor::Start, palette::TEXT, &title).set("font-size", 16).set("font-weight", 600);
    let (body, height) = warnings(Group::new().add(title), 32.0, &words::notes(report));
    let mut parts = vec![Picture { height: height + 8.0, body }];
    for group in &report.groups {
        parts.push(bars(report, group));
        parts.push(spreads(report, group));
    }
    let outliers = words::by_row(report);
    if outliers.is_empty() {
        parts.push(remark(&words::no_outlier(report)));
    }
    for row in outliers.iter().take(DETAILED) {
        parts.extend(outlier(report, row));
    }
    let more = outliers.len().saturating_sub(DETAILED);
    if more > 0 {
        parts.push(remark(&format!("{} not shown: --format json lists all", count(more as u64, "outlier"))));
    }
    stacked(parts)
}

/// One or several ranks, side by side in the plot.
struct Column {
    left: f64,
    width: f64,
    lowest: i64,
    highest: i64,
    reserved: i64,
    stands_out: bool,
}

struct Bars<'r> {
    report: &'r RanksReport,
    members: Vec<(usize, &'r RankSummary)>,
    columns: Vec<Column>,
    y: Axis,
}

impl<'r> Bars<'r> {
    fn of(report: &'r RanksReport, group: &Ranks) -> Self {
        let members: Vec<_> = group.members.iter().filter_map(|&row| Some((row, report.rank(row)?))).collect();
        let number = members.len().clamp(1, COLUMNS);
        let slot = f64::from(PLOT_WIDTH) / number as f64;
        let gap = if slot >= GAP_FROM { (slot * 0.2).min(12.0) } else { 0.0 };
        let width = (slot - gap).min(WIDEST);
        let of_metric = |outlier: &&Outlier| outlier.metric == report.metric;
        let outlying: HashSet<usize> = report.outliers.iter().filter(of_metric).map(|outlier| outlier.row).collect();
        let column = |column: usize| {
            let first = column * members.len() / number;
            let last = (column + 1) * members.len() / number;
            let ranks = &members[first..last.max(first)];
            let maxima = ranks.iter().map(|(_, rank)| rank.maxima.get(report.metric));
            Column {
                left: f64::from(LEFT) + slot * column as f64 + (slot - width) / 2.0,
                width,
                lowest: maxima.clone().min().unwrap_or(0),
                highest: maxima.max().unwrap_or(0),
                reserved: ranks.iter().map(|(_, rank)| rank.maxima.reserved).max().unwrap_or(0),
                stands_out: ranks.iter().any(|(row, _)| outlying.contains(row)),
            }
        };
        let columns: Vec<Column> = (0..number).map(column).collect();
        let highest = columns.iter().map(|column| column.highest.max(column.reserved)).max().unwrap_or(0).max(1) as f64;
        let y = Axis { first: 0.0, last: highest * 1.04, unit: Unit::of_bytes(highest), labels: 8 };
        Self { report, members, columns, y }
    }

    fn y(&self, bytes: i64) -> f64 {
        f64::from(PLOT_HEIGHT) * (1.0 - (bytes as f64 / self.y.last).clamp(0.0, 1.0))
    }

    fn middle(&self, member: usize) -> f64 {
        let number = self.columns.len();
        let column = ((member + 1) * number).div_ceil(self.members.len().max(1)).saturating_sub(1).min(number - 1);
        self.columns.get(column).map_or(f64::from(LEFT), |column| column.left + column.width / 2.0)
    }

    /// Whether a rank has several bars, so that their numbers also name the device.
    fn names_devices(&self) -> bool {
        let distinct: HashSet<u64> = self.members.iter().map(|(_, rank)| rank.rank).collect();
        distinct.len() < self.members.len()
    }

    fn is_merged(&self) -> bool {
        self.members.len() > self.columns.len()
    }

    /// Rectangles of one color: those of the columns from one height to another.
    fn path(&self, color: Color, extent: impl Fn(&Column) -> Option<(i64, i64)>) -> Option<Path> {
        let mut data = String::new();
        for column in &self.columns {
            let Some((from, to)) = extent(column) else { continue };
            let (top, bottom) = (self.y(to), self.y(from));
            if bottom - top > 0.04 {
                let (left, width) = (px(column.left), px(column.width));
                let _ = write!(data, "M{left} {}h{width}V{}h-{width}z", px(top), px(bottom));
            }
        }
        (!data.is_empty()).then(|| Path::new().set("d", data).set("fill", color.light))
    }

    fn draw(&self) -> Group {
        let mut plot = Group::new();
        let reserved = self.path(RESERVED, |column| Some((0, column.reserved)));
        let usual = self.path(MAXIMUM, |column| Some((0, column.lowest)));
        let range = self.path(MAXIMUM, |column| Some((column.lowest, column.highest)));
        let outlying = self.path(OUTLIER, |column| {
            let from = if self.is_merged() { column.lowest } else { 0 };
            column.stands_out.then_some((from, column.highest))
        });
        if self.report.metric != Metric::Reserved {
            plot = reserved.into_iter().fold(plot, Group::add);
        }
        plot = usual.into_iter().fold(plot, Group::add);
        plot = range.into_iter().map(|range| range.set("fill-opacity", "0.5")).fold(plot, Group::add);
        plot = outlying.into_iter().fold(plot, Group::add);
        if self.members.len() <= WITH_TOOLTIPS {
            plot = self.tooltips(plot);
        }
        plot
    }

    fn tooltips(&self, mut plot: Group) -> Group {
        for (column, (_, rank)) in self.columns.iter().zip(&self.members) {
            let maxima = Metric::ALL.map(|metric| format!("{} {}", metric.name(), words::maximum(rank, metric)));
            let noun = words::noun(self.report);
            let title = format!("{noun} {}, device {}\n{}\n{}", rank.rank, rank.device, maxima.join(", "), rank.path);
            let area = rectangle(column.left, 0.0, column.width, f64::from(PLOT_HEIGHT), palette::BACKGROUND);
            plot = plot.add(titled(&title).add(area.set("fill-opacity", "0")));
        }
        plot
    }

    /// Numbers below the bars, as many as there is room for.
    fn ticks(&self, mut plot: Group) -> Group {
        let every = round_step(self.members.len().div_ceil(TICKS));
        let names_devices = self.names_devices();
        for (index, (_, rank)) in self.members.iter().enumerate().step_by(every) {
            let (number, device) = (rank.rank.to_string(), words::device(rank.device));
            let label = if names_devices { format!("{number}:{device}") } else { number };
            let y = f64::from(PLOT_HEIGHT) + 16.0;
            let tick = text(self.middle(index), y, Anchor::Middle, palette::MUTED, &shorten_end(&label, 7));
            plot = plot.add(tick);
        }
        plot
    }

    /// Names above the bars of outliers, the most distant first; those without room are left out.
    fn names(&self, mut plot: Group) -> Group {
        let mut taken: Vec<f64> = Vec::new();
        for row in words::by_row(self.report) {
            let Some(outlier) = row.iter().find(|outlier| outlier.metric == self.report.metric) else { continue };
            let Some(member) = self.members.iter().position(|&(row, _)| row == outlier.row) else { continue };
            let half = NAME_WIDTH / 2.0;
            let middle = self.middle(member).clamp(f64::from(LEFT) + half, f64::from(LEFT + PLOT_WIDTH) - half);
            if taken.iter().all(|other| (other - middle).abs() >= NAME_WIDTH) {
                let name = shorten_end(&words::name(self.report, outlier.row), NAME_LENGTH);
                plot = plot.add(text(middle, -6.0, Anchor::Middle, OUTLIER, &name).set("font-weight", 600));
                taken.push(middle);
            }
        }
        plot
    }

    fn median(&self, plot: Group, bytes: i64) -> Group {
        let y = px(self.y(bytes));
        let line = SvgLine::new().set("x1", LEFT).set("x2", LEFT + PLOT_WIDTH).set("y1", y.as_str()).set("y2", y);
        plot.add(line.set("stroke", palette::TEXT.light).set("stroke-dasharray", "5 4"))
    }
}

/// The next of 1, 2, 5, 10, 20, 50...
fn round_step(least: usize) -> usize {
    let mut power: usize = 1;
    loop {
        match [1, 2, 5].map(|step| step * power).into_iter().find(|&step| step >= least) {
            Some(step) => return step,
            None => power = power.saturating_mul(10),
        }
    }
}

fn bars(report: &RanksReport, group: &Ranks) -> Picture {
    let bars = Bars::of(report, group);
    let title = format!("Maximum {} across {}", report.metric.name(), words::group(report, group));
    let title = text(16.0, 20.0, Anchor::Start, palette::TEXT, &title).set("font-weight", 600).set("font-size", 14);
    let median = group.spreads.iter().find(|(figure, _)| *figure == Figure::Maximum(report.metric));
    let median = median.map(|(_, spread)| spread.median);
    let mut body = Group::new().add(title).add(legend(&bars, median).set("transform", "translate(0 42)"));
    let top = 42.0 + 16.0 + NAMES;
    // The axis starts slightly higher than the plot, where its uppermost label ends.
    let area = Area { left: LEFT, top: LABEL, width: PLOT_WIDTH, height: PLOT_HEIGHT };
    let x = Axis { first: 0.0, last: 1.0, unit: Unit::ENTRIES, labels: 0 };
    let mut plot = Group::new().set("transform", format!("translate(0 {})", px(top)));
    let axes = Group::new().set("transform", format!("translate(0 -{LABEL})"));
    let noun = words::noun(report);
    let title = if bars.names_devices() { format!("{noun}:device") } else { noun.to_owned() };
    plot = plot.add(axes.add(Blob::new(chart::draw(area, x, bars.y, &title, &[]))));
    plot = plot.add(bars.draw());
    if let Some(median) = median {
        plot = bars.median(plot, median);
    }
    plot = bars.names(bars.ticks(plot));
    body = body.add(plot);
    Picture { height: top + f64::from(PLOT_HEIGHT + chart::BELOW) + 12.0, body }
}

fn legend(bars: &Bars<'_>, median: Option<i64>) -> Group {
    const SWATCH: f64 = 11.0;
    const CHARACTER: f64 = 6.6;
    let metric = bars.report.metric.name();
    let mut entries = Vec::new();
    if bars.is_merged() {
        let each = bars.members.len().div_ceil(bars.columns.len());
        entries.push((Some((MAXIMUM, 1.0)), format!("{metric}, lowest of the ranks in a column (up to {each})")));
        entries.push((Some((MAXIMUM, 0.5)), "lowest to highest".to_owned()));
    } else {
        entries.push((Some((MAXIMUM, 1.0)), metric.to_owned()));
    }
    if bars.columns.iter().any(|column| column.stands_out) {
        let what = if bars.is_merged() { "contains an outlier" } else { "outlier" };
        entries.push((Some((OUTLIER, 1.0)), what.to_owned()));
    }
    if bars.report.metric != Metric::Reserved {
        entries.push((Some((RESERVED, 1.0)), "reserved".to_owned()));
    }
    entries.extend(median.map(|median| (None, format!("- - median {}", signed(median)))));
    let mut x = f64::from(LEFT);
    let mut legend = Group::new();
    for (swatch, label) in entries {
        if let Some((color, opacity)) = swatch {
            let mut square = rectangle(x, -10.0, SWATCH, SWATCH, color);
            if opacity < 1.0 {
                square = square.set("fill-opacity", opacity);
            }
            legend = legend.add(square);
            x += SWATCH + 5.0;
        }
        legend = legend.add(text(x, 0.0, Anchor::Start, palette::TEXT, &label));
        x += label.chars().count() as f64 * CHARACTER + 18.0;
    }
    legend
}

fn spreads(report: &RanksReport, group: &Ranks) -> Picture {
    let row = |(figure, spread): &(Figure, Spread)| {
        let [min, median, max, skew, place] = words::spread(report, group, *figure, spread);
        let name = Cell::Text(words::figure(*figure).to_owned());
        let numbers = [min, median, max, skew].map(Cell::Number);
        std::iter::once(name).chain(numbers).chain([Cell::Text(place)]).collect::<Vec<_>>()
    };
    let rows: Vec<_> = group.spreads.iter().map(row).collect();
    table(&["maximum", "lowest", "median", "highest", "highest / median", "highest is"], &rows)
}

fn outlier(report: &RanksReport, row: &[Outlier]) -> Vec<Picture> {
    let Some(outlier) = words::leading(report, row) else { return Vec::new() };
    let title = format!("Outlier {}: {}", words::name(report, outlier.row), words::distance(outlier));
    let mut parts = vec![caption(&title)];
    let path = report.rank(outlier.row).map(|rank| shown(&[rank.path.as_str()]).concat());
    for line in words::scores(report, row).into_iter().chain(path) {
        parts.extend(Script::Body.lines(&line).iter().map(|line| line_of_text(line)));
    }
    match &outlier.difference {
        Some(difference) => parts.extend(rows(report, outlier.row, difference)),
        None => parts.push(remark(&words::no_difference(outlier))),
    }
    parts
}

fn line_of_text(line: &str) -> Picture {
    Picture { height: 17.0, body: Group::new().add(text(16.0, 10.0, Anchor::Start, palette::MUTED, line)) }
}

fn rows(report: &RanksReport, rank: usize, difference: &Difference) -> [Picture; 2] {
    let largest = difference.rows.iter().map(|row| row.delta_bytes.unsigned_abs()).max().unwrap_or(0).max(1) as f64;
    let shown = difference.rows.len().min(ROWS);
    let mut cells: Vec<_> = difference.rows[..shown]
        .iter()
        .map(|row| {
            vec![
                Cell::Number(words::row_delta(row)),
                Cell::Bar(row.delta_bytes.unsigned_abs() as f64 / largest),
                Cell::Number(words::side(row.bytes)),
                Cell::Number(words::side(row.reference_bytes)),
                Cell::Code(starred(&row.label, row.inferred)),
            ]
        })
        .collect();
    let last = |delta: i128, label: String| {
        let empty = || Cell::Number(String::new());
        vec![Cell::Number(words::delta(delta)), Cell::Text(String::new()), empty(), empty(), Cell::Text(label)]
    };
    let rest = &difference.rows[shown..];
    if !rest.is_empty() {
        let label = count(rest.len() as u64, "more row");
        cells.push(last(rest.iter().map(|row| row.delta_bytes).sum(), label));
    }
    cells.push(last(difference.delta_bytes, "total".to_owned()));
    let name = |row: usize| report.rank(row).map_or_else(String::new, |rank| format!("rank {}", rank.rank));
    let table = table(&["delta", "", &name(rank), &name(difference.reference), "site"], &cells);
    let star = if difference.rows[..shown].iter().any(|row| row.inferred) { " (* inferred)" } else { "" };
    [remark(&format!("{}{star}", words::difference(report, rank, difference))), table]
}
