//! How a page must read the recording that it contains.

use crate::error::{Error, Result};
use crate::input::ReadOptions;
use crate::model::View;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

/// Options of the command that created the page that also matter when the page reads the recording; stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reading {
    /// Whether a file that was cut off is read up to the cut.
    pub allow_truncated: bool,
    /// Expressions for code that is the user's own, as in [`View::own`]; an empty one matches nothing.
    pub own: Vec<String>,
}

impl Reading {
    /// Parses the output of [`Reading::to_json`]; an empty text means the defaults.
    /// Fails if it is anything else.
    pub fn from_json(json: &str) -> Result<Self> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(json).map_err(|error| Error::Request(format!("expected options as JSON: {error}")))
    }

    pub fn to_json(&self) -> String {
        super::json(self)
    }

    /// How the library then reads the recording: as commands about a single recording do.
    /// Fails if an expression is malformed.
    pub fn options(&self) -> Result<ReadOptions> {
        let compile = |text: &String| {
            Regex::new(text)
                .map_err(|error| Error::Request(format!("expected a regular expression, found {text:?} ({error})")))
        };
        let own = self.own.iter().filter(|own| !own.is_empty()).map(compile).collect::<Result<Vec<_>>>()?;
        let view = View::default().own(own).library_lines(self.own.is_empty());
        Ok(ReadOptions::default().allow_truncated(self.allow_truncated).view(view))
    }
}
