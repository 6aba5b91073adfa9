//! `memviz excerpt`.

use super::{Run, examples};
use crate::analysis::excerpt::{Window, excerpt};
use crate::cli::args::{CommonArgs, SharedArgs, only_snapshots};
use crate::cli::format::Format;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::facts::device::{Device, Devices};
use crate::facts::time::when::{Purpose, When};
use crate::model::device_words;
use crate::replay::Metric;
use crate::wire;
use clap::{Args, ValueEnum};

/// Write a part of a snapshot as a snapshot
///
/// The part has the same figures at each of its instants as the whole recording; if it could not, memviz refuses it. PyTorch's
/// own page opens it.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz excerpt snapshot.pickle --from step:3 --to step:4 -o part.pickle", "two steps, small enough for an issue"),
    ("memviz excerpt snapshot.pickle --device 1 -o one.pickle", "one device of several"),
]))]
#[command(mut_arg("input", only_snapshots))]
pub struct Excerpt {
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// A part of a recording.
#[derive(Debug, Args)]
pub struct PartArgs {
    /// Keep only the part from this instant on: peak, oom, start, end, entry:N, time:12.5s, step:N, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN", requires = "input")]
    from: Option<When>,
    /// Keep only the part up to this instant
    #[arg(long, value_name = "WHEN", requires = "input")]
    to: Option<When>,
}

/// The output of the command.
#[derive(Clone, Debug, PartialEq, Eq, ValueEnum)]
enum SnapshotFile {
    Pickle,
}

impl Format for SnapshotFile {
    const USUAL: Option<Self> = Some(Self::Pickle);
    const HAS_FLAG: bool = false;

    fn extensions(&self) -> &'static [&'static str] {
        &["pickle", "pkl"]
    }

    fn not_for_terminals(&self) -> Option<&'static str> {
        Some("a terminal cannot show snapshots")
    }
}

impl Run for Excerpt {
    fn run(&self) -> Result<Outcome, Failure> {
        output::format::<SnapshotFile>(&self.common, None)?;
        with_recording(&self.common, |recording| {
            let devices = recording.devices();
            let part = excerpt(&devices, &self.part.windows(&devices, &self.common)?)?;
            Ok(Reply::new(move |_, out| wire::snapshot::write(&part, out)))
        })
    }
}

impl PartArgs {
    /// The requested instants on each device that has them.
    pub fn windows(&self, devices: &Devices<'_>, shared: &SharedArgs) -> crate::Result<Vec<Window>> {
        let mut windows = Vec::new();
        let mut failed = None;
        for device in devices.wanted(&shared.devices())? {
            match self.window(device) {
                Ok(window) => windows.push(window),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if windows.is_empty() => Err(error),
            _ => Ok(windows),
        }
    }

    fn window(&self, device: &Device<'_>) -> crate::Result<Window> {
        let mut window = Window::whole(device);
        if self.from.is_none() && self.to.is_none() {
            return Ok(window);
        }
        let resolve = |when: &When, purpose| device.instant(when, Metric::Allocated, purpose);
        if let Some(from) = &self.from {
            window.from = resolve(from, Purpose::From)?;
        }
        if let Some(to) = &self.to {
            window.to = resolve(to, Purpose::To)?;
        }
        if window.from < window.to {
            return Ok(window);
        }
        Err(crate::Error::Request(format!("expected --from before --to on {}", device_words(device.id()))))
    }
}
