//! The server: converts requests of the protocol to questions, and the output of commands to bounded answers.

use super::answers::{Answers, Form};
use super::ask::{Asked, Reply};
use super::roots::Roots;
use super::tools::{Question, TOOLS, kind};
use super::{BOUNDS, BYTES, LEAST_BYTES, MOST_BYTES, max_bytes_schema};
use crate::cli::outcome::Failure;
use crate::model::bytes::Bytes;
use crate::report::bounded;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The most questions that are answered at the same time.
const AT_ONCE: usize = 2;
/// Bytes reserved for the note after an answer: its ID, and how to get the rest.
const FOOTER: usize = 300;
/// The longest error message that is passed on, in bytes.
const COMPLAINT: usize = 500;
/// The tool that shows a part of an answer.
const DRILL: &str = "drill";
/// Its arguments.
const DRILL_KEYS: [&str; 6] = ["id", "at", "from", "count", "line", "max_bytes"];

const INSTRUCTIONS: &str = "memviz explains recordings of PyTorch's GPU memory (_dump_snapshot pickles, profiler traces). Start with \
    triage; then oom, leaks, peak or fragmentation explain why, and fit or simulate show what would help. Figures are exact unless \
    they are marked as simulated (predicted), as deduced from stacks (* or inferred), or as a lower or upper bound. Every answer \
    ends with an id; drill takes it and shows all figures, stacks and rows as JSON, part by part.";

/// State that is kept between requests.
pub struct Server {
    roots: Roots,
    memory: Bytes,
    program: PathBuf,
    answers: Mutex<Answers>,
    turns: Semaphore,
}

impl Server {
    /// A server for recordings in these folders, with this memory limit for each question.
    /// Fails if the system does not report the path of this program.
    pub fn new(roots: Roots, memory: Bytes) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        Ok(Self { roots, memory, program, answers: Mutex::default(), turns: Semaphore::new(AT_ONCE) })
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of a tool.
    ///
    /// # Errors
    /// A line that says what is wrong with the arguments, or why there is no answer.
    async fn answer(&self, name: &str, given: &Map<String, Value>, stop: &CancellationToken) -> Result<String, String> {
        let most = most_bytes(given)?;
        if name == DRILL {
            return self.drill(given, most, stop).await;
        }
        let tool =
            TOOLS.iter().find(|tool| tool.name == name).ok_or_else(|| format!("there is no tool named {name:?}"))?;
        let form = form(given)?;
        let question = tool.question(given, &self.roots)?;
        let id = self.answers().id_of(&question, self.roots.first());
        let reply = self.reply(&id, &question, form, stop).await?;
        let complaints = complaints(&reply);
        let most = most - complaints.len();
        let answer = match form {
            Form::Text => told(&id, &reply.answer, 1, most),
            Form::Json => figures(&id, &reply, "", 0, usize::MAX, most)?,
        };
        if reply.is_done {
            return Ok(complaints + &answer);
        }
        // The reason why the answer is incomplete comes before the answer.
        Err(if reply.answer.is_empty() { complaints.trim_end().to_owned() } else { complaints + &answer })
    }

    /// A part of an earlier answer.
    async fn drill(&self, given: &Map<String, Value>, most: usize, stop: &CancellationToken) -> Result<String, String> {
        if let Some(unknown) = given.keys().find(|key| !DRILL_KEYS.contains(&key.as_str())) {
            return Err(format!("expected arguments of drill: {}; found {unknown:?}", DRILL_KEYS.join(", ")));
        }
        let text = |key: &str| match given.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(found) => Err(format!("{key}: expected a string, found {}", kind(found))),
        };
        let id = text("id")?.ok_or("expected the id of an earlier answer, found nothing")?;
        let question = self.answers().question(id, self.roots.first())?;
        if let Some(line) = number(given, "line")? {
            let reply = self.reply(id, &question, Form::Text, stop).await?;
            let of = reply.answer.lines().count();
            let is_there = (1..=of).contains(&line);
            return is_there
                .then(|| told(id, &reply.answer, line, most))
                .ok_or_else(|| format!("line: expected 1 to {of}, found {line}"));
        }
        let reply = self.reply(id, &question, Form::Json, stop).await?;
        let (from, count) = (number(given, "from")?.unwrap_or(0), number(given, "count")?.unwrap_or(usize::MAX));
        figures(id, &reply, text("at")?.unwrap_or_default(), from, count, most)
    }

    /// The reply of a command, stored or new.
    async fn reply(
        &self,
        id: &str,
        question: &Question,
        form: Form,
        stop: &CancellationToken,
    ) -> Result<Arc<Reply>, String> {
        if let Some(reply) = self.answers().reply(id, form) {
            return Ok(reply);
        }
        let mut arguments: Vec<OsString> = question.arguments.clone();
        let options = [format!("--format={}", form.name()), format!("--max-memory={}", self.memory.0)];
        arguments.splice(1..1, options.map(OsString::from));
        let Ok(_turn) = self.turns.acquire().await else { return Err("the server is shutting down".to_owned()) };
        let asked = Asked::start(&self.program, &arguments, self.roots.first()).map_err(|error| error.to_string())?;
        let reply = tokio::task::spawn_blocking(asked.reply());
        let reply = tokio::select! {
            reply = reply => reply.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?,
            () = stop.cancelled() => return Err("the question was canceled".to_owned()),
        };
        let reply = Arc::new(reply);
        self.answers().keep(id, form, &reply);
        Ok(reply)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("memviz", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let reads = ToolAnnotations::new().read_only(true).open_world(false);
        let about_drill = "Show a part of an earlier answer as JSON, or its next lines";
        let drill = Tool::new(DRILL, about_drill, Arc::new(drill_schema()));
        let asking = TOOLS.iter().map(|tool| Tool::new(tool.name, tool.about(), Arc::new(tool.schema())));
        let tools = asking.chain([drill]).map(|tool| tool.annotate(reads.clone())).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if name != DRILL && !TOOLS.iter().any(|tool| tool.name == name) {
            return Err(ErrorData::invalid_params(format!("expected the name of a tool, found {name:?}"), None));
        }
        let given = request.arguments.unwrap_or_default();
        let result = match self.answer(name, &given, &context.ct).await {
            Ok(answer) => CallToolResult::success(vec![ContentBlock::text(answer)]),
            // The agent reads the error, and can ask in another way.
            Err(message) => {
                CallToolResult::error(vec![ContentBlock::text(bounded::lines(&message, 1, MOST_BYTES).text)])
            }
        };
        Ok(result.into())
    }
}

fn drill_schema() -> Map<String, Value> {
    let schema = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string", "description": "ID at the end of an answer, such as a1" },
            "at": { "type": "string", "description": "JSON pointer to the part, such as /devices/0/rows; without it, the whole answer" },
            "from": { "type": "integer", "minimum": 0, "description": "First item of a list" },
            "count": { "type": "integer", "minimum": 0, "description": "Number of items of a list" },
            "line": { "type": "integer", "minimum": 1, "description": "Show the text of the answer from this line instead" },
            "max_bytes": max_bytes_schema(),
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    if let Value::Object(schema) = schema { schema } else { Map::new() }
}

/// The text of an answer from a line on, and how to get more.
fn told(id: &str, text: &str, line: usize, most: usize) -> String {
    let part = bounded::lines(text, line, most.saturating_sub(FOOTER));
    let end = if part.text.ends_with('\n') || part.text.is_empty() { "" } else { "\n" };
    let (first, last, of) = (part.first, part.last, part.of);
    let cut = if part.is_cut { ", the last one cut" } else { "" };
    let more = match (first, last < of) {
        (1, false) if cut.is_empty() => String::new(),
        (_, false) => format!(" lines {first} to {last} of {of}{cut};"),
        (_, true) => format!(" lines {first} to {last} of {of}{cut}; drill with line={} shows the next;", last + 1),
    };
    format!("{}{end}[{id}:{more} drill with this id shows all figures as JSON]\n", part.text)
}

/// A part of an answer's figures as JSON, and what is missing from it.
fn figures(id: &str, reply: &Reply, at: &str, from: usize, count: usize, most: usize) -> Result<String, String> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&reply.answer).into_iter().collect();
    let mut values = values.map_err(|error| format!("expected an answer in JSON, found something else: {error}"))?;
    // Some commands write one object per line.
    let value = if values.len() == 1 { values.remove(0) } else { Value::Array(values) };
    let part = value.pointer(at).ok_or_else(|| format!("at: expected a part of {id}, which has no {at:?}"))?;
    let most = most.saturating_sub(FOOTER + at.len());
    let mut answer = json!({ "id": id, "at": at });
    let part = match part {
        Value::Array(list) => {
            let part = bounded::items(list, from, count, most);
            let shown = part.value.as_array().map_or(0, Vec::len);
            answer["from"] = from.into();
            answer["shown"] = shown.into();
            answer["of"] = list.len().into();
            if from.saturating_add(shown) < list.len() {
                answer["next"] = (from + shown).into();
            }
            part
        }
        value => bounded::json(value, most),
    };
    if !part.cut.is_empty() {
        answer["rest"] = "call drill again, with this at and the at of an item in cut appended to it".into();
    }
    answer["cut"] = json!(part.cut);
    answer["value"] = part.value;
    Ok(answer.to_string())
}

/// The error messages of a command, without the name of the program.
fn complaints(reply: &Reply) -> String {
    let lines = reply.complaints.lines().map(|line| format!("{}\n", line.strip_prefix("memviz: ").unwrap_or(line)));
    let all: String = lines.collect();
    bounded::lines(&all, 1, COMPLAINT).text.to_owned()
}

fn most_bytes(given: &Map<String, Value>) -> Result<usize, String> {
    let most = number(given, "max_bytes")?.unwrap_or(BYTES);
    let is_possible = (LEAST_BYTES..=MOST_BYTES).contains(&most);
    is_possible
        .then_some(most)
        .ok_or_else(|| format!("max_bytes: expected {LEAST_BYTES} to {MOST_BYTES}, found {most}"))
}

fn number(given: &Map<String, Value>, key: &str) -> Result<Option<usize>, String> {
    let Some(value) = given.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.map(Some).ok_or_else(|| format!("{key}: expected a whole number, found {value}"))
}

fn form(given: &Map<String, Value>) -> Result<Form, String> {
    let [key, _] = BOUNDS;
    match given.get(key) {
        None | Some(Value::Null) => Ok(Form::Text),
        Some(Value::String(name)) if name == "text" => Ok(Form::Text),
        Some(Value::String(name)) if name == "json" => Ok(Form::Json),
        Some(found) => Err(format!("format: expected text or json, found {found}")),
    }
}
