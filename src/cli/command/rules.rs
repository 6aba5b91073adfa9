//! `memviz rules`.

use super::Run;
use crate::analysis::advice::RuleKind;
use crate::cli::outcome::{Failure, Outcome};
use clap::Args;
use std::io::{self, Write};

/// Explain the mistakes that memviz finds, their fixes and the figures
///
/// Without a name, it lists all rules. The names are those in JSON.
#[derive(Debug, Args)]
pub struct Rules {
    /// The rule to explain [default: list all]
    name: Option<String>,
}

impl Run for Rules {
    fn run(&self) -> Result<Outcome, Failure> {
        let mut out = io::stdout().lock();
        let Some(name) = &self.name else {
            let width = RuleKind::ALL.iter().map(|kind| kind.name().len()).max().unwrap_or(0);
            for kind in RuleKind::ALL {
                writeln!(out, "{:width$}  {}", kind.name(), kind.title().trim_end_matches('.'))?;
            }
            return Ok(Outcome::Done);
        };
        let Some(kind) = RuleKind::ALL.iter().find(|kind| kind.name() == name) else {
            let known: Vec<&str> = RuleKind::ALL.iter().map(|kind| kind.name()).collect();
            return Err(Failure::Message(format!("expected one of {}, found {name:?}", known.join(", "))));
        };
        write!(out, "{}\n\n{}", kind.title(), kind.page())?;
        Ok(Outcome::Done)
    }
}
