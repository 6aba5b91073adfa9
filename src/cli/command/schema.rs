//! `memviz schema`.

use super::Run;
use crate::cli::outcome::{Failure, Outcome};
use crate::report::schema;
use clap::Args;
use std::io::{self, Write};

/// Print the JSON Schema of --format json output
#[derive(Debug, Args)]
pub struct Schema {
    /// The command [default: every command]
    command: Option<String>,
}

impl Run for Schema {
    fn run(&self) -> Result<Outcome, Failure> {
        let command = self.command.as_deref();
        let Some(schema) = schema::describe(command) else {
            let known: Vec<String> = schema::commands().collect();
            let found = command.unwrap_or_default();
            return Err(Failure::Message(format!("expected one of {}, found {found:?}", known.join(", "))));
        };
        writeln!(io::stdout().lock(), "{schema:#}")?;
        Ok(Outcome::Done)
    }
}
