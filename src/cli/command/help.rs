//! The output of `-h` and `--help`: two examples first, commands in groups, and the common options in one paragraph.

use super::{COMMANDS, Entry, Run};
use crate::cli::args::{COMMON, SharedArgs};
use crate::cli::outcome::{Failure, Outcome};
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use std::io::{self, Write};

names! {
    /// The purpose of a command.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Group {
        /// Shows what is in a recording.
        Look = "Look",
        /// Explains it.
        Explain = "Explain",
        /// Predicts.
        Plan = "Plan",
        /// Fails when memory grows.
        Guard = "Guard",
        /// Writes a file for others.
        Share = "Share",
        /// Prints input for other programs.
        SetUp = "Set up",
    }
}

/// The name of the option that explains the common options.
const FLAG: &str = "help-common";

const EXIT_CODES: &str =
    "Exit codes: 0 success; 1 a requested check failed; 2 error, or a check that cannot be judged.";

/// Examples of the whole program.
const EXAMPLES: [(&str, &str); 2] = [
    ("memviz snapshot.pickle", "the verdict on one screen, and what to run next"),
    ("memviz snapshot.pickle --open", "open the recording in the browser"),
];

/// Example command lines, each with its purpose.
pub(super) fn examples(examples: &[(&str, &str)]) -> String {
    let width = examples.iter().map(|(typed, _)| typed.len()).max().unwrap_or(0);
    let line = |(typed, about): &(&str, &str)| format!("\n  {typed:width$}  # {about}");
    format!("Examples:{}", examples.iter().map(line).collect::<String>())
}

/// The help for memviz as a whole.
pub(super) fn of_all(command: Command) -> Command {
    let commands: String = COMMANDS.iter().enumerate().map(|(place, entry)| listed(place, entry)).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{before-help}}Commands (see `memviz COMMAND -h`):\n{commands}\nOptions:\n{{options}}{{after-help}}"
    );
    command
        .override_usage("memviz [COMMAND] [OPTIONS] FILE...")
        .disable_version_flag(true)
        .arg(version())
        .before_help(examples(&EXAMPLES))
        .after_help(EXIT_CODES)
        .help_template(template)
        .arg(flag())
}

/// A line in the list of commands; the first command of a group has the name of the group before it.
fn listed(place: usize, entry: &Entry) -> String {
    let before = place.checked_sub(1).and_then(|before| COMMANDS.get(before));
    let is_first = before.is_none_or(|before| before.group != entry.group);
    let group = if is_first { entry.group.name() } else { "" };
    let about = entry.command().get_about().map(ToString::to_string).unwrap_or_default();
    format!("  {group:<9}{:<15}{about}\n", entry.name)
}

/// The help for a command.
pub(super) fn of_one(command: Command) -> Command {
    let command =
        command.help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}");
    let is_common = |arg: &Arg| arg.get_help_heading() == Some(COMMON);
    let name = |arg: &Arg| match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => String::new(),
    };
    let common: Vec<String> = command.get_arguments().filter(|arg| is_common(arg)).map(name).collect();
    if common.is_empty() {
        return command;
    }
    command
        .mut_args(|arg| if is_common(&arg) { arg.hide_short_help(true) } else { arg })
        .arg(flag())
        .after_help(format!("{COMMON} (see --{FLAG}): {}", common.join(", ")))
        .after_long_help(EXIT_CODES)
}

/// The option that prints the version, which the short help leaves out to fit on a screen.
fn version() -> Arg {
    let arg = Arg::new("version").short('V').long("version").action(ArgAction::Version);
    arg.hide_short_help(true).help("Print version")
}

fn flag() -> Arg {
    let help = "Print help for the common options";
    Arg::new(FLAG).long(FLAG).action(ArgAction::SetTrue).exclusive(true).hide_short_help(true).help(help)
}

/// Whether the user asked about the common options.
pub fn is_about_common(matches: &ArgMatches) -> bool {
    matches.try_get_one::<bool>(FLAG).ok().flatten().copied().unwrap_or(false)
}

/// Explains the shared options.
#[derive(Debug)]
pub struct CommonOptions;

impl Run for CommonOptions {
    fn run(&self) -> Result<Outcome, Failure> {
        let mut options =
            SharedArgs::augment_args(Command::new("memviz")).help_template("{options}").disable_help_flag(true);
        let text = options.render_long_help().to_string();
        io::stdout().write_all(format!("{COMMON}:\n{}\n", text.trim_end()).as_bytes())?;
        Ok(Outcome::Done)
    }
}
