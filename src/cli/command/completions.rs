//! `memviz completions`.

use super::Run;
use super::command_line;
use crate::cli::outcome::{Failure, Outcome};
use clap::Args;
use clap_complete::Shell;
use std::io::{self, Write};

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Run for Completions {
    fn run(&self) -> Result<Outcome, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command_line(), "memviz", &mut script);
        io::stdout().write_all(&script)?;
        Ok(Outcome::Done)
    }
}
