//! From arguments to options to stages to output.
//!
//! In: the process's arguments and streams. Out: an exit code. Arguments are converted to plain library options here; code
//! outside this module does not use clap.

mod args;
#[cfg(feature = "view")]
mod browser;
mod categories;
mod changes;
mod code_lines;
mod command;
mod desktop;
mod device_memory;
mod files;
mod format;
mod instants;
mod limits;
mod outcome;
mod output;
mod progress;
mod recording;
#[cfg(feature = "view")]
mod serve;
mod source_folder;

pub use outcome::Outcome;

use crate::input::collect::only_recording;
use crate::model::bytes::Bytes;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use command::{COMMANDS, Run, command_line, command_line_of, help};
use limits::Limits;
use outcome::{Failure, complain};
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;

/// Options of every command that may also precede it, without a value and with one.
const FLAGS: [&str; 3] = ["-q", "--quiet", "--no-limit"];
const WITH_VALUE: [&str; 4] = ["--color", "--max-memory", "--threads", "--device"];

/// The command in `arguments`. Limits in them apply before any argument is used.
fn parse(arguments: Vec<OsString>, enforce: fn(Limits)) -> Result<Box<dyn Run>, clap::Error> {
    let arguments = with_metadata_key(arguments);
    // Building every command takes a millisecond, a sixth of the time for a small recording, and only help and errors need it.
    let named = COMMANDS.iter().find(|entry| arguments.get(1).is_some_and(|name| name == entry.name));
    let matches = named.and_then(|entry| command_line_of(entry).try_get_matches_from(&arguments).ok());
    let matches = matches.map_or_else(|| command_line().try_get_matches_from(arguments), Ok)?;
    let asked = matches.subcommand().map(|(_, matches)| matches);
    if [Some(&matches), asked].into_iter().flatten().any(help::is_about_common) {
        return Ok(Box::new(help::CommonOptions));
    }
    if let Some(matches) = asked {
        let memory = matches.try_get_one::<Bytes>("max_memory").ok().flatten();
        let work = !matches.try_get_one::<bool>("no_limit").ok().flatten().copied().unwrap_or(false);
        memory.map(|memory| Limits { memory: memory.0, work }).into_iter().for_each(enforce);
    }
    let asked = matches
        .subcommand()
        .and_then(|(name, matches)| COMMANDS.iter().find(|entry| entry.name == name).map(|entry| entry.parse(matches)));
    asked.unwrap_or_else(|| Err(command_line().error(ErrorKind::MissingSubcommand, "expected a command, found none")))
}

/// Expands the key of a group: `--by metadata:KEY` becomes `--by metadata --metadata-key KEY`.
fn with_metadata_key(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut expects_group = false;
    let mut expanded = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let text = argument.to_str().unwrap_or_default();
        let group = if expects_group { Some(text) } else { text.strip_prefix("--by=") };
        let key = group.and_then(|group| group.strip_prefix("metadata:")).filter(|key| !key.is_empty());
        if let Some(key) = key {
            let group = if expects_group { "metadata" } else { "--by=metadata" };
            expanded.extend([group.to_owned(), format!("--metadata-key={key}")].map(OsString::from));
            expects_group = false;
        } else {
            expects_group = text == "--by";
            expanded.push(argument);
        }
    }
    expanded
}

/// Moves options that every command has behind the command or file: `memviz --color never FILE`.
fn with_options_behind(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let mut place = 1;
    while let Some(argument) = arguments.get(place) {
        let text = argument.to_str().unwrap_or_default();
        let has_value = text.split_once('=').is_some_and(|(name, _)| WITH_VALUE.contains(&name));
        if has_value || FLAGS.contains(&text) {
            place += 1;
        } else if WITH_VALUE.contains(&text) {
            place += 2;
        } else {
            break;
        }
    }
    if arguments.get(place).is_some_and(|argument| !argument.to_string_lossy().starts_with('-')) {
        arguments[1..=place].rotate_right(1);
    }
    arguments
}

/// Adds the command if a file takes its place: `memviz FILE` means triage, `memviz FILE --open` the page, and several files,
/// a folder of them or a pattern mean ranks. The name of a command always means that command, and clap reports any other
/// word.
fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(first) = arguments.get(1) else { return arguments };
    let name = first.to_string_lossy();
    let looks_like_a_file = name == "-" || name.contains(['.', '/', '\\', '*']) || Path::new(first).exists();
    let is_option = name.starts_with('-') && name != "-";
    if is_option || !looks_like_a_file || COMMANDS.iter().any(|entry| entry.name == name) {
        return arguments;
    }
    // A folder of code is not a recording.
    let is_file = |pair: &&[OsString]| {
        !pair[1].to_string_lossy().starts_with('-') && pair[0] != "--source" && Path::new(&pair[1]).exists()
    };
    let files = arguments.windows(2).filter(is_file).count();
    let is_folder = Path::new(first).is_dir() && only_recording(Path::new(first)).is_none();
    let is_one = !name.contains('*') && !is_folder && files < 2;
    let command = match is_one {
        true if is_to_open(&arguments) => "view",
        true => "triage",
        false => "ranks",
    };
    arguments.insert(1, command.into());
    arguments
}

/// Whether an answer without an output file is to be opened: then it is the page.
fn is_to_open(arguments: &[OsString]) -> bool {
    let is_output = |text: &str| text == "--output" || text.starts_with("--output=") || text.starts_with("-o");
    let texts = || arguments.iter().filter_map(|argument| argument.to_str());
    cfg!(feature = "view") && texts().any(|text| text == "--open") && !texts().any(is_output)
}

/// Runs the command line `arguments` (program name first).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    run_within(arguments, Limits::enforce)
}

/// The same in a process that has its own limits and may run any number of commands: neither memory nor time is limited.
pub fn run_unlimited(arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    run_within(arguments, |_| ())
}

fn run_within(arguments: impl IntoIterator<Item = OsString>, enforce: fn(Limits)) -> Outcome {
    let arguments = with_command(with_options_behind(arguments.into_iter().collect()));
    let command = match parse(arguments.clone(), enforce) {
        Ok(command) => command,
        Err(error) => return refuse(&error, arguments.get(1)),
    };
    let result = command.run();
    match result {
        Ok(outcome) => outcome,
        Err(Failure::ClosedPipe) => Outcome::Done,
        Err(Failure::Message(message)) => {
            complain(&message);
            Outcome::Failed
        }
    }
}

/// Reports why there is no command to run: on one line, except for requested help and a missing command.
fn refuse(error: &clap::Error, command: Option<&OsString>) -> Outcome {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Help and version are not errors; clap prints them to standard output.
        let _ = error.print();
        return if error.use_stderr() { Outcome::Failed } else { Outcome::Done };
    }
    // Hints and a reminder of the usage follow the first empty line.
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let message: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let meant = meant_option(error, command).map(|flag| format!("tip: a similar argument exists: '--{flag}'"));
    let tip = meant.or_else(|| lines.find(|line| line.starts_with("tip: ")).map(str::to_owned));
    let tip = tip.map(|tip| format!(" ({tip})")).unwrap_or_default();
    let mut message = message.join(" ");
    if let Some(reason) = std::error::Error::source(error)
        && let Some(plain) = plain_reason(reason)
    {
        message = message.replace(&reason.to_string(), &plain);
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && Path::new(argument).exists()
    {
        complain(&format!(
            "expected one recording, found a second one: {argument}; to compare two recordings, run memviz diff; to compare more, run memviz ranks"
        ));
        return Outcome::Failed;
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && COMMANDS.iter().any(|entry| entry.name == argument)
    {
        complain(&format!("expected the command before the file: memviz {argument} FILE"));
        return Outcome::Failed;
    }
    if let Some(option) = misplaced_option(error, command) {
        complain(&format!("expected a command or FILE before {option}: options follow it"));
        return Outcome::Failed;
    }
    let left_out = command.and_then(|typed| LEFT_OUT.iter().find(|name| typed == **name));
    if let (ErrorKind::InvalidSubcommand, Some(name)) = (error.kind(), left_out) {
        complain(&format!(
            "expected a build of memviz with the feature {name} (cargo install --path . --features {name}; the Python package has it, too)"
        ));
        return Outcome::Failed;
    }
    complain(&format!("{}{tip}", message.strip_prefix("error: ").unwrap_or(&message)));
    Outcome::Failed
}

/// Commands that this build lacks. Each has a feature of the same name.
const LEFT_OUT: &[&str] = &[
    #[cfg(not(feature = "export"))]
    "export",
    #[cfg(not(feature = "mcp"))]
    "mcp",
    #[cfg(not(feature = "nsys"))]
    "nsys",
    #[cfg(not(feature = "view"))]
    "view",
];

/// Why a value is not a number that an option accepts, where the reason is in Rust's words: `0 is not in 1..=256`.
fn plain_reason(reason: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = reason.downcast_ref::<ParseIntError>() {
        let is_too_large = matches!(error.kind(), IntErrorKind::PosOverflow);
        return Some(if is_too_large { "expected a smaller number" } else { "expected a whole number" }.to_owned());
    }
    let text = reason.to_string();
    let (first, last) = text.split_once(" is not in ")?.1.split_once("..=")?;
    Some(format!("expected a whole number from {first} to {last}"))
}

/// The first argument, if it is an option of a command, which must follow the command.
fn misplaced_option(error: &clap::Error, first: Option<&OsString>) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_first = first.and_then(|first| first.to_str()).is_some_and(|first| first.starts_with(typed.as_str()));
    let flag = typed.strip_prefix("--").filter(|_| is_first && error.kind() == ErrorKind::UnknownArgument)?;
    let has = |command: clap::Command| command.get_arguments().any(|option| option.get_long() == Some(flag));
    COMMANDS.iter().any(|entry| has(entry.command())).then(|| typed.clone())
}

/// The option of a command that an unknown one stands for: one that ends in its word, or has the same letters in another order.
/// Clap's similarity measure finds `--context` for `--conf`, and nothing for `--tpo`.
fn meant_option(error: &clap::Error, command: Option<&OsString>) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let sorted = |flag: &str| {
        let mut letters: Vec<char> = flag.chars().collect();
        letters.sort_unstable();
        letters
    };
    let typed = typed.strip_prefix("--")?;
    let letters = sorted(typed);
    let is_meant = |flag: &&str| {
        let before = flag.strip_suffix(typed).filter(|_| !typed.is_empty());
        before.is_some_and(|before| before.ends_with('-')) || sorted(flag) == letters
    };
    let entry = COMMANDS.iter().find(|entry| command.is_some_and(|command| command == entry.name))?;
    entry.command().get_arguments().filter_map(|flag| flag.get_long()).find(is_meant).map(str::to_owned)
}
