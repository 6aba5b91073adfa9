//! `memviz record`.

use super::Run;
use crate::cli::outcome::{Failure, Outcome};
use clap::Args;
use std::io::{self, Write};

/// Print Python code that records memory with PyTorch 2.1 or later
#[derive(Debug, Args)]
pub struct Record {
    /// Print plain PyTorch code for a training script (the default); the recorder in the Python package does more
    #[arg(long)]
    snippet: bool,
    /// Print code for the recorder in the Python package, which also records what holds the memory
    #[arg(long, conflicts_with = "snippet")]
    holders: bool,
}

/// A complete program.
const SNIPPET: &str = include_str!("record.py");

/// The same with the recorder.
const WITH_HOLDERS: &str = include_str!("record_holders.py");

impl Run for Record {
    fn run(&self) -> Result<Outcome, Failure> {
        let code = if self.holders { WITH_HOLDERS } else { SNIPPET };
        io::stdout().write_all(code.as_bytes())?;
        Ok(Outcome::Done)
    }
}
