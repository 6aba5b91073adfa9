//! `memviz man`.

use super::Run;
use super::command_line;
use crate::cli::outcome::{Failure, Outcome};
use clap::Args;
use std::io::{self, Write};

/// Print the manual in troff format
#[derive(Debug, Args)]
pub struct Man;

impl Run for Man {
    /// One page for memviz and one for each command, one after the other.
    fn run(&self) -> Result<Outcome, Failure> {
        let mut cli = command_line();
        cli.build();
        let mut pages = Vec::new();
        clap_mangen::Man::new(cli.clone()).render(&mut pages)?;
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let name: &'static str = format!("memviz-{}", command.get_name()).leak();
            let mut command = command.clone().name(name);
            // A manual page has no place for examples at the start.
            if let Some(examples) = command.get_before_help().cloned() {
                command = command.after_long_help(examples);
            }
            clap_mangen::Man::new(command).render(&mut pages)?;
        }
        io::stdout().write_all(&pages)?;
        Ok(Outcome::Done)
    }
}
