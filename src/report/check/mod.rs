//! What `memviz check` says.

pub(crate) mod document;
pub(crate) mod github;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod prometheus;
pub mod words;

use crate::report::Answer;
use crate::report::common::document::Document;
use crate::report::common::no_commands::{self, NoCommands};
use std::io::{self, Write};
use words::CheckedInput;

/// One input or several.
impl Answer for [CheckedInput] {
    const COMMAND: &'static str = "check";
    type About<'a> = ();
    type Json = json::CheckOutcome<'static>;

    fn document(&self, (): ()) -> Document {
        document::document(self)
    }

    /// One object for one input; a line of JSON for each of several.
    fn json(&self, (): (), out: &mut dyn Write) -> io::Result<()> {
        if let [input] = self {
            return no_commands::write(&json::check(input), out);
        }
        for input in self {
            serde_json::to_writer(NoCommands::new(out), &json::check(input))?;
            writeln!(out)?;
        }
        Ok(())
    }
}
