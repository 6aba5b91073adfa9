//! What can be typed.

mod check;
mod ranks;

pub use check::{CheckArgs, CheckFormatArg};
pub use ranks::RanksArgs;

use super::Failure;
use crate::analysis::diff::{Align, GrowthLimit};
use crate::analysis::{Each, Filter, GroupBy, Inference, When, XAxis};
use crate::model::View;
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use clap::{Args, Parser, Subcommand, ValueEnum};
use regex::Regex;
use std::path::{Path, PathBuf};

/// Exact analysis of PyTorch GPU memory snapshots.
#[derive(Debug, Parser)]
#[command(name = "memviz", version, about, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 a requested check failed; 2 the command could not do its work.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// What is in the file: devices, entries by action, time span, completeness, settings, annotations, anomalies
    Info(InfoArgs),
    /// The peak of each device and the lines of code that hold it
    Peak(PeakArgs),
    /// Draw live memory over time as SVG, stacked by what holds it
    Timeline(TimelineArgs),
    /// Draw live bytes by stack at the peak as SVG, or write folded stacks
    Flamegraph(FlamegraphArgs),
    /// How much of what is reserved is inactive, at the peak or over time, and which lines of code pin it; with -o, every
    /// segment and its blocks as SVG
    Fragmentation(FragmentationArgs),
    /// Every request that failed: what was free where, why it did not fit, who holds the memory, what would have helped
    Oom(OomArgs),
    /// Write one file for an issue: figures, timeline, top sites, flame graph, segment map
    Report(ReportArgs),
    /// Allocations that survive step after step, with growth per step and their stacks
    Leaks(LeaksArgs),
    /// What activation checkpointing would save: the predicted peak with each repeatedly called forward function
    /// checkpointed, and what running it again costs; with -o, memory before and after as SVG
    Checkpoint(CheckpointArgs),
    /// Two recordings side by side: peaks, what holds them, settings; with -o, both timelines as SVG
    Diff(DiffArgs),
    /// Check budgets of memory, from flags or memviz.toml, and fail when one is exceeded
    Check(CheckArgs),
    /// Print the JSON Schema of what --format json writes
    Schema {
        /// The command; without it, of every command
        command: Option<String>,
    },
    /// Which rank of a distributed run differs from the others, and what it holds that they do not
    Ranks(RanksArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual in troff format
    Man,
}

#[derive(Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub format: FormatArg,
}

#[derive(Debug, Args)]
pub struct PeakArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub format: FormatArg,
    /// Which counter's peak to find and attribute
    #[arg(long, value_enum, default_value_t = MetricArg::Allocated)]
    pub metric: MetricArg,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = ByArg::Site)]
    pub by: ByArg,
    /// Number of rows; the rest becomes one row [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// The peak of each step, phase or annotation instead of one for all: step, phase, annotation or annotation:REGEX; --top
    /// is then the number of rows for each [default: 1 in text and Markdown, 3 in JSON]
    #[arg(long, value_name = "WHAT", conflicts_with = "at")]
    pub each: Option<Each>,
    /// Another instant than the peak: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    pub at: Option<When>,
    /// Search the peak from this instant on
    #[arg(long, value_name = "WHEN")]
    pub from: Option<When>,
    /// Search the peak up to this instant
    #[arg(long, value_name = "WHEN")]
    pub to: Option<When>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
    #[command(flatten)]
    pub frames: FrameArgs,
}

#[derive(Debug, Args)]
pub struct TimelineArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the picture
    #[arg(long, value_enum, default_value_t = PictureFormatArg::Svg)]
    pub format: PictureFormatArg,
    /// Which counter to draw
    #[arg(long, value_enum, default_value_t = MetricArg::Allocated)]
    pub metric: MetricArg,
    /// What the bands stand for
    #[arg(long, value_enum, default_value_t = ByArg::Site)]
    pub by: ByArg,
    /// Number of bands, 40 at most; the rest becomes one band
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=40))]
    pub top: u8,
    /// What the x axis counts
    #[arg(long, value_enum, default_value_t = AxisArg::Time)]
    pub x: AxisArg,
    /// Add a band of what is reserved and inactive
    #[arg(long)]
    pub inactive: bool,
    /// Mark the peak of each step, phase or annotation: step, phase, annotation or annotation:REGEX
    #[arg(long, value_name = "WHAT")]
    pub each: Option<Each>,
    /// Draw from this instant on: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    pub from: Option<When>,
    /// Draw up to this instant
    #[arg(long, value_name = "WHEN")]
    pub to: Option<When>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
}

#[derive(Debug, Args)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// A picture, or a line per stack for other flame graph tools
    #[arg(long, value_enum, default_value_t = FlameFormatArg::Svg)]
    pub format: FlameFormatArg,
    /// Which counter's peak to find and draw
    #[arg(long, value_enum, default_value_t = MetricArg::Allocated)]
    pub metric: MetricArg,
    /// Another instant than the peak: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    pub at: Option<When>,
    /// Search the peak from this instant on
    #[arg(long, value_name = "WHEN")]
    pub from: Option<When>,
    /// Search the peak up to this instant
    #[arg(long, value_name = "WHEN")]
    pub to: Option<When>,
    /// Groups between the root and the frames
    #[arg(long, value_enum)]
    pub by: Option<SplitArg>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
    /// Keep the C++ frames of allocator, dispatcher and interpreter
    #[arg(long)]
    pub all_frames: bool,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the report [default: by the extension of the output file]
    #[arg(long, value_enum)]
    pub format: Option<PageFormatArg>,
    /// What bands and rows stand for
    #[arg(long, value_enum, default_value_t = ByArg::Site)]
    pub by: ByArg,
    /// What the x axis of the timeline counts
    #[arg(long, value_enum, default_value_t = AxisArg::Time)]
    pub x: AxisArg,
    #[command(flatten)]
    pub infer: InferArgs,
    #[command(flatten)]
    pub frames: FrameArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageFormatArg {
    /// One picture
    Svg,
    /// Tables for a GitHub issue
    Markdown,
    /// A static page
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlameFormatArg {
    /// SVG
    Svg,
    /// Folded stacks: inferno, speedscope, flamegraph.pl
    Folded,
}

/// What can stand around stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SplitArg {
    /// What the memory is for: parameters, gradients, optimizer state, activations and so on
    Category,
    /// The part of the training step that allocated it
    Phase,
}

impl From<SplitArg> for GroupBy {
    fn from(by: SplitArg) -> Self {
        match by {
            SplitArg::Category => Self::Category,
            SplitArg::Phase => Self::Phase,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AxisArg {
    /// Seconds since the first entry
    Time,
    /// Entries of the trace
    Entry,
}

#[derive(Debug, Args)]
pub struct FragmentationArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer [default: svg where the output file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    pub format: Option<FormatOrSvgArg>,
    /// Another instant than the peak of allocated: oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN", conflicts_with = "over_time")]
    pub at: Option<When>,
    /// Rows along the whole history instead of one instant, none of its peaks of inactive bytes left out
    #[arg(long)]
    pub over_time: bool,
    /// Number of rows over time, about [default: 24 in text and Markdown, 400 in JSON and CSV]
    #[arg(long, value_name = "N", requires = "over_time", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub points: Option<u32>,
    /// What the rows of the pinning stand for [default: site]; in the picture, the colours of blocks [default: their state]
    #[arg(long, value_enum)]
    pub by: Option<ByArg>,
    /// Number of those rows, or colours; the rest becomes one [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
    #[command(flatten)]
    pub frames: FrameArgs,
}

#[derive(Debug, Args)]
pub struct OomArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub format: FormatArg,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = ByArg::Site)]
    pub by: ByArg,
    /// Number of rows; the rest becomes one row [default: 10 in text and Markdown, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
    #[command(flatten)]
    pub frames: FrameArgs,
}

#[derive(Debug, Args)]
pub struct LeaksArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub format: FormatArg,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = LeaksByArg::Site)]
    pub by: LeaksByArg,
    /// Annotations that are steps, by name; without it `ProfilerStep#N`, `step_N` and the like, or what repeats
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    pub steps: Option<Regex>,
    /// Memory of the device, such as 80GiB, to say when it is full; without it what an oom entry tells
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<Bytes>,
    /// Number of rows [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
    #[command(flatten)]
    pub frames: FrameArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("input", |arg| arg.value_name("NEW").help("What the base is compared with; - for standard input")))]
pub struct DiffArgs {
    /// Snapshot, profiler trace or memory timeline to compare with; - for standard input
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer [default: svg where the output file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    pub format: Option<FormatOrSvgArg>,
    /// Which counter's peak to find and compare
    #[arg(long, value_enum, default_value_t = MetricArg::Allocated)]
    pub metric: MetricArg,
    /// What the rows stand for
    #[arg(long, value_enum, default_value_t = ByArg::Site)]
    pub by: ByArg,
    /// Number of rows that differ; the rest becomes one row [default: 20 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Another instant of both than the peak: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN")]
    pub at: Option<When>,
    /// What lies above each other in the picture
    #[arg(long, value_enum, default_value_t = AlignArg::Time)]
    pub align: AlignArg,
    /// Exit with 1 if a device grew by more than this, such as 64MiB or 2%
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub fail_on_growth: Option<GrowthLimit>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlignArg {
    /// What happened as long after the first entry
    Time,
    /// What happened as many entries after it
    Entry,
    /// What happened in the same step
    Step,
}

impl From<AlignArg> for Align {
    fn from(align: AlignArg) -> Self {
        match align {
            AlignArg::Time => Self::Time,
            AlignArg::Entry => Self::Entry,
            AlignArg::Step => Self::Step,
        }
    }
}

#[derive(Debug, Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Format of the answer [default: svg where the output file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    pub format: Option<FormatOrSvgArg>,
    /// Number of candidates [default: 10 in text and Markdown, all in JSON and CSV]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// What the x axis of the picture counts
    #[arg(long, value_enum, default_value_t = AxisArg::Entry)]
    pub x: AxisArg,
}

fn parse_regex(text: &str) -> Result<Regex, String> {
    // The library draws the expression on several lines; its last one says what is wrong.
    Regex::new(text).map_err(|error| error.to_string().lines().last().unwrap_or_default().trim().to_owned())
}

/// Groups that each block is in one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaksByArg {
    /// The line of your own code
    Site,
    /// The whole stack
    Stack,
    /// The file of the site
    File,
    /// The Python package
    Module,
}

impl From<LeaksByArg> for GroupBy {
    fn from(by: LeaksByArg) -> Self {
        match by {
            LeaksByArg::Site => Self::Site,
            LeaksByArg::Stack => Self::Stack,
            LeaksByArg::File => Self::File,
            LeaksByArg::Module => Self::Module,
        }
    }
}

/// Which stacks count.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Attribute only to stacks with a frame that matches; may be repeated
    #[arg(long, value_name = "REGEX")]
    include: Vec<String>,
    /// Leave out stacks with a frame that matches; may be repeated
    #[arg(long, value_name = "REGEX")]
    exclude: Vec<String>,
}

impl FilterArgs {
    /// The filter that they ask for.
    pub fn compile(&self) -> Result<Filter, Failure> {
        Filter::new(&self.include, &self.exclude).map_err(|error| Failure::Message(error.to_string()))
    }
}

/// Which frames of stacks are shown.
#[derive(Debug, Args)]
pub struct FrameArgs {
    /// Show the C++ frames of stacks, too, those of allocator, dispatcher and interpreter included
    #[arg(long)]
    all_frames: bool,
}

impl FrameArgs {
    /// Whether stacks are to be shortened for this reader.
    pub fn fold(&self, for_people: bool) -> bool {
        for_people && !self.all_frames
    }
}

/// What may be said without being recorded.
#[derive(Debug, Args)]
pub struct InferArgs {
    /// Do not infer which lines of forward the memory of backward passes goes back to
    #[arg(long)]
    no_infer: bool,
}

impl From<&InferArgs> for Inference {
    fn from(args: &InferArgs) -> Self {
        if args.no_infer { Self::Off } else { Self::On }
    }
}

/// One input.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// Snapshot, profiler trace or memory timeline, plain or compressed with gzip, zstd or zip; - for standard input
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,
    #[command(flatten)]
    shared: SharedArgs,
}

/// What goes for one input goes for the command.
impl std::ops::Deref for CommonArgs {
    type Target = SharedArgs;

    fn deref(&self) -> &SharedArgs {
        &self.shared
    }
}

/// What all commands have in common.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SharedArgs {
    /// Device number, -1 for pinned host memory, -2 for CPU memory in a profiler trace, or all; may be repeated
    #[arg(long, value_name = "N|all", allow_hyphen_values = true, value_parser = parse_device)]
    pub device: Vec<DeviceArg>,
    /// Write the answer to a file instead of standard output; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite the output file if it exists
    #[arg(long)]
    pub force: bool,
    /// Exit with 1 if the recording contradicts itself
    #[arg(long)]
    pub strict: bool,
    /// Analyse a file that was cut off, up to the cut
    #[arg(long)]
    pub allow_truncated: bool,
    /// Use colours; the `NO_COLOR` variable turns them off, too
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
    /// Number of threads for the replay [default: one per core]; ranks reads as many files at a time, others one by two
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// No progress bar, no warnings, and no advice at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// Code that is your own, too: Python files whose path or package matches; may be repeated. Without it sites go down
    /// to a library's lines where its model holds most below one of yours; '' turns that off and names nothing
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    own: Vec<Regex>,
}

/// One value of `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceArg {
    All,
    One(i32),
}

fn parse_device(text: &str) -> Result<DeviceArg, String> {
    match text {
        "all" => Ok(DeviceArg::All),
        _ => text.parse().map(DeviceArg::One).map_err(|_| "expected a device number or all".to_owned()),
    }
}

impl SharedArgs {
    /// How answers that compare recordings are to be given.
    pub fn view(&self) -> View {
        let own = self.own.iter().filter(|own| !own.as_str().is_empty()).cloned().collect();
        View { own, advice: !self.quiet, ..View::default() }
    }

    /// How answers about one recording are to be given.
    pub fn view_of_one(&self) -> View {
        View { library_lines: self.own.is_empty(), ..self.view() }
    }

    /// Devices asked for; empty for all.
    pub fn devices(&self) -> Vec<i32> {
        let one = |device: &DeviceArg| match device {
            DeviceArg::One(device) => Some(*device),
            DeviceArg::All => None,
        };
        self.device.iter().map(one).collect::<Option<Vec<i32>>>().unwrap_or_default()
    }
}

impl CommonArgs {
    /// The input as it was typed.
    pub fn path(&self) -> String {
        Self::shown(&self.input)
    }

    /// An input as messages name it.
    pub fn shown(input: &Path) -> String {
        if input.as_os_str() == "-" { "<stdin>".to_owned() } else { input.display().to_string() }
    }

    /// Whether the input is standard input.
    pub fn is_stdin(&self) -> bool {
        self.input.as_os_str() == "-"
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    Text,
    Json,
    Csv,
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PictureFormatArg {
    Svg,
}

/// A format for figures, or a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatOrSvgArg {
    Text,
    Json,
    Csv,
    Markdown,
    Svg,
}

impl FormatOrSvgArg {
    /// The format asked for, or else the one that the output file's name stands for; `None` for a picture.
    pub fn resolve(asked: Option<Self>, output: Option<&Path>) -> Option<FormatArg> {
        let is_svg = output.and_then(Path::extension).is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
        match asked.unwrap_or(if is_svg { Self::Svg } else { Self::Text }) {
            Self::Text => Some(FormatArg::Text),
            Self::Json => Some(FormatArg::Json),
            Self::Csv => Some(FormatArg::Csv),
            Self::Markdown => Some(FormatArg::Markdown),
            Self::Svg => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricArg {
    Allocated,
    Active,
    Requested,
    Reserved,
}

impl From<MetricArg> for Metric {
    fn from(metric: MetricArg) -> Self {
        match metric {
            MetricArg::Allocated => Self::Allocated,
            MetricArg::Active => Self::Active,
            MetricArg::Requested => Self::Requested,
            MetricArg::Reserved => Self::Reserved,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    /// The line of your own code
    Site,
    /// The whole stack
    Stack,
    /// Every function on the stack, inclusive
    Function,
    /// The file of the site
    File,
    /// The Python package
    Module,
    /// The CUDA stream
    Stream,
    /// The memory pool
    Pool,
    /// The open `record_function` ranges
    Annotation,
    /// The operator (profiler traces, with what each allocated and freed; snapshots with C++ stacks)
    Operator,
    /// The calls of `nn.Module` (profiler traces)
    NnModule,
    /// The modules of the model around, one of several by its number: `GPT.Block[3].Attention`
    ModulePath,
    /// What the memory is for: parameters, gradients, optimizer state, activations and so on
    Category,
    /// The part of the training step that allocated it
    Phase,
}

impl From<AxisArg> for XAxis {
    fn from(axis: AxisArg) -> Self {
        match axis {
            AxisArg::Time => Self::Time,
            AxisArg::Entry => Self::Entry,
        }
    }
}

impl From<ByArg> for GroupBy {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Site => Self::Site,
            ByArg::Stack => Self::Stack,
            ByArg::Function => Self::Function,
            ByArg::File => Self::File,
            ByArg::Module => Self::Module,
            ByArg::Stream => Self::Stream,
            ByArg::Pool => Self::Pool,
            ByArg::Annotation => Self::Annotation,
            ByArg::Operator => Self::Operator,
            ByArg::NnModule => Self::NnModule,
            ByArg::ModulePath => Self::ModulePath,
            ByArg::Category => Self::Category,
            ByArg::Phase => Self::Phase,
        }
    }
}
