//! `memviz schema`.

use crate::cli::{Failure, Outcome};
use crate::report::schema;
use std::io::{self, Write};

pub fn run(command: Option<&str>) -> Result<Outcome, Failure> {
    let Some(schema) = schema::describe(command) else {
        let known: Vec<&str> = schema::commands().collect();
        let found = command.unwrap_or_default();
        return Err(Failure::Message(format!("expected one of {}, found {found:?}", known.join(", "))));
    };
    writeln!(io::stdout().lock(), "{schema:#}")?;
    Ok(Outcome::Done)
}
