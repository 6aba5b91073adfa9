//! The JSON of every command as JSON Schema, made from the types that write it.

use super::check::json::CheckOutcome;
use super::checkpoint::json::CheckpointDevice;
use super::common::json::{Head, SCHEMA_VERSION};
use super::diff::json::Diff;
use super::fragmentation::json::FragmentationDevice;
use super::info::json::Info;
use super::leaks::json::LeaksDevice;
use super::oom::json::OomDevice;
use super::peak::json::PeakDevice;
use super::ranks::json::RanksAnswer;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::Value;

/// A command, and what makes the schema of its answer.
type Answer = (&'static str, fn(&mut SchemaGenerator) -> Schema);

/// Every command with the type that it writes. A new command is a new line.
const ANSWERS: &[Answer] = &[
    ("info", answer::<Info>),
    ("peak", answer::<Head<PeakDevice>>),
    ("fragmentation", answer::<Head<FragmentationDevice>>),
    ("oom", answer::<Head<OomDevice>>),
    ("leaks", answer::<Head<LeaksDevice>>),
    ("checkpoint", answer::<Head<CheckpointDevice>>),
    ("diff", answer::<Diff>),
    ("check", answer::<CheckOutcome>),
    ("ranks", answer::<RanksAnswer>),
];

fn answer<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The commands that have a schema.
pub fn commands() -> impl Iterator<Item = &'static str> {
    ANSWERS.iter().map(|&(command, _)| command)
}

/// The schema of one command's answers, or of any command's; `None` where there is no such command.
pub fn describe(command: Option<&str>) -> Option<Value> {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut one = |&(name, answer): &Answer| {
        let mut schema = answer(&mut generator);
        // What a type cannot say: these values are always the same.
        let constants = json_schema!({"command": {"const": name}, "schema_version": {"const": SCHEMA_VERSION}});
        schema.insert("properties".to_owned(), constants.into());
        schema
    };
    let mut root = if let Some(command) = command {
        one(ANSWERS.iter().find(|(name, _)| *name == command)?)
    } else {
        let all: Vec<Schema> = ANSWERS.iter().map(&mut one).collect();
        json_schema!({"oneOf": all})
    };
    let title = format!("What memviz {}--format json writes", command.map_or(String::new(), |name| format!("{name} ")));
    root.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("title".to_owned(), title.into());
    root.insert("$defs".to_owned(), generator.take_definitions(true).into());
    Some(root.into())
}
