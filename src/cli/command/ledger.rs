//! `memviz ledger`.

use super::{Run, examples};
use crate::analysis::ledger::LedgerOptions;
use crate::cli::args::CommonArgs;
use crate::cli::device_memory::DeviceMemoryArgs;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::report::AnswerFormat;
use clap::Args;

const CAPACITY: &str = "Memory of the device, such as 80GiB, if no samples show it";
const CAPACITY_SOURCES: &str = "\n\nPyTorch's OOM message states it as the total capacity. Samples or a profiler trace next to the \
     recording shows it; a failed request does not.";

/// Show what uses the device: PyTorch, NCCL, the CUDA context, other processes
///
/// Reads the samples of the device that `torch_memviz.record("run.pickle")` writes to `run.device.json`. Without such a file,
/// --capacity shows how much of the device was in use outside PyTorch at a failed request.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz ledger run.pickle", "with run.device.json next to it"),
    ("memviz ledger oom.pickle --capacity 80GiB", "at the failed request"),
]))]
// Its samples contain the size of the device; an oom entry does not.
#[command(mut_arg("capacity", |arg| arg.help(CAPACITY).long_help(CAPACITY.to_owned() + CAPACITY_SOURCES)))]
pub struct Ledger {
    #[command(flatten)]
    memory: DeviceMemoryArgs,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    common: CommonArgs,
}

impl Run for Ledger {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        let options = LedgerOptions::default().devices(self.common.devices()).capacity(self.memory.total());
        with_recording(&self.common, |recording| Ok(Reply::rows(recording.ledger(&options)?, format, style)))
    }
}
