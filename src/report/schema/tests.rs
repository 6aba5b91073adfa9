use super::{ALL, commands, describe};
use crate::analysis::blocks::BlocksReport;
use crate::analysis::checkpoint::CheckpointReport;
use crate::analysis::diff::DiffReport;
use crate::analysis::fit::FitReport;
use crate::analysis::fix::FixReport;
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
use crate::report::check::words::CheckedInput;
use crate::report::timeline::json as timeline;
use crate::report::{Answer, Head};
use crate::wire::SCHEMA_VERSION;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::Value;

/// A command, and the function that creates the schema of its answer.
type Described = (&'static str, fn(&mut SchemaGenerator) -> Schema);

const fn answer<A: Answer<Json: JsonSchema> + ?Sized>() -> Described {
    (A::COMMAND, |generator| generator.subschema_for::<A::Json>())
}

/// The curve is no [`Answer`]: for people, it is a picture.
const CURVE: Described =
    (timeline::COMMAND, |generator| generator.subschema_for::<Head<'static, timeline::CurveDevice<'static>>>());

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
    answer::<FixReport>(),
    answer::<DiffReport>(),
    answer::<[CheckedInput]>(),
    answer::<RanksReport>(),
    CURVE,
];

/// The schema of one command's answers, or of any command's, made from the types.
fn generate(command: Option<&str>) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut one = |&(name, answer): &Described| {
        let mut schema = answer(&mut generator);
        // Constant values, which a type cannot express.
        let constants = json_schema!({"command": {"const": name}, "schema_version": {"const": SCHEMA_VERSION}});
        schema.insert("properties".to_owned(), constants.into());
        schema
    };
    let mut root = if let Some(command) = command {
        one(ANSWERS.iter().find(|(name, _)| *name == command).unwrap())
    } else {
        let all: Vec<Schema> = ANSWERS.iter().map(&mut one).collect();
        json_schema!({"oneOf": all})
    };
    let title = format!("What memviz {}--format json writes", command.map_or(String::new(), |name| format!("{name} ")));
    root.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("title".to_owned(), title.into());
    root.insert("$defs".to_owned(), generator.take_definitions(true).into());
    root.into()
}

/// A schema as it is in the file: a line for each definition, so that a change is one line of a diff.
fn lines(schema: &Value) -> String {
    let mut text = String::new();
    let mut separator = "{";
    for (key, value) in schema.as_object().unwrap() {
        text += &format!("{separator}\"{key}\":");
        separator = ",\n";
        match value {
            Value::Object(definitions) => {
                let lines: Vec<String> =
                    definitions.iter().map(|(name, definition)| format!("\"{name}\":{definition}")).collect();
                text += &format!("{{\n{}\n}}", lines.join(",\n"));
            }
            Value::Array(answers) => {
                let lines: Vec<String> = answers.iter().map(Value::to_string).collect();
                text += &format!("[\n{}\n]", lines.join(",\n"));
            }
            other => text += &other.to_string(),
        }
    }
    text + "}\n"
}

#[test]
fn the_file_matches_the_types() {
    let made = lines(&generate(None));
    if std::env::var_os("MEMVIZ_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/schema/answers.json"), made).unwrap();
    } else {
        assert!(made == ALL, "run MEMVIZ_BLESS=1 cargo test --lib schema, and read the difference");
    }
}

#[test]
fn the_schema_of_a_command_is_what_its_types_say() {
    assert_eq!(commands().collect::<Vec<_>>(), ANSWERS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    if std::env::var_os("MEMVIZ_BLESS").is_some() {
        // This test was built with the previous file.
        return;
    }
    for name in commands() {
        // Two answers have a type with this name, which the schema of both distinguishes.
        let described = describe(Some(&name)).unwrap().to_string().replace("FailedRequest2", "FailedRequest");
        let made = generate(Some(&name)).to_string();
        assert!(described == made, "{name}");
    }
    assert_eq!(describe(Some("no command")), None);
}
