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
}

/// A complete program.
const SNIPPET: &str = include_str!("record.py");

impl Run for Record {
    fn run(&self) -> Result<Outcome, Failure> {
        io::stdout().write_all(SNIPPET.as_bytes())?;
        Ok(Outcome::Done)
    }
}
