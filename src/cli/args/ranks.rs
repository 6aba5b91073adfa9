//! `memviz ranks`.

use super::{FormatOrSvgArg, MetricArg, SharedArgs};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RanksArgs {
    /// Recordings of ranks, directories of them, globs, and summaries that memviz ranks --format json wrote; - for
    /// standard input
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub shared: SharedArgs,
    /// Format of the answer; json is a summary on each line, which can be an input again [default: svg where the output
    /// file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    pub format: Option<FormatOrSvgArg>,
    /// Which counter's peak to attribute
    #[arg(long, value_enum, default_value_t = MetricArg::Allocated)]
    pub metric: MetricArg,
    /// Sites in each summary; the rest becomes one row
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub top: u8,
    /// What standard input is called: rows show it, and the rank is taken from it
    #[arg(long, value_name = "NAME")]
    pub stdin_name: Option<String>,
}
