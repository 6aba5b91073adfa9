//! `memviz blocks`.

use super::{Run, examples};
use crate::analysis::blocks::{BlocksOptions, TOP};
use crate::cli::args::{CommonArgs, InferArgs};
use crate::cli::code_lines::SourceArgs;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::facts::time::when::When;
use crate::report::AnswerFormat;
use clap::Args;

/// Show individual blocks: size, lifetime, category, and the stacks that allocated and freed them
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz blocks snapshot.pickle --top 5", "the largest at the peak"),
    ("memviz blocks snapshot.pickle --address 0x7f0a2c000000", "all blocks ever at this address"),
]))]
pub struct Blocks {
    /// ID of a block, as this command shows it; may be repeated
    #[arg(long, value_name = "N")]
    id: Vec<usize>,
    /// An address inside a block, in hexadecimal with 0x or in decimal; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: Vec<u64>,
    /// Show only blocks whose free is pending, since other streams may still use them [default: at the instant with the most]
    #[arg(long)]
    pending: bool,
    /// Show blocks that are allocated at this instant: peak, oom, start, end, entry:N, time:12.5s, step:N,
    /// annotation:NAME[#K] [default: the peak; any time with --id or --address]
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
    /// Number of blocks; the rest are summed into one row
    #[arg(long, value_name = "N", default_value_t = TOP)]
    top: usize,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<AnswerFormat>,
    #[command(flatten)]
    infer: InferArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    common: CommonArgs,
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    number.map_err(|_| "expected an address such as 0x7f0a2c000000".to_owned())
}

impl Run for Blocks {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        let options = BlocksOptions::default()
            .ids(self.id.clone())
            .addresses(self.address.clone())
            .pending(self.pending)
            .at(self.at.clone())
            .top(self.top)
            .inference((&self.infer).into())
            .devices(self.common.devices());
        with_recording(&self.common, |recording| {
            let mut report = recording.blocks(&options)?;
            for block in report.devices.iter_mut().flat_map(|device| &mut device.blocks) {
                let line = block.line.as_ref();
                let text =
                    |(file, line): &(String, u64)| self.source.text(&self.common, &recording.snapshot, file, *line);
                block.code = line.and_then(text);
            }
            Ok(Reply::rows(report, format, style))
        })
    }
}
