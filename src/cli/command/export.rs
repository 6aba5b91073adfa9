//! `memviz export`.

use super::{Run, examples};
use crate::Recording;
use crate::analysis::export::{SamplesOptions, SamplesReport, TracksOptions};
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
use crate::report::export::{perfetto, pprof, prometheus, speedscope};
use clap::Args;
use std::io::{self, Write};

/// Writes samples in a format.
type WriteSamples = fn(Source<'_>, &SamplesReport, &mut dyn Write) -> io::Result<()>;

/// Write a file for another program: pprof, Perfetto, speedscope, Prometheus
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz export snapshot.pickle -o peak.pb.gz", "memory by stack, for go tool pprof"),
    ("memviz export snapshot.pickle -o run.perfetto-trace", "counters over time, for ui.perfetto.dev"),
]))]
pub struct Export {
    /// Instant to show instead of the peak: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Write what happens from this instant on, and search for the peak there
    #[arg(long, value_name = "WHEN")]
    from: Option<When>,
    /// Write what happens up to this instant
    #[arg(long, value_name = "WHEN")]
    to: Option<When>,
    /// Which counter's peak to find, and whose bytes to count [default: allocated]
    #[arg(long, value_enum)]
    metric: Option<Metric>,
    /// Output format [default: from the output file's extension]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
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
        let format = output::format(&self.common, self.format)?;
        let samples = self.samples()?;
        if format == ExportFormat::Perfetto {
            self.require_no_stacks(&samples)?;
        }
        with_recording(&self.common, |recording| match format {
            ExportFormat::Perfetto => self.tracks(recording),
            ExportFormat::Pprof => Self::samples_in(recording, &samples, pprof::write),
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

    fn tracks(&self, recording: &Recording) -> crate::Result<Reply> {
        let options = TracksOptions { from: self.from.clone(), to: self.to.clone(), devices: self.common.devices() };
        let mut report = recording.tracks(&options)?;
        let skipped = std::mem::take(&mut report.skipped);
        Ok(Reply::new(move |source, out| perfetto::write(source, &report, out)).warning(skipped))
    }

    /// Refuses what means nothing in a trace of counters.
    fn require_no_stacks(&self, samples: &SamplesOptions) -> Result<(), Failure> {
        let given = [
            ("--at", self.at.is_some()),
            ("--metric", self.metric.is_some()),
            ("--include or --exclude", !samples.peak.filter.is_empty()),
            ("--no-infer", samples.peak.inference == Inference::Off),
            ("--all-frames", self.all_frames),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(Failure::Message(format!("expected --format pprof for {flag}, found perfetto"))),
            None => Ok(()),
        }
    }
}
