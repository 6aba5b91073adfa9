//! Arguments that several commands have in common.

use crate::cli::outcome::Failure;
use crate::cli::{categories, limits};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Inference};
use crate::input::collect::only_recording;
use crate::input::{Limits, ReadOptions};
use crate::model::View;
use crate::model::bytes::Bytes;
use crate::report::AnswerFormat;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use regex_lite::Regex;
use std::path::{Path, PathBuf};

/// The heading of the options that commands share.
pub const COMMON: &str = "Common options";

pub fn parse_regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| format!("expected a regular expression: {error}"))
}

/// A regular expression that the library compiles.
fn check_regex(text: &str) -> Result<String, String> {
    parse_regex(text).map(|_| text.to_owned())
}

/// The value of an option that accepts only some groups.
pub fn one_of(groups: &'static [GroupBy]) -> impl TypedValueParser<Value = GroupBy> {
    PossibleValuesParser::new(groups.iter().filter_map(ValueEnum::to_possible_value))
        .try_map(|name| GroupBy::from_str(&name, false))
}

/// The number of rows in an answer: as many as the user wants, or `most` in Markdown, or all of them, which text cuts to a screen.
pub fn rows(wanted: Option<usize>, all: bool, format: AnswerFormat, most: usize) -> Option<usize> {
    wanted.or((format == AnswerFormat::Markdown && !all).then_some(most))
}

/// Parses an input: replaces a folder with one recording by that recording.
pub fn one_input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| only_recording(&path).unwrap_or(path))
}

/// Which stacks count.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stacks")]
pub struct FilterArgs {
    /// Count only stacks with a matching frame; may be repeated
    #[arg(long, value_name = "REGEX", value_parser = check_regex)]
    include: Vec<String>,
    /// Leave out stacks with a matching frame; may be repeated
    #[arg(long, value_name = "REGEX", value_parser = check_regex)]
    exclude: Vec<String>,
}

impl FilterArgs {
    /// The filter for these options.
    pub fn compile(&self) -> Result<Filter, Failure> {
        Filter::new(&self.include, &self.exclude).map_err(|error| Failure::Message(error.to_string()))
    }
}

/// Which frames of stacks are shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stacks")]
pub struct FrameArgs {
    /// Also show C++ frames, `_call_impl` of modules, and frames of the allocator and interpreter
    #[arg(long)]
    all_frames: bool,
}

impl FrameArgs {
    /// Whether stacks are shortened for this reader.
    pub fn fold(&self, for_people: bool) -> bool {
        for_people && !self.all_frames
    }
}

/// Whether to infer what is not recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stacks")]
pub struct InferArgs {
    /// Do not infer forward lines for memory that the backward pass allocated
    #[arg(long)]
    no_infer: bool,
}

impl From<&InferArgs> for Inference {
    fn from(args: &InferArgs) -> Self {
        if args.no_infer { Self::Off } else { Self::On }
    }
}

/// Which stacks count, and how they are shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stacks")]
pub struct StackArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub infer: InferArgs,
    #[command(flatten)]
    pub frames: FrameArgs,
}

/// The help of the input for commands that need segments, which only snapshots have.
pub fn only_snapshots(input: clap::Arg) -> clap::Arg {
    const HELP: &str = "Snapshot; - for standard input";
    input
        .help(HELP)
        .long_help(format!("{HELP}\n\nPlain, or compressed with gzip, zstd or zip; or a folder with one recording."))
}

/// One input.
#[derive(Clone, Debug, Args)]
pub struct CommonArgs {
    /// Snapshot, profiler trace or memory timeline; - for standard input
    ///
    /// Plain, or compressed with gzip, zstd or zip; or a folder with one recording.
    #[arg(value_name = "INPUT", help_heading = None::<&'static str>, value_parser = one_input())]
    pub input: PathBuf,
    #[command(flatten)]
    shared: SharedArgs,
}

/// The arguments of one input include those of the command.
impl std::ops::Deref for CommonArgs {
    type Target = SharedArgs;

    fn deref(&self) -> &SharedArgs {
        &self.shared
    }
}

/// Arguments that all commands have in common.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = COMMON)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SharedArgs {
    /// Write the output to a file, in the format for its extension; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Open the output file with the desktop's default program
    #[arg(long)]
    pub open: bool,
    /// Overwrite the output file if it exists
    #[arg(long)]
    pub force: bool,
    /// Device number, -1 for pinned host memory, -2 for CPU memory in a profiler trace, or all; may be repeated
    #[arg(long, value_name = "N|all", allow_hyphen_values = true, value_parser = parse_device)]
    pub device: Vec<DeviceArg>,
    /// Python files, by path or package, that also count as your own code; may be repeated
    ///
    /// By default, if one of your lines calls modules of a library that hold most of the memory of all nn.Module calls at the peak,
    /// most commands about one recording (not `leaks` or `check`) show the library's lines instead of yours; '' turns this off.
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    own: Vec<Regex>,
    /// The dictionary key that --by metadata groups by; same as --by metadata:KEY
    #[arg(long, value_name = "KEY")]
    metadata_key: Option<String>,
    /// Exit with 1 if the recording contradicts itself
    #[arg(long)]
    pub strict: bool,
    /// Analyze the readable part of a truncated file
    #[arg(long)]
    pub allow_truncated: bool,
    /// When to use colors; the `NO_COLOR` variable also turns them off
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Limit on the memory that memviz itself uses; if it is exceeded, memviz exits with code 2
    #[arg(long, value_name = "SIZE", default_value = limits::MEMORY, value_parser = limits::parse_memory)]
    pub max_memory: Bytes,
    /// Lift the limit on CPU time: 10 s for up to 20 MB of input, plus 1 s for each further 2 MB
    #[arg(long)]
    no_limit: bool,
    /// Number of threads, and of files that `memviz ranks` reads in parallel [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Print no progress bar, no warnings and no suggested commands
    #[arg(short, long)]
    pub quiet: bool,
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
    /// The expressions for the user's own code, as typed.
    #[cfg(feature = "view")]
    pub fn own(&self) -> Vec<String> {
        self.own.iter().map(|own| own.as_str().to_owned()).collect()
    }

    /// How to present answers that compare recordings.
    pub fn view(&self) -> View {
        let own = self.own.iter().filter(|own| !own.as_str().is_empty()).cloned().collect();
        View { own, metadata_key: self.metadata_key.clone(), ..View::default() }
    }

    /// How to present answers about one recording.
    pub fn view_of_one(&self) -> View {
        View { library_lines: self.own.is_empty(), ..self.view() }
    }

    /// How to present answers whose rows are `by` this: with the user's own categories if they are categories.
    pub fn view_by(&self, by: GroupBy) -> Result<View, Failure> {
        let categories = if by == GroupBy::Category { categories::read()? } else { Vec::new() };
        Ok(View { categories, ..self.view_of_one() })
    }

    /// How to read inputs.
    pub fn read_options(&self, view: View) -> ReadOptions {
        let limits = Limits { memory: self.max_memory.0, ..Limits::default() };
        ReadOptions::default().limits(limits).allow_truncated(self.allow_truncated).view(view)
    }

    /// The selected devices; empty for all.
    pub fn devices(&self) -> Vec<i32> {
        let one = |device: &DeviceArg| match device {
            DeviceArg::One(device) => Some(*device),
            DeviceArg::All => None,
        };
        self.device.iter().map(one).collect::<Option<Vec<i32>>>().unwrap_or_default()
    }
}

impl CommonArgs {
    /// The input as typed.
    pub fn path(&self) -> String {
        Self::shown(&self.input)
    }

    /// The same with this output file.
    pub fn with_output(&self, output: PathBuf) -> Self {
        Self { shared: SharedArgs { output: Some(output), ..self.shared.clone() }, ..self.clone() }
    }

    /// An input as messages name it.
    pub fn shown(input: &Path) -> String {
        if input.as_os_str() == "-" { "<stdin>".to_owned() } else { input.display().to_string() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}
