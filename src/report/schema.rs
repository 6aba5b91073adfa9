//! The JSON of every command as JSON Schema, made from the types that write it.

use super::Answer;
use super::check::words::CheckedInput;
use crate::analysis::blocks::BlocksReport;
use crate::analysis::checkpoint::CheckpointReport;
use crate::analysis::diff::DiffReport;
use crate::analysis::fit::FitReport;
use crate::analysis::fragmentation::FragmentationReport;
use crate::analysis::info::InfoReport;
use crate::analysis::leaks::LeakReport;
use crate::analysis::ledger::LedgerReport;
use crate::analysis::nsys::NsysReport;
use crate::analysis::oom::OomReport;
use crate::analysis::peak::PeakReport;
use crate::analysis::ranks::RanksReport;
use crate::analysis::simulate::SimulateReport;
use crate::analysis::triage::TriageReport;
use crate::wire::SCHEMA_VERSION;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{Schema, json_schema};
use serde_json::Value;

/// A command, and what makes the schema of its answer.
type Described = (&'static str, fn(&mut SchemaGenerator) -> Schema);

/// An answer, as it stands in the list.
const fn answer<A: Answer + ?Sized>() -> Described {
    (A::COMMAND, |generator| generator.subschema_for::<A::Json>())
}

/// Every answer that is written as JSON. A new command is a new line.
const ANSWERS: &[Described] = &[
    answer::<TriageReport>(),
    answer::<InfoReport>(),
    answer::<PeakReport>(),
    answer::<BlocksReport>(),
    answer::<FragmentationReport>(),
    answer::<OomReport>(),
    answer::<LeakReport>(),
    answer::<LedgerReport>(),
    answer::<NsysReport>(),
    answer::<CheckpointReport>(),
    answer::<SimulateReport>(),
    answer::<FitReport>(),
    answer::<DiffReport>(),
    answer::<[CheckedInput]>(),
    answer::<RanksReport>(),
];

/// The commands that have a schema.
pub fn commands() -> impl Iterator<Item = &'static str> {
    ANSWERS.iter().map(|&(command, _)| command)
}

/// The schema of one command's answers, or of any command's; `None` where there is no such command.
pub fn describe(command: Option<&str>) -> Option<Value> {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut one = |&(name, answer): &Described| {
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
