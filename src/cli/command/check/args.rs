//! What can be typed behind `memviz check`.

use crate::analysis::check::budget::at_most_all;
use crate::analysis::check::{Ceiling, ResidueLimit, SiteLimit};
use crate::analysis::diff::GrowthLimit;
use crate::cli::args::{SharedArgs, parse_regex};
use crate::cli::command::examples;
use crate::cli::format::CheckFormat;
use crate::model::bytes::Bytes;
use crate::model::percent::Percent;
use clap::Args;
use regex::Regex;
use std::path::PathBuf;

/// Check budgets from flags or memviz.toml, and fail when one is exceeded
#[derive(Debug, Args)]
#[command(after_help = examples(&[
    ("memviz check snapshot.pickle --max-peak 40GiB", "one budget"),
    ("memviz check snapshot.pickle --baseline main.json --tolerance 2%", "no growth"),
]))]
pub struct Check {
    /// Snapshots, profiler traces or memory timelines; - for standard input [default: what memviz.toml names]
    #[arg(value_name = "INPUT")]
    pub(super) inputs: Vec<PathBuf>,
    /// The most that may be allocated: a size such as 40GiB, or a percentage of --capacity
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub(super) max_peak: Option<Ceiling>,
    /// The most that may be reserved: a size, or a percentage of --capacity
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub(super) max_reserved: Option<Ceiling>,
    /// The largest inactive share of what is reserved, at the peak of allocated
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = at_most_all)]
    pub(super) max_fragmentation: Option<Percent>,
    /// The most that may leak in a step
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = Bytes::of_blocks)]
    pub(super) max_leak: Option<Bytes>,
    /// The most that sites may hold at the peak whose label, or a frame of whose stack, matches; may be repeated
    #[arg(long, value_name = "REGEX=SIZE", allow_hyphen_values = true)]
    pub(super) max_site: Vec<SiteLimit>,
    /// The most that may be allocated between two instants, as --at names them, and still be there at the second one; may be
    /// repeated
    #[arg(long, value_name = "A..B=SIZE", allow_hyphen_values = true)]
    pub(super) max_residue: Vec<ResidueLimit>,
    /// Memory of the device, such as 80GiB, which percentages are of
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = Bytes::of_device)]
    pub(super) capacity: Option<Bytes>,
    /// Annotations that are steps, by name, for --max-leak
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    pub(super) steps: Option<Regex>,
    /// A recording, or an earlier answer in JSON, whose peaks of allocated and reserved must not be exceeded
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// By how much they may be: a size, or a percentage of the baseline's [default: 0]
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub(super) tolerance: Option<GrowthLimit>,
    /// Write what is measured to the baseline, instead of comparing it
    #[arg(long)]
    pub(super) update_baseline: bool,
    /// Judge a recording that begins with memory in use from there on, although a ring buffer may have lost what was before
    #[arg(long)]
    pub(super) accept_late_start: bool,
    /// Budgets in a file [default: memviz.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Number of sites that an exceeded budget names
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) top: usize,
    /// Format of the answer; github prints workflow commands, which become annotations [default: what the output file's
    /// name stands for, else text]
    #[arg(long, value_enum)]
    pub(super) format: Option<CheckFormat>,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
}
