//! The JSON of every command as JSON Schema.
//!
//! A test creates it from the types that write the JSON, and compares it with `answers.json`. So memviz is built
//! without the code that describes types, which would add half a megabyte for text that never changes.

use serde_json::{Map, Value};

const ALL: &str = include_str!("answers.json");

/// The path of definitions in references.
const DEFINITION: &str = "#/$defs/";

pub fn commands() -> impl Iterator<Item = String> {
    answers(&all()).filter_map(|answer| Some(command_of(answer)?.to_owned())).collect::<Vec<_>>().into_iter()
}

/// The schema of one command's answers, or of any command's; `None` if there is no such command.
pub fn describe(command: Option<&str>) -> Option<Value> {
    let all = all();
    let Some(command) = command else { return Some(all.into()) };
    let mut root = answers(&all).find(|answer| command_of(answer) == Some(command))?.as_object()?.clone();
    let mut used = Map::new();
    for value in root.values() {
        collect_used(value, all.get("$defs")?, &mut used);
    }
    root.insert("$defs".to_owned(), used.into());
    root.insert("$schema".to_owned(), all.get("$schema")?.clone());
    root.insert("title".to_owned(), format!("What memviz {command} --format json writes").into());
    Some(root.into())
}

/// The schema of any answer, as an object.
fn all() -> Map<String, Value> {
    serde_json::from_str(ALL).unwrap_or_default()
}

fn answers(all: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    all.get("oneOf").and_then(Value::as_array).into_iter().flatten()
}

fn command_of(answer: &Value) -> Option<&str> {
    answer.pointer("/properties/command/const")?.as_str()
}

/// Adds the definitions that a schema refers to, and those that these refer to.
fn collect_used(schema: &Value, definitions: &Value, used: &mut Map<String, Value>) {
    match schema {
        Value::String(reference) => {
            let Some(name) = reference.strip_prefix(DEFINITION) else { return };
            let Some(definition) = definitions.get(name).filter(|_| !used.contains_key(name)) else { return };
            used.insert(name.to_owned(), definition.clone());
            collect_used(definition, definitions, used);
        }
        Value::Array(parts) => parts.iter().for_each(|part| collect_used(part, definitions, used)),
        Value::Object(parts) => parts.values().for_each(|part| collect_used(part, definitions, used)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
