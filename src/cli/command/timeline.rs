//! `memviz timeline`.

use super::{Run, examples};
#[cfg(feature = "parquet")]
use crate::analysis::export::of_curve;
use crate::analysis::peak::PeakOptions;
use crate::analysis::peak::each::{Each, EachOptions};
use crate::analysis::timeline::{CurveOptions, TimelineOptions, XAxis};
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs};
use crate::cli::format::TimelineFormat;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_view};
use crate::facts::grouping::GroupBy;
use crate::facts::time::when::When;
use crate::replay::Metric;
#[cfg(feature = "parquet")]
use crate::report::export::parquet;
use crate::report::{PictureFormat, plot_columns, timeline};
use clap::{Args, ValueEnum};

/// Draw memory over time, stacked by what holds it
///
/// `-o NAME.csv`, `.json` or `.parquet` writes the curve as data: a row for each group at each point.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz timeline snapshot.pickle -o timeline.svg --open", "the curve by line of code"),
    ("memviz timeline snapshot.pickle --by category -o curve.csv", "by category, as data"),
]))]
pub struct Timeline {
    /// What to group bands by
    #[arg(long, value_enum, default_value_t = GroupBy::Site)]
    by: GroupBy,
    /// Number of bands, at most 40; the rest are merged into one band per category, in data into one group
    ///
    /// The default is 10 in pictures, and 40 in data.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=40))]
    top: Option<u8>,
    /// What the x axis shows [default: time]
    #[arg(long, value_enum)]
    x: Option<XAxis>,
    /// Add a band for reserved but inactive memory
    #[arg(long)]
    inactive: bool,
    /// Mark the peak of each step, phase or annotation: step, phase, annotation or annotation:REGEX
    #[arg(long, value_name = "WHAT")]
    each: Option<Each>,
    /// Draw from this instant on: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Draw up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// The most points of each device in data: the highest instant of each of N equal parts of the history [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    points: Option<u32>,
    /// Which counter to draw
    #[arg(long, value_enum, default_value_t = Metric::Allocated)]
    metric: Metric,
    /// Output format [default: from the output file's extension, else svg]
    #[arg(long, value_enum)]
    format: Option<TimelineFormat>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Bands of a picture, and groups of data.
const BANDS: u8 = 10;
const GROUPS: u8 = 40;

impl Run for Timeline {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        self.require_meaning(format)?;
        match format {
            TimelineFormat::Picture(format) => self.draw(format),
            format => self.tell(format),
        }
    }
}

impl Timeline {
    fn draw(&self, format: PictureFormat) -> Result<Outcome, Failure> {
        let (peak, axis) = (self.peak(BANDS)?, self.x.unwrap_or_default());
        with_view(&self.common, self.common.view_by(self.by)?, |recording| {
            let devices = if peak.devices.is_empty() { recording.histories.len() } else { peak.devices.len() };
            let columns = plot_columns(devices);
            let mut report = recording.timeline(&TimelineOptions { peak, axis, columns, inactive: self.inactive })?;
            let skipped = std::mem::take(&mut report.skipped);
            Ok(Reply::new(move |source, out| timeline::draw(source, &report).write_as(format, out)).warning(skipped))
        })
    }

    fn tell(&self, format: TimelineFormat) -> Result<Outcome, Failure> {
        let mut options = CurveOptions::default().peak(self.peak(GROUPS)?);
        options.points = self.points.map_or(options.points, |points| points as usize);
        with_view(&self.common, self.common.view_by(self.by)?, |recording| {
            let mut report = recording.curve(&options)?;
            let skipped = std::mem::take(&mut report.skipped);
            let write = Reply::new(move |source, out| match format {
                #[cfg(feature = "parquet")]
                TimelineFormat::Parquet => {
                    let mut file = parquet::Writer::new(out)?;
                    report.devices.iter().try_for_each(|device| file.part(&of_curve(device)))?;
                    file.end()
                }
                TimelineFormat::Json => timeline::json::write(source, &report, out),
                TimelineFormat::JsonAndCsv => timeline::json::with_table(source, &report, out),
                _ => timeline::csv::write(&report, out),
            });
            Ok(write.warning(skipped))
        })
    }

    fn peak(&self, top: u8) -> Result<PeakOptions, Failure> {
        Ok(PeakOptions {
            metric: self.metric,
            by: self.by,
            from: self.from.clone(),
            to: self.to.clone(),
            top: Some(usize::from(self.top.unwrap_or(top))),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            each: self.each.clone().map(|each| EachOptions { each, top: 1 }),
            ..PeakOptions::default()
        })
    }

    /// Refuses what means nothing in a format.
    fn require_meaning(&self, format: TimelineFormat) -> Result<(), Failure> {
        let is_picture = matches!(format, TimelineFormat::Picture(_));
        let given = [
            ("data, such as csv, for --points", self.points.is_some() && is_picture),
            ("a picture for --x: rows have the time and the entry", self.x.is_some() && !is_picture),
            ("a picture for --inactive: rows have all counters", self.inactive && !is_picture),
            ("a picture for --each: peak --each writes rows", self.each.is_some() && !is_picture),
        ];
        let Some((expected, _)) = given.into_iter().find(|(_, is_wrong)| *is_wrong) else { return Ok(()) };
        let name = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        Err(Failure::Message(format!("expected {expected}; found {name}")))
    }
}
