//! The user's own categories: `[categories]` of `memviz.toml` in the working directory, from names to regular expressions.

use super::args::parse_regex;
use super::outcome::Failure;
use indexmap::IndexMap;
use regex_lite::Regex;
use serde::Deserialize;
use std::fs;
use std::io::ErrorKind;

/// The file of a repository, in the working directory.
pub const CONFIG: &str = "memviz.toml";

/// The part of the file about categories.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    categories: IndexMap<String, String>,
}

/// The categories in the order of the file; none if there is no file.
pub fn read() -> Result<Vec<(String, Regex)>, Failure> {
    let wrong = |message: String| Failure::Message(format!("{CONFIG}: {}", message.replace('\n', ", ")));
    let text = match fs::read_to_string(CONFIG) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
    let compile = |(name, pattern): (String, String)| match parse_regex(&pattern) {
        Ok(pattern) => Ok((name, pattern)),
        Err(error) => Err(wrong(format!("category {name:?}: {error}"))),
    };
    file.categories.into_iter().map(compile).collect()
}
