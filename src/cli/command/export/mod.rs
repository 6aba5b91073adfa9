//! `memviz export`.

#[cfg(feature = "parquet")]
mod tables;

use super::{Run, examples};
use crate::Recording;
#[cfg(feature = "firefox")]
use crate::analysis::export::LivesOptions;
#[cfg(feature = "parquet")]
use crate::analysis::export::TableName;
#[cfg(feature = "perfetto")]
use crate::analysis::export::TracksOptions;
use crate::analysis::export::{SamplesOptions, SamplesReport};
use crate::analysis::flame::FlameOptions;
use crate::analysis::peak::PeakOptions;
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs};
use crate::cli::format::ExportFormat;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::facts::grouping::Inference;
use crate::facts::time::when::When;
use crate::replay::Metric;
use crate::report::Source;
#[cfg(feature = "firefox")]
use crate::report::export::firefox;
#[cfg(feature = "perfetto")]
use crate::report::export::perfetto;
#[cfg(feature = "pprof")]
use crate::report::export::pprof;
use crate::report::export::prometheus;
#[cfg(feature = "speedscope")]
use crate::report::export::speedscope;
use crate::report::flamegraph::folded;
use clap::{Args, ValueEnum};
use std::io::{self, Write};

/// Writes samples in a format.
type WriteSamples = fn(Source<'_>, &SamplesReport, &mut dyn Write) -> io::Result<()>;

/// Write a file for another program: pprof, Perfetto, databases, speedscope, Firefox
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz export snapshot.pickle -o peak.pb.gz", "memory by stack, for go tool pprof"),
    ("memviz export snapshot.pickle -o tables/", "Parquet tables, for DuckDB"),
]))]
pub struct Export {
    /// Instant to show instead of the peak: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Write only the part from this instant on, and search for the peak there
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Write only the part up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Which counter's peak to find, and whose bytes to count [default: allocated]
    #[arg(long, value_enum)]
    metric: Option<Metric>,
    /// Output format [default: from the output file's extension]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Also write the N largest blocks of each device to a trace for Perfetto, each from its allocation to its free
    #[cfg(feature = "perfetto")]
    #[arg(long, value_name = "N")]
    blocks: Option<usize>,
    /// Which table to write as Parquet; an output folder receives all tables [default: allocations]
    #[cfg(feature = "parquet")]
    #[arg(long, value_enum)]
    table: Option<TableName>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    infer: InferArgs,
    /// Keep pass-through frames, such as `_call_impl`, and C++ frames
    #[arg(long)]
    all_frames: bool,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Export {
    fn run(&self) -> Result<Outcome, Failure> {
        let samples = self.samples()?;
        #[cfg(feature = "parquet")]
        if let Some(folder) = self.folder()? {
            self.require_meaning(ExportFormat::Parquet, &samples)?;
            return self.all_tables(folder);
        }
        let format = output::format(&self.common, self.format)?;
        self.require_meaning(format, &samples)?;
        with_recording(&self.common, |recording| match format {
            #[cfg(feature = "perfetto")]
            ExportFormat::Perfetto => self.tracks(recording, &samples),
            #[cfg(feature = "firefox")]
            ExportFormat::Firefox => self.lives(recording),
            ExportFormat::Folded => Self::folded(recording, samples),
            #[cfg(feature = "parquet")]
            ExportFormat::Parquet => self.table(recording, self.table.unwrap_or_default()),
            #[cfg(feature = "pprof")]
            ExportFormat::Pprof => Self::samples_in(recording, &samples, pprof::write),
            #[cfg(feature = "speedscope")]
            ExportFormat::Speedscope => Self::samples_in(recording, &samples, speedscope::write),
            ExportFormat::Prometheus => Self::samples_in(recording, &samples, prometheus::write),
        })
    }
}

impl Export {
    fn samples(&self) -> Result<SamplesOptions, Failure> {
        let peak = PeakOptions {
            metric: self.metric.unwrap_or_default(),
            at: self.at.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            filter: self.filter.compile()?,
            inference: (&self.infer).into(),
            devices: self.common.devices(),
            ..PeakOptions::default()
        };
        Ok(SamplesOptions { peak, all_frames: self.all_frames })
    }

    fn samples_in(recording: &Recording, options: &SamplesOptions, write: WriteSamples) -> crate::Result<Reply> {
        let mut report = recording.samples(options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::new(move |source, out| write(source, &report, out)).warning(skipped))
    }

    #[cfg(feature = "perfetto")]
    fn tracks(&self, recording: &Recording, samples: &SamplesOptions) -> crate::Result<Reply> {
        let options = TracksOptions::default()
            .from(self.from.clone())
            .to(self.to.clone())
            .blocks(self.blocks.unwrap_or(0))
            .devices(self.common.devices());
        let mut report = recording.tracks(&options)?;
        let mut skipped = std::mem::take(&mut report.skipped);
        let mut samples = recording.samples(samples)?;
        let more = std::mem::take(&mut samples.skipped);
        skipped.extend(more.into_iter().filter(|line| !skipped.contains(line)).collect::<Vec<_>>());
        Ok(Reply::new(move |source, out| perfetto::write(source, &report, &samples, out)).warning(skipped))
    }

    #[cfg(feature = "firefox")]
    fn lives(&self, recording: &Recording) -> crate::Result<Reply> {
        let options = LivesOptions::default()
            .inference((&self.infer).into())
            .all_frames(self.all_frames)
            .devices(self.common.devices());
        let mut report = recording.lives(&options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::new(move |source, out| firefox::write(source, &report, out)).warning(skipped))
    }

    fn folded(recording: &Recording, samples: SamplesOptions) -> crate::Result<Reply> {
        let SamplesOptions { peak, all_frames } = samples;
        let mut report = recording.flame(&FlameOptions { peak, all_frames, split: None })?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::new(move |_, out| folded::write(&report, out)).warning(skipped))
    }

    /// Refuses what means nothing in a format.
    fn require_meaning(&self, format: ExportFormat, samples: &SamplesOptions) -> Result<(), Failure> {
        let name = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let (is_parquet, is_firefox) = (name == "parquet", name == "firefox");
        let has_instant = !is_parquet && !is_firefox;
        let given = [
            ("--at", self.at.is_some() && !has_instant),
            ("--metric", self.metric.is_some() && !has_instant),
            ("--include or --exclude", !samples.peak.filter.is_empty() && !has_instant),
            ("--from or --to", (self.from.is_some() || self.to.is_some()) && (is_parquet || is_firefox)),
            ("--no-infer", samples.peak.inference == Inference::Off && is_parquet),
            ("--all-frames", self.all_frames && is_parquet),
        ];
        if let Some((flag, _)) = given.into_iter().find(|(_, is_wrong)| *is_wrong) {
            return Err(Failure::Message(format!("expected a format that takes {flag}, such as pprof, found {name}")));
        }
        #[cfg(feature = "perfetto")]
        if self.blocks.is_some() && format != ExportFormat::Perfetto {
            return Err(Failure::Message("expected --format perfetto for --blocks".to_owned()));
        }
        #[cfg(feature = "parquet")]
        if self.table.is_some() && !is_parquet {
            return Err(Failure::Message("expected --format parquet for --table".to_owned()));
        }
        Ok(())
    }
}
