//! The commands: a file for each, with what can be typed behind its name and what it then does.

mod check;
mod checkpoint;
mod completions;
mod diff;
mod fit;
mod flamegraph;
mod fragmentation;
mod info;
mod leaks;
mod man;
mod oom;
mod peak;
mod ranks;
mod record;
mod rehearse;
mod report;
mod schema;
mod simulate;
mod timeline;
mod triage;
#[cfg(feature = "view")]
mod view;

use crate::cli::outcome::{Failure, Outcome};
use clap::{ArgMatches, Args, Command};

/// Every command, in the order of the help. A new command is a new line.
pub const COMMANDS: &[Entry] = &[
    entry::<triage::Triage>("triage"),
    entry::<info::Info>("info"),
    entry::<peak::Peak>("peak"),
    entry::<timeline::Timeline>("timeline"),
    entry::<flamegraph::Flamegraph>("flamegraph"),
    entry::<oom::Oom>("oom"),
    entry::<fragmentation::Fragmentation>("fragmentation"),
    entry::<leaks::Leaks>("leaks"),
    entry::<checkpoint::Checkpoint>("checkpoint"),
    entry::<simulate::Simulate>("simulate"),
    entry::<fit::Fit>("fit"),
    entry::<diff::Diff>("diff"),
    entry::<ranks::Ranks>("ranks"),
    entry::<check::Check>("check"),
    entry::<report::Report>("report"),
    #[cfg(feature = "view")]
    entry::<view::View>("view"),
    entry::<record::Record>("record"),
    entry::<rehearse::Rehearse>("rehearse"),
    entry::<schema::Schema>("schema"),
    entry::<completions::Completions>("completions"),
    entry::<man::Man>("man"),
];

const EXIT_CODES: &str = "Exit codes: 0 done; 1 a requested check failed; 2 the command could not do its work.";

const EXAMPLES: &str = "\
Examples:
  memviz snapshot.pickle                        # the verdict on one screen, and what to run next
  memviz report snapshot.pickle -o report.html  # the full report, as an HTML page";

/// The whole command line, for clap.
pub(crate) fn command_line() -> Command {
    Command::new("memviz")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .override_usage("memviz FILE...\n       memviz <COMMAND> [OPTIONS] FILE...")
        .after_help(format!("{EXAMPLES}\n\n{EXIT_CODES}"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(Entry::command))
}

/// What a command does with what was typed.
pub trait Run {
    /// Does the command's work.
    fn run(&self) -> Result<Outcome, Failure>;
}

/// A command: its name, what can be typed behind it, and what comes of that.
pub struct Entry {
    /// What is typed.
    pub name: &'static str,
    arguments: fn(Command) -> Command,
    parse: fn(&ArgMatches) -> Result<Box<dyn Run>, clap::Error>,
}

const fn entry<C: Args + Run + 'static>(name: &'static str) -> Entry {
    Entry { name, arguments: C::augment_args, parse: parse::<C> }
}

fn parse<C: Args + Run + 'static>(matches: &ArgMatches) -> Result<Box<dyn Run>, clap::Error> {
    Ok(Box::new(C::from_arg_matches(matches)?))
}

/// The end of a command's help: command lines to begin with, each with what it is for.
fn examples(examples: &[(&str, &str)]) -> String {
    let width = examples.iter().map(|(typed, _)| typed.len()).max().unwrap_or(0);
    let line = |(typed, about): &(&str, &str)| format!("\n  {typed:width$}  # {about}");
    format!("Examples:{}", examples.iter().map(line).collect::<String>())
}

impl Entry {
    /// The command for clap, with its help: the first paragraph above its type.
    pub fn command(&self) -> Command {
        (self.arguments)(Command::new(self.name))
    }

    /// The command as it was typed.
    ///
    /// # Errors
    /// When the arguments do not fit together.
    pub fn parse(&self, matches: &ArgMatches) -> Result<Box<dyn Run>, clap::Error> {
        (self.parse)(matches)
    }
}
