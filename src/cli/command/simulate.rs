//! `memviz simulate`.

use super::{Run, examples};
use crate::analysis::simulate::SimulateOptions;
use crate::cli::args::{CommonArgs, only_snapshots};
use crate::cli::changes::ChangeArgs;
use crate::cli::device_memory::DeviceMemoryArgs;
use crate::cli::format::RowsOrPicture;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::input::alloc_conf::{Rest, parse, rest_of};
use crate::model::HOST_DEVICE;
use crate::model::bytes::Bytes;
use crate::report::simulate;
use crate::simulation::Trust;
use crate::simulation::changes::Change;
use clap::Args;

/// Predict memory use with other settings, a changed program, or another device
///
/// memviz simulates the recorded requests in a model of the allocator. `-o NAME.svg` draws the memory that the program needs
/// and reserves with each setting.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz simulate snapshot.pickle --sweep", "compare settings"),
    ("memviz simulate snapshot.pickle --capacity 24GiB --optimizer adam8bit", "on another GPU"),
]))]
#[command(mut_arg("input", only_snapshots))]
pub struct Simulate {
    /// Settings to simulate, such as `expandable_segments:True`; may be repeated
    ///
    /// The syntax is that of `PYTORCH_CUDA_ALLOC_CONF`.
    #[arg(long, value_name = "CONF")]
    alloc_conf: Vec<String>,
    /// Simulate all settings worth trying, and sort them by the memory they need
    #[arg(long)]
    sweep: bool,
    #[command(flatten)]
    memory: DeviceMemoryArgs,
    /// Memory that CUDA itself uses [default: from an oom entry, else 500MiB]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_device)]
    context: Option<Bytes>,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrPicture>,
    #[command(flatten)]
    changes: ChangeArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Simulate {
    fn run(&self) -> Result<Outcome, Failure> {
        // Report mistakes before reading a large file.
        for text in &self.alloc_conf {
            parse(text, Rest::default()).map_err(|error| Failure::Message(format!("--alloc-conf: {error}")))?;
        }
        let changes = self.changes.changes();
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        with_recording(&self.common, |recording| {
            let rest = rest_of(&recording.snapshot.settings);
            // A picture compares settings: if none is named, those worth trying.
            let is_picture = matches!(format, RowsOrPicture::Picture(_));
            let options = SimulateOptions {
                changes: changes.clone(),
                settings: self.alloc_conf.iter().filter_map(|text| parse(text, rest).ok()).collect(),
                sweep: self.sweep || is_picture && self.alloc_conf.is_empty() && changes.is_empty(),
                capacity: self.memory.total(),
                context: self.context.map(|context| context.0),
                devices: self.common.devices(),
            };
            let mut report = recording.simulate(&options)?;
            if let Some(rehearsal) = &recording.snapshot.notes.rehearsal {
                let lacks = rehearsal.lacks(self.memory.is_elsewhere(rehearsal));
                let devices = report.devices.iter_mut().filter(|device| device.device != HOST_DEVICE);
                let exact = devices.flat_map(|device| &mut device.runs).filter(|run| run.trust == Trust::Exact);
                exact.filter(|_| !lacks.is_empty()).for_each(|run| {
                    run.trust = Trust::Predicted;
                    lacks.clone_into(&mut run.because);
                });
            }
            // If no device has the named calls to checkpoint, the name is wrong: rows without them would answer another
            // question.
            let is_named = !changes.is_empty() && changes.iter().all(|it| matches!(it, Change::Checkpoint { .. }));
            let changed = || report.devices.iter().filter_map(|device| device.changed()).filter(|_| is_named);
            if let Some(run) = changed().next().filter(|_| changed().all(|run| run.outcome.is_none())) {
                return Err(crate::Error::Request(run.because.clone()));
            }
            Ok(match format {
                RowsOrPicture::Rows(format) => Reply::rows(report, format, style),
                RowsOrPicture::Picture(format) => {
                    Reply::new(move |source, out| simulate::draw(source, &report).write_as(format, out))
                }
            })
        })
    }
}
