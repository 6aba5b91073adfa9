//! How a page is to read the recording that it carries.

use crate::error::{Error, Result};
use crate::input::ReadOptions;
use crate::model::View;
use regex::Regex;
use serde::{Deserialize, Serialize};

/// What was requested when the page was made and matters when the recording is read again: by then as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reading {
    /// Whether a file that was cut off is read up to the cut.
    pub allow_truncated: bool,
    /// Expressions for code that is the user's own, as in [`View::own`]; one that is empty names nothing.
    pub own: Vec<String>,
}

impl Reading {
    /// Parses the output of [`Reading::to_json`]; an empty text means the defaults.
    ///
    /// # Errors
    /// If it is something else.
    pub fn from_json(json: &str) -> Result<Self> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(json).map_err(|error| Error::Request(format!("expected options as JSON: {error}")))
    }

    /// As an object.
    pub fn to_json(&self) -> String {
        super::json(self)
    }

    /// How the library reads a recording then: as commands about a single one do.
    ///
    /// # Errors
    /// If an expression is malformed.
    pub fn options(&self) -> Result<ReadOptions> {
        let compile = |text: &String| {
            Regex::new(text).map_err(|_| Error::Request(format!("expected a regular expression, found {text:?}")))
        };
        let own = self.own.iter().filter(|own| !own.is_empty()).map(compile).collect::<Result<Vec<_>>>()?;
        let view = View::default().own(own).library_lines(self.own.is_empty());
        Ok(ReadOptions { allow_truncated: self.allow_truncated, view, ..ReadOptions::default() })
    }
}
