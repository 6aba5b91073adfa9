//! `memviz export`.

use super::{Run, examples};
use crate::Recording;
use crate::analysis::export::{LivesOptions, SamplesOptions, SamplesReport, TableName, TracksOptions};
use crate::analysis::flame::FlameOptions;
use crate::analysis::peak::PeakOptions;
use crate::cli::args::{CommonArgs, FilterArgs, InferArgs};
use crate::cli::format::ExportFormat;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::{self, Reply, size_of_file, with_recording};
use crate::facts::grouping::Inference;
use crate::facts::time::when::When;
use crate::replay::Metric;
use crate::report::Source;
use crate::report::export::{firefox, parquet, perfetto, pprof, prometheus, speedscope};
use crate::report::flamegraph::folded;
use clap::{Args, ValueEnum};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    /// Also write the N largest blocks of each device to a trace for Perfetto, each from its allocation to its free
    #[arg(long, value_name = "N")]
    blocks: Option<usize>,
    /// Which table to write as Parquet; a folder as output receives all tables [default: allocations]
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
        let folder = self.folder()?;
        let format = if folder.is_some() { ExportFormat::Parquet } else { output::format(&self.common, self.format)? };
        let samples = self.samples()?;
        self.require_meaning(format, &samples)?;
        if let Some(folder) = folder {
            return self.all_tables(folder);
        }
        with_recording(&self.common, |recording| match format {
            ExportFormat::Perfetto => self.tracks(recording, &samples),
            ExportFormat::Firefox => self.lives(recording),
            ExportFormat::Folded => Self::folded(recording, samples),
            ExportFormat::Parquet => self.table(recording, self.table.unwrap_or_default()),
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

    /// The table is written to memory first, since the recording is no longer available when a reply is written.
    fn table(&self, recording: &Recording, table: TableName) -> crate::Result<Reply> {
        let mut bytes = Vec::new();
        self.write_table(recording, table, &mut bytes)?;
        Ok(Reply::new(move |_, out| out.write_all(&bytes)))
    }

    fn write_table(&self, recording: &Recording, table: TableName, out: &mut dyn Write) -> crate::Result<()> {
        let mut writer = parquet::Writer::new(out)?;
        table.of(&recording.devices(), &self.common.devices(), |part| writer.part(&part))??;
        Ok(writer.end()?)
    }

    /// The folder for all tables: an existing one, or a name that ends with a separator.
    fn folder(&self) -> Result<Option<&Path>, Failure> {
        let Some(output) = self.common.output.as_deref() else { return Ok(None) };
        if !output.is_dir() && !output.to_string_lossy().ends_with(std::path::is_separator) {
            return Ok(None);
        }
        let found = match (self.format, self.table) {
            (Some(format), _) if format != ExportFormat::Parquet => Some("another format"),
            (_, Some(_)) => Some("--table"),
            _ => None,
        };
        match found {
            Some(found) => Err(Failure::Message(format!("expected all tables as Parquet for a folder, found {found}"))),
            None => Ok(Some(output)),
        }
    }

    /// Writes every table to a folder.
    fn all_tables(&self, folder: &Path) -> Result<Outcome, Failure> {
        let files: Vec<(TableName, PathBuf)> =
            TableName::ALL.map(|table| (table, folder.join(format!("{}.parquet", table.name())))).to_vec();
        if let Some((_, file)) = files.iter().find(|(_, file)| !self.common.force && file.exists()) {
            return Err(Failure::Message(format!("{} already exists; --force overwrites it", file.display())));
        }
        recording::use_threads(&self.common);
        let path = self.common.path();
        let progress = Progress::start(size_of_file(&self.common.input), 1, self.common.quiet);
        let recording =
            recording::open(&self.common.input, &self.common, self.common.view_of_one(), progress.bytes.first());
        let recording = recording.map_err(|error| Failure::about(&path, &error))?;
        drop(progress);
        let tables: Vec<(PathBuf, Vec<u8>)> = files
            .into_iter()
            .map(|(table, file)| {
                let mut bytes = Vec::new();
                self.write_table(&recording, table, &mut bytes).map_err(|error| Failure::about(&path, &error))?;
                Ok((file, bytes))
            })
            .collect::<Result<_, Failure>>()?;
        fs::create_dir_all(folder).map_err(|error| Failure::Message(format!("{}: {error}", folder.display())))?;
        for (file, bytes) in tables {
            output::write_file(&self.common, &file, |out| out.write_all(&bytes))?;
        }
        let contradicts = self.common.strict && recording.anomalies() > 0;
        Ok(if contradicts { Outcome::CheckFailed } else { Outcome::Done })
    }

    /// Refuses options that have no meaning for a format.
    fn require_meaning(&self, format: ExportFormat, samples: &SamplesOptions) -> Result<(), Failure> {
        let (is_parquet, is_firefox) = (format == ExportFormat::Parquet, format == ExportFormat::Firefox);
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
            let found = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            return Err(Failure::Message(format!("expected --format pprof for {flag}, found {found}")));
        }
        if self.blocks.is_some() && format != ExportFormat::Perfetto {
            return Err(Failure::Message("expected --format perfetto for --blocks".to_owned()));
        }
        if self.table.is_some() && !is_parquet {
            return Err(Failure::Message("expected --format parquet for --table".to_owned()));
        }
        Ok(())
    }
}
