//! `memviz check`.

use super::{SharedArgs, parse_regex};
use crate::analysis::check::budget::at_most_all;
use crate::analysis::check::{Ceiling, SiteLimit};
use crate::analysis::diff::GrowthLimit;
use crate::model::bytes::Bytes;
use crate::model::percent::Percent;
use clap::{Args, ValueEnum};
use regex::Regex;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Snapshots, profiler traces or memory timelines; - for standard input [default: what memviz.toml names]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub shared: SharedArgs,
    /// Format of the answer; github prints workflow commands, which become annotations
    #[arg(long, value_enum, default_value_t = CheckFormatArg::Text)]
    pub format: CheckFormatArg,
    /// The most that may be allocated: a size such as 40GiB, or a percentage of --capacity
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub max_peak: Option<Ceiling>,
    /// The most that may be reserved: a size, or a percentage of --capacity
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub max_reserved: Option<Ceiling>,
    /// The largest inactive share of what is reserved, at the peak of allocated
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = at_most_all)]
    pub max_fragmentation: Option<Percent>,
    /// The most that may leak in a step
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub max_leak: Option<Bytes>,
    /// The most that sites may hold at the peak whose label, or a frame of whose stack, matches; may be repeated
    #[arg(long, value_name = "REGEX=SIZE", allow_hyphen_values = true)]
    pub max_site: Vec<SiteLimit>,
    /// Memory of the device, such as 80GiB, which percentages are of
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub capacity: Option<Bytes>,
    /// Annotations that are steps, by name, for --max-leak
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    pub steps: Option<Regex>,
    /// A recording, or an earlier answer in JSON, whose peaks of allocated and reserved must not be exceeded
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// By how much they may be: a size, or a percentage of the baseline's [default: 0]
    #[arg(long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    pub tolerance: Option<GrowthLimit>,
    /// Write what is measured to the baseline, instead of comparing it
    #[arg(long)]
    pub update_baseline: bool,
    /// Budgets in a file [default: memviz.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Number of sites that an exceeded budget names
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormatArg {
    /// For people
    Text,
    /// An object; for several inputs one on each line
    Json,
    /// For an issue or a step summary
    Markdown,
    /// Test results in XML
    Junit,
    /// Workflow commands of GitHub Actions
    Github,
}
