//! The arguments of `memviz check`.

use crate::analysis::check::budget::at_most_all;
use crate::analysis::check::{Ceiling, ResidueLimit, SiteLimit, Tolerance};
use crate::cli::args::{SharedArgs, parse_regex};
use crate::cli::command::examples;
use crate::cli::format::CheckFormat;
use crate::model::bytes::Bytes;
use crate::model::percent::Percent;
use clap::Args;
use regex_lite::Regex;
use std::path::PathBuf;

/// Fail when memory exceeds a budget set by flags or memviz.toml
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz check snapshot.pickle --max-peak 40GiB", "one budget"),
    ("memviz check snapshot.pickle --baseline main.json --tolerance 2%", "no growth"),
]))]
pub struct Check {
    /// Snapshots, profiler traces or memory timelines; - for standard input [default: the inputs in memviz.toml]
    #[arg(value_name = "INPUT")]
    pub(super) inputs: Vec<PathBuf>,
    /// Limit on allocated memory, such as 40GiB, or 90% of --capacity
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub(super) max_peak: Option<Ceiling>,
    /// Limit on reserved memory
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub(super) max_reserved: Option<Ceiling>,
    /// Limit on the inactive share of reserved memory at the peak
    ///
    /// The peak is that of allocated memory.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = at_most_all)]
    pub(super) max_fragmentation: Option<Percent>,
    /// Limit on memory leaked per step
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = Bytes::of_blocks)]
    pub(super) max_leak: Option<Bytes>,
    /// Limit on the memory of matching sites at the peak; may be repeated
    ///
    /// A site matches if its label or a frame of its stack matches.
    #[arg(long, value_name = "REGEX=SIZE", allow_hyphen_values = true)]
    pub(super) max_site: Vec<SiteLimit>,
    /// Limit on memory allocated after A and still live at B; may be repeated
    ///
    /// A and B are instants, such as step:2:end.
    #[arg(long, value_name = "A..B=SIZE", allow_hyphen_values = true)]
    pub(super) max_residue: Vec<ResidueLimit>,
    /// Memory of the device, such as 80GiB, for limits in percent
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = Bytes::of_device)]
    pub(super) capacity: Option<Bytes>,
    /// Names of annotations that mark steps, for --max-leak
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    pub(super) steps: Option<Regex>,
    /// A recording, or JSON output of check or peak, whose peaks are the limits
    ///
    /// Neither its allocated nor its reserved peak may be exceeded.
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// By how much a peak may exceed the baseline [default: 0]
    ///
    /// A size, a percentage of the baseline, or any, which shows growth without judging it.
    #[arg(long, value_name = "SIZE|PERCENT|any", allow_hyphen_values = true)]
    pub(super) tolerance: Option<Tolerance>,
    /// Write the measured values to the baseline instead of comparing them
    #[arg(long)]
    pub(super) update_baseline: bool,
    /// Accept a recording that starts with memory in use
    ///
    /// A ring buffer may have dropped earlier entries, and a higher peak with them.
    #[arg(long)]
    pub(super) accept_late_start: bool,
    /// Pass only recordings that contain PyTorch's own counters
    ///
    /// `torch_memviz.record` writes them. Without them, a file that lost its beginning can look like one of a smaller program.
    #[arg(long)]
    pub(super) require_counters: bool,
    /// File with budgets [default: memviz.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Number of sites to list for an exceeded budget
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) top: usize,
    /// Output format [default: from the output file's extension, else text]
    ///
    /// github prints workflow commands, which become annotations.
    #[arg(long, value_enum)]
    pub(super) format: Option<CheckFormat>,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
}
