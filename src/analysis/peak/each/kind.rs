//! The kinds of ranges for which peaks can be requested.

use crate::error::{Error, Result};
use regex_lite::Regex;
use std::str::FromStr;

/// Label of the period outside all ranges that contains the overall peak.
pub const OUTSIDE: &str = "(outside)";

#[derive(Clone, Debug)]
pub enum Each {
    /// Iterations of the training or inference loop: see [`crate::facts::training::steps::Steps`].
    Step,
    /// Periods of forward, backward and so on: see [`crate::facts::training::Phases`].
    Phase,
    /// `record_function` ranges, including nested ones; with an expression, only those whose names match.
    Annotation(Option<Regex>),
}

impl Each {
    /// The name as in flags and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Phase => "phase",
            Self::Annotation(_) => "annotation",
        }
    }
}

impl FromStr for Each {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let pattern = |pattern: &str| {
            Regex::new(pattern).map_err(|error| {
                Error::Request(format!("expected a regular expression after annotation, found {pattern:?} ({error})"))
            })
        };
        match text.split_once(':') {
            None if text == "step" => Ok(Self::Step),
            None if text == "phase" => Ok(Self::Phase),
            None if text == "annotation" => Ok(Self::Annotation(None)),
            Some(("annotation", names)) => pattern(names).map(|pattern| Self::Annotation(Some(pattern))),
            _ => Err(Error::Request(format!("expected step, phase, annotation or annotation:REGEX, found {text:?}"))),
        }
    }
}
