//! The tools: which command answers, and which of its options are available. Their descriptions are those of the command's
//! help.

use super::roots::Roots;
use crate::analysis::check::config;
use crate::cli::command::COMMANDS;
use crate::cli::files::read_text;
use crate::facts::time::when::When;
use clap::{Arg, ArgAction};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A tool: a command with some of its options.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// The command that answers.
    command: &'static str,
    /// Its description, if it differs from the command's help.
    about: Option<&'static str>,
    inputs: Inputs,
    /// Options that are always set.
    fixed: &'static [&'static str],
    /// Available options, by their names in the command.
    options: &'static [&'static str],
}

/// The inputs of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inputs {
    One,
    /// A base and the recording to compare with it, each with an instant.
    Two,
    /// Several, each named separately.
    Some,
    /// Any number, also as folders and patterns.
    Many,
}

/// Options of every tool about recordings.
const COMMON: [&str; 3] = ["device", "own", "allow-truncated"];
/// Changes of a program.
const CHANGES: [&str; 9] = [
    "checkpoint",
    "optimizer",
    "shard-optimizer",
    "shard-gradients",
    "shard-parameters",
    "offload",
    "chunk-loss",
    "accumulate",
    "inference",
];

/// Every tool that runs a command, in the order of typical questions.
pub const TOOLS: &[Tool] = &[
    Tool {
        about: Some("Start here: the verdict on a recording, what holds its peak, and what to change"),
        ..tool("triage")
    },
    tool("info"),
    Tool {
        options: &["by", "top", "at", "each", "from", "to", "metric", "include", "exclude", "all-frames"],
        ..tool("peak")
    },
    Tool { options: &["id", "address", "at", "top"], ..tool("blocks") },
    Tool {
        name: "timeline",
        about: Some("Show memory over time in rows: reserved memory, inactive memory, and the inactive share"),
        fixed: &["--over-time"],
        options: &["points"],
        ..tool("fragmentation")
    },
    Tool { options: &["by", "top", "all", "include", "exclude", "all-frames"], ..tool("oom") },
    Tool { options: &["by", "steps", "capacity", "top", "all", "include", "exclude"], ..tool("leaks") },
    Tool { options: &["at", "by", "top", "all", "include", "exclude"], ..tool("fragmentation") },
    Tool { options: &["capacity", "gpu"], ..tool("ledger") },
    #[cfg(feature = "nsys")]
    Tool { options: &["snapshot"], ..tool("nsys") },
    Tool { options: &["top", "fit"], ..tool("checkpoint") },
    Tool { options: &["alloc-conf", "sweep", "capacity", "gpu", "context"], ..tool("simulate") },
    Tool {
        inputs: Inputs::Some,
        options: &["capacity", "gpu", "vary", "at", "tokens", "context", "alloc-conf", "top"],
        ..tool("fit")
    },
    Tool { inputs: Inputs::Two, options: &["by", "top", "at", "metric", "include", "exclude"], ..tool("diff") },
    Tool { inputs: Inputs::Many, options: &["metric", "top"], ..tool("ranks") },
    Tool {
        inputs: Inputs::Some,
        options: &[
            "max-peak",
            "max-reserved",
            "max-fragmentation",
            "max-leak",
            "max-site",
            "max-residue",
            "capacity",
            "steps",
            "baseline",
            "tolerance",
            "accept-late-start",
            "require-counters",
        ],
        ..tool("check")
    },
];

const fn tool(command: &'static str) -> Tool {
    Tool { name: command, command, about: None, inputs: Inputs::One, fixed: &[], options: &[] }
}

/// A question for a tool, as arguments of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The command, its options, and the inputs; everything except the format.
    pub arguments: Vec<OsString>,
    /// The files in the question.
    pub files: Vec<PathBuf>,
}

impl Tool {
    /// The description.
    pub fn about(&self) -> String {
        let about = || self.arguments().map(|command| command.get_about().map(ToString::to_string).unwrap_or_default());
        self.about.map(str::to_owned).or_else(about).unwrap_or_default()
    }

    fn arguments(&self) -> Option<clap::Command> {
        COMMANDS.iter().find(|entry| entry.name == self.command).map(super::super::Entry::command)
    }

    /// The available options, as the command describes them.
    fn options(&self) -> Vec<Arg> {
        let changes: &[&str] = if matches!(self.name, "simulate" | "fit") { &CHANGES } else { &[] };
        let common: &[&str] = if matches!(self.name, "ranks" | "check") { &COMMON[..1] } else { &COMMON };
        let named = |arg: &&Arg| {
            let long = arg.get_long().unwrap_or_default();
            [self.options, changes, common].iter().any(|options| options.contains(&long))
        };
        self.arguments().iter().flat_map(clap::Command::get_arguments).filter(named).cloned().collect()
    }

    /// The JSON Schema of the arguments.
    pub fn schema(&self) -> Map<String, Value> {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let mut properties = Map::new();
        let required: &[&str] = match self.inputs {
            Inputs::One => {
                properties.insert("input".to_owned(), text("Path of the recording"));
                &["input"]
            }
            Inputs::Two => {
                properties.insert("base".to_owned(), text("Path of the recording to compare with"));
                properties.insert(
                    "new".to_owned(),
                    text("Path of the new recording; the same path as base to compare two instants of one recording"),
                );
                properties.insert("base_at".to_owned(), text("Instant of the base, such as step:3:end"));
                properties.insert("new_at".to_owned(), text("Instant of the new recording"));
                &["base", "new"]
            }
            Inputs::Some | Inputs::Many => {
                let is_many = self.inputs == Inputs::Many;
                let about =
                    if is_many { "Paths of recordings, folders of them, or globs" } else { "Paths of recordings" };
                let schema = json!({ "type": "array", "items": { "type": "string" }, "description": about });
                properties.insert("inputs".to_owned(), schema);
                &["inputs"]
            }
        };
        for option in self.options() {
            properties.insert(key_of(&option), described(&option));
        }
        properties
            .insert("format".to_owned(), json!({ "type": "string", "enum": ["text", "json"], "default": "text" }));
        properties.insert("max_bytes".to_owned(), super::max_bytes_schema());
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        if let Value::Object(schema) = schema { schema } else { Map::new() }
    }

    /// The question for the arguments in `given`.
    /// Fails if an argument is invalid or missing, or names a file outside the folders.
    pub fn question(&self, given: &Map<String, Value>, roots: &Roots) -> Result<Question, String> {
        let options = self.options();
        let inputs: &[&str] = match self.inputs {
            Inputs::One => &["input"],
            Inputs::Two => &["base", "new", "base_at", "new_at"],
            Inputs::Some | Inputs::Many => &["inputs"],
        };
        let mut arguments: Vec<OsString> = vec![self.command.into()];
        arguments.extend(self.fixed.iter().map(OsString::from));
        for (key, value) in given {
            if inputs.contains(&key.as_str()) || super::BOUNDS.contains(&key.as_str()) || value.is_null() {
                continue;
            }
            let Some(option) = options.iter().find(|option| key_of(option) == *key) else {
                let known: Vec<String> =
                    inputs.iter().map(ToString::to_string).chain(options.iter().map(key_of)).collect();
                return Err(format!("expected arguments of {}: {}; found {key:?}", self.name, known.join(", ")));
            };
            arguments.extend(typed(option, value, roots)?);
        }
        let (files, inputs) = self.inputs(given, roots)?;
        if self.command == "check" || given.get("by").is_some_and(|by| by == "category") {
            require_inside(roots)?;
        }
        arguments.push("--".into());
        arguments.extend(inputs);
        Ok(Question { arguments, files })
    }

    /// The files, and their names on the command line.
    fn inputs(&self, given: &Map<String, Value>, roots: &Roots) -> Result<(Vec<PathBuf>, Vec<OsString>), String> {
        let text = |key: &str| {
            let value = given.get(key).filter(|value| !value.is_null());
            let bad = |found: &Value| format!("{key}: expected a string, found {}", kind(found));
            value.map(|value| value.as_str().ok_or_else(|| bad(value))).transpose()
        };
        let needed = |key: &str| text(key)?.ok_or_else(|| format!("expected {key}, found nothing"));
        match self.inputs {
            Inputs::One => {
                let file = roots.recording(needed("input")?)?;
                Ok((vec![file.clone()], vec![file.into()]))
            }
            Inputs::Two => {
                let (base, new) = (roots.recording(needed("base")?)?, roots.recording(needed("new")?)?);
                let inputs = vec![at(&base, text("base_at")?, roots)?, at(&new, text("new_at")?, roots)?];
                Ok((vec![base, new], inputs))
            }
            Inputs::Some | Inputs::Many => {
                let bad = || "inputs: expected a list of at least one path".to_owned();
                let typed = match given.get("inputs") {
                    Some(Value::String(one)) => vec![one.clone()],
                    Some(Value::Array(list)) => {
                        let texts: Option<Vec<String>> =
                            list.iter().map(|item| item.as_str().map(str::to_owned)).collect();
                        texts.filter(|texts| !texts.is_empty()).ok_or_else(bad)?
                    }
                    _ => return Err(bad()),
                };
                if self.inputs == Inputs::Many {
                    let (given, files) = roots.recordings(&typed)?;
                    return Ok((files, given.into_iter().map(OsString::from).collect()));
                }
                let files = typed.iter().map(|path| roots.recording(path)).collect::<Result<Vec<_>, _>>()?;
                Ok((files.clone(), files.into_iter().map(OsString::from).collect()))
            }
        }
    }
}

/// A file with an instant, in the syntax of `memviz diff`.
fn at(file: &Path, instant: Option<&str>, roots: &Roots) -> Result<OsString, String> {
    let Some(instant) = instant else { return Ok(file.into()) };
    instant.parse::<When>().map_err(|error| error.to_string())?;
    // The command treats all of it as a file name if that file exists, otherwise the part before the @.
    let Some(name) = file.to_str().filter(|name| !name.contains('@')) else {
        return Err(format!(
            "{}: expected a file name without @, because an instant of this file is requested",
            file.display()
        ));
    };
    let typed = format!("{name}@{instant}");
    let is_file = roots.first().join(&typed).symlink_metadata().is_ok();
    if is_file { Err(format!("expected an instant, found the file {typed:?}")) } else { Ok(typed.into()) }
}

/// The name of an option here.
fn key_of(option: &Arg) -> String {
    option.get_long().unwrap_or_default().replace('-', "_")
}

fn described(option: &Arg) -> Value {
    let about = option.get_help().map(ToString::to_string).unwrap_or_default();
    let names: Vec<String> = option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let is_number = option.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "N"));
    let mut one = match option.get_action() {
        ArgAction::SetTrue => json!({ "type": "boolean" }),
        _ if !names.is_empty() => json!({ "type": "string", "enum": names }),
        _ if is_number => json!({ "type": "integer" }),
        _ => json!({ "type": "string" }),
    };
    if matches!(option.get_action(), ArgAction::Append) {
        one = json!({ "type": "array", "items": one });
    }
    one["description"] = about.into();
    one
}

/// An option on the command line. Each value is in the same word as the option's name, so it cannot be parsed as anything
/// else.
fn typed(option: &Arg, value: &Value, roots: &Roots) -> Result<Vec<OsString>, String> {
    let (key, long) = (key_of(option), option.get_long().unwrap_or_default());
    let is_list = matches!(option.get_action(), ArgAction::Append);
    let bad = |value: &Value, wanted: &str| format!("{key}: expected {wanted}, found {}", kind(value));
    let one = |value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(bad(value, if is_list { "a list of strings" } else { "a string or a number" })),
        };
        let text = match long {
            "baseline" | "snapshot" => roots.recording(&text)?.into_os_string(),
            // The name of a GPU, or the path of a trace.
            "gpu" if text.contains(['/', '\\']) || roots.first().join(&text).exists() => {
                roots.recording(&text)?.into_os_string()
            }
            _ => text.into(),
        };
        let mut word = OsString::from(format!("--{long}="));
        word.push(text);
        Ok(word)
    };
    match (option.get_action(), value) {
        (ArgAction::SetTrue, Value::Bool(given)) => Ok(given.then(|| format!("--{long}").into()).into_iter().collect()),
        (ArgAction::SetTrue, _) => Err(bad(value, "true or false")),
        (ArgAction::Append, Value::Array(list)) => list.iter().map(one).collect(),
        _ => Ok(vec![one(value)?]),
    }
}

/// The kind of a JSON value, for messages.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Checks that the folder's `memviz.toml`, if there is one, and the budgets in it name no file outside the folders.
fn require_inside(roots: &Roots) -> Result<(), String> {
    const NAME: &str = "memviz.toml";
    if roots.first().join(NAME).symlink_metadata().is_err() {
        return Ok(());
    }
    let path = roots.first().join(roots.recording(NAME)?);
    let about = |error: &dyn std::fmt::Display| format!("{NAME}: {error}");
    let text = read_text(&path, 1 << 20).map_err(|error| about(&error))?;
    let entries = config::read(&text, None).unwrap_or_default();
    let mut baselines = entries.iter().filter_map(|entry| entry.baseline.as_deref()).filter_map(Path::to_str);
    baselines.try_for_each(|baseline| roots.recording(baseline).map(|_| ()))
}
