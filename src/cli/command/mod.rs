//! The commands: a file for each, with its arguments and what it does.

mod blocks;
mod check;
mod checkpoint;
mod completions;
mod diff;
mod excerpt;
#[cfg(feature = "export")]
mod export;
mod fit;
mod fix;
mod flamegraph;
mod fragmentation;
pub mod help;
mod info;
mod leaks;
mod ledger;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "nsys")]
mod nsys;
mod oom;
mod peak;
mod ranks;
mod record;
mod rehearse;
mod report;
mod rules;
mod schema;
mod simulate;
mod timeline;
mod triage;
#[cfg(feature = "view")]
mod view;

use crate::cli::outcome::{Failure, Outcome};
use clap::{ArgMatches, Args, Command};
use help::{Group, examples};

/// Every command, in the order of the help.
pub const COMMANDS: &[Entry] = &[
    entry::<triage::Triage>("triage", Group::Look),
    entry::<info::Info>("info", Group::Look),
    entry::<peak::Peak>("peak", Group::Look),
    entry::<blocks::Blocks>("blocks", Group::Look),
    entry::<timeline::Timeline>("timeline", Group::Look),
    entry::<flamegraph::Flamegraph>("flamegraph", Group::Look),
    #[cfg(feature = "view")]
    entry::<view::View>("view", Group::Look),
    entry::<oom::Oom>("oom", Group::Explain),
    entry::<fragmentation::Fragmentation>("fragmentation", Group::Explain),
    entry::<leaks::Leaks>("leaks", Group::Explain),
    entry::<ledger::Ledger>("ledger", Group::Explain),
    entry::<rules::Rules>("rules", Group::Explain),
    #[cfg(feature = "nsys")]
    entry::<nsys::Nsys>("nsys", Group::Explain),
    entry::<diff::Diff>("diff", Group::Explain),
    entry::<ranks::Ranks>("ranks", Group::Explain),
    entry::<checkpoint::Checkpoint>("checkpoint", Group::Plan),
    entry::<simulate::Simulate>("simulate", Group::Plan),
    entry::<fit::Fit>("fit", Group::Plan),
    entry::<fix::Fix>("fix", Group::Plan),
    entry::<rehearse::Rehearse>("rehearse", Group::Plan),
    entry::<check::Check>("check", Group::Guard),
    entry::<report::Report>("report", Group::Share),
    #[cfg(feature = "export")]
    entry::<export::Export>("export", Group::Share),
    entry::<excerpt::Excerpt>("excerpt", Group::Share),
    entry::<record::Record>("record", Group::SetUp),
    #[cfg(feature = "mcp")]
    entry::<mcp::Mcp>("mcp", Group::SetUp),
    entry::<schema::Schema>("schema", Group::SetUp),
    entry::<completions::Completions>("completions", Group::SetUp),
    entry::<man::Man>("man", Group::SetUp),
];

/// The whole command line, for clap.
pub(crate) fn command_line() -> Command {
    let command = Command::new("memviz")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(Entry::command));
    help::of_all(command)
}

/// The command line with one command. It parses valid arguments like the whole one; its help and errors lack the rest.
pub(crate) fn command_line_of(entry: &Entry) -> Command {
    Command::new("memviz").subcommand(entry.command())
}

/// A command with its arguments.
pub trait Run {
    /// Does the command's work.
    fn run(&self) -> Result<Outcome, Failure>;
}

/// A command: its name, its arguments, and how to run it.
pub struct Entry {
    /// The name, as typed.
    pub name: &'static str,
    /// Its group in the help.
    group: Group,
    arguments: fn(Command) -> Command,
    parse: fn(&ArgMatches) -> Result<Box<dyn Run>, clap::Error>,
}

const fn entry<C: Args + Run + 'static>(name: &'static str, group: Group) -> Entry {
    Entry { name, group, arguments: C::augment_args, parse: parse::<C> }
}

fn parse<C: Args + Run + 'static>(matches: &ArgMatches) -> Result<Box<dyn Run>, clap::Error> {
    Ok(Box::new(C::from_arg_matches(matches)?))
}

impl Entry {
    /// The command for clap. Its help is the first paragraph of its type's documentation.
    pub fn command(&self) -> Command {
        help::of_one((self.arguments)(Command::new(self.name)))
    }

    /// The command with the typed arguments.
    /// Fails if the arguments are not valid together.
    pub fn parse(&self, matches: &ArgMatches) -> Result<Box<dyn Run>, clap::Error> {
        (self.parse)(matches)
    }
}
