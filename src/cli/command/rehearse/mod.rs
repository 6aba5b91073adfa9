//! `memviz rehearse`.

mod program;
mod settings;
mod values;

use super::{Run, examples};
use crate::cli::{Failure, Outcome};
use crate::facts::gpu::Gpu;
use crate::model::bytes::Bytes;
use clap::{Args, ValueEnum};
use program::{by_importance, nothing_recorded, rank};
use serde_json::json;
use settings::Settings;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::PathBuf;
use values::{Largest, Vary};

/// Run a program without a GPU, and record the memory it would use
///
/// PyTorch's CUDA build runs on a stand-in for CUDA: PyTorch's own allocator handles every request, and runs out of memory as it
/// would on the GPU; kernels do nothing, and every value read from the device is 0. Works on Linux only; the Python environment of the command needs torch-memviz and a CUDA build
/// of PyTorch.
#[allow(clippy::struct_excessive_bools, reason = "flags of the command line")]
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz rehearse --gpu a100-40gb -- python train.py", "on an A100"),
    ("memviz rehearse --steps 3 --vary batch=4,8 -- python train.py --batch {batch}", "the largest batch"),
]))]
pub struct Rehearse {
    /// GPU to rehearse for; --list shows all [default: from memviz.toml, else h100-80gb]
    ///
    /// A prefix of the name is enough.
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Memory of the device [default: that of the GPU]
    ///
    /// PyTorch's OOM message states it as the total capacity.
    #[arg(long, value_name = "SIZE", value_parser = Bytes::of_capacity)]
    memory: Option<Bytes>,
    /// Memory that CUDA itself uses
    #[arg(long, value_name = "SIZE", default_value = "500MiB", value_parser = Bytes::of_device)]
    context: Bytes,
    /// Number of devices
    #[arg(long, value_name = "N", default_value_t = 1)]
    gpus: u32,
    /// Run only rank 0 of a program with this many ranks
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: u32,
    /// End the program after this many optimizer steps
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// End the program after this many seconds
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u32>,
    /// End the program when one line has read this many values from the device
    ///
    /// Such a line may be waiting for a nonzero value, which never comes. 0 means no limit.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    most_reads: u32,
    /// Which driver's placement of segments to follow
    #[arg(long, value_enum, default_value_t = Placement::Linux)]
    placement: Placement,
    /// Rehearse even if this machine has a GPU; the GPU is not used
    #[arg(long)]
    despite_gpu: bool,
    /// Build transformers models from their configuration, without weights
    #[arg(long)]
    no_weights: bool,
    /// The share of elements that nonzero and masks select, such as nonzero=0.25
    ///
    /// With nonzero=FILE.py:FUNCTION, the function returns the share for a tensor.
    #[arg(long, value_name = "OPERATOR=SHARE")]
    assume: Option<String>,
    /// Do not record which variables, attributes and autograd nodes hold memory
    #[arg(long)]
    no_holders: bool,
    /// Run the command once for each value, which replaces {NAME}, and pass the recordings to fit
    #[arg(long, value_name = "NAME=N,N")]
    vary: Option<Vary>,
    /// Find the largest value that fits, by running the command with one value after another
    ///
    /// Each value replaces {NAME}.
    #[arg(long, value_name = "NAME[=FIRST]", conflicts_with = "vary")]
    largest: Option<Largest>,
    /// Where to write the recording [default: from memviz.toml, else memory.pickle]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// List the GPUs
    #[arg(long)]
    list: bool,
    /// The program and its arguments [default: from memviz.toml]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Drivers that place segments in different ways.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Placement {
    /// The Linux driver
    Linux,
    /// The Windows driver, which WSL also uses
    Windows,
}

impl Run for Rehearse {
    fn run(&self) -> Result<Outcome, Failure> {
        if self.list {
            return list_gpus();
        }
        let settings = Settings::of(self)?;
        match (&self.vary, &self.largest) {
            (Some(vary), _) => values::predict_largest(&settings, vary),
            (_, Some(largest)) => values::try_largest(&settings, largest),
            _ => once(&settings),
        }
    }
}

/// Rehearses the command, and shows the first answer about its recording.
fn once(settings: &Settings) -> Result<Outcome, Failure> {
    let rehearsed = settings.rehearse(&settings.command, &settings.output)?;
    let answer = match &by_importance(&rehearsed.files)[..] {
        [] => return Err(nothing_recorded(rehearsed.succeeded)),
        [first, others @ ..] if others.iter().all(|other| rank(other).is_none()) => answer(&["triage"], [*first]),
        files => answer(&["ranks"], files.iter().copied()),
    };
    Ok(match (answer, rehearsed.succeeded) {
        (Outcome::Done, false) => Outcome::CheckFailed,
        (answer, _) => answer,
    })
}

/// Runs another command of memviz on files, whose names may look like options.
fn answer<'f>(words: &[&str], files: impl IntoIterator<Item = &'f OsStr>) -> Outcome {
    let words = std::iter::once(&"memviz").chain(words).chain(&["--"]).map(OsString::from);
    crate::cli::run(words.chain(files.into_iter().map(OsStr::to_owned)))
}

/// Prints the table of GPUs.
fn list_gpus() -> Result<Outcome, Failure> {
    let mut out = io::stdout().lock();
    for Gpu { name, driver_name, memory, is_measured, .. } in Gpu::known() {
        let about = if *is_measured { "" } else { " (about)" };
        writeln!(out, "{name:12} {driver_name:28} {:>10}{about}", Bytes(*memory))?;
    }
    Ok(Outcome::Done)
}

impl Rehearse {
    /// The options for the Python package, except for the path of the recording.
    fn options(
        &self,
        gpu: &str,
        memory: Option<Bytes>,
        steps: Option<u32>,
        time_limit: Option<u32>,
    ) -> serde_json::Value {
        json!({
            "gpu": gpu,
            "memory": memory.map(|memory| memory.0),
            "context": self.context.0,
            "gpus": self.gpus,
            "ranks": self.ranks,
            "steps": steps,
            "time_limit": time_limit,
            "most_reads": self.most_reads,
            "placement": self.placement.to_possible_value().map(|value| value.get_name().to_owned()),
            "no_weights": self.no_weights,
            "assume": self.assume,
            "holders": !self.no_holders,
            "despite_gpu": self.despite_gpu,
        })
    }
}
