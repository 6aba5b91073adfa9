//! Arguments to options to stages to output.
//!
//! In: the process's arguments and streams. Out: an exit code. Everything a person typed is turned into plain library
//! options here; nothing past this module sees clap.

mod args;
mod baselines;
mod command;
mod files;
mod output;
mod plan;
mod progress;

use crate::report::safe;
use args::{Cli, Command};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// How a run ended. The numbers are the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done = 0,
    /// A requested check failed.
    CheckFailed = 1,
    /// The command could not do its work.
    Failed = 2,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

/// Why a command failed, with the file concerned in front.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A one-line message.
    Message(String),
    /// The reader of the output went away: no failure at all.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn about(path: &str, error: &crate::Error) -> Self {
        Self::Message(format!("{path}: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Message(error.to_string()),
        }
    }
}

/// Runs the command line `arguments` (program name first).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Info(args) => command::info::run(&args),
        Command::Fragmentation(args) => command::fragmentation::run(&args),
        Command::Oom(args) => command::oom::run(&args),
        Command::Peak(args) => command::peak::run(&args),
        Command::Timeline(args) => command::timeline::run(&args),
        Command::Flamegraph(args) => command::flamegraph::run(&args),
        Command::Report(args) => command::report::run(&args),
        Command::Leaks(args) => command::leaks::run(&args),
        Command::Checkpoint(args) => command::checkpoint::run(&args),
        Command::Diff(args) => command::diff::run(&args),
        Command::Schema { command } => command::schema::run(command.as_deref()),
        Command::Check(args) => command::check::run(&args),
        Command::Ranks(args) => command::ranks::run(&args),
        Command::Completions { shell } => completions(shell),
        Command::Man => man(),
    };
    match result {
        Ok(outcome) => outcome,
        Err(Failure::ClosedPipe) => Outcome::Done,
        Err(Failure::Message(message)) => {
            complain(&message);
            Outcome::Failed
        }
    }
}

/// Says why there is nothing to run: on one line, unless it is help that was asked for, or that there is no command.
fn refuse(error: &clap::Error) -> Outcome {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Help and version are no errors, and clap prints them to standard output.
        let _ = error.print();
        return if error.use_stderr() { Outcome::Failed } else { Outcome::Done };
    }
    // What follows the first empty line are hints, and a reminder of the usage.
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let message: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let tip = lines.find(|line| line.starts_with("tip: ")).map(|tip| format!(" ({tip})")).unwrap_or_default();
    let message = message.join(" ");
    complain(&format!("{}{tip}", message.strip_prefix("error: ").unwrap_or(&message)));
    Outcome::Failed
}

/// Writes one line to standard error. Messages can quote names from a file, which must not reach a terminal as they are.
fn complain(message: &str) {
    // There is nobody left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "memviz: {}", safe(message));
}

fn completions(shell: clap_complete::Shell) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "memviz", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}

/// The manual: one page for memviz and one for each command, one after the other.
fn man() -> Result<Outcome, Failure> {
    let mut cli = Cli::command();
    cli.build();
    let mut pages = Vec::new();
    clap_mangen::Man::new(cli.clone()).render(&mut pages)?;
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        let name: &'static str = format!("memviz-{}", command.get_name()).leak();
        clap_mangen::Man::new(command.clone().name(name)).render(&mut pages)?;
    }
    io::stdout().write_all(&pages)?;
    Ok(Outcome::Done)
}
