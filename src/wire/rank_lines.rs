//! Summaries as JSON lines: one machine writes them, another joins them.
//!
//! Each line is an object that starts with `schema_version`, `command` and `line`, which is the kind of line. Lines of
//! several files can be concatenated. Lines about all ranks of a file (`"line": "across"`) are ignored when they are read,
//! since they are computed again for all joined ranks.

use super::SCHEMA_VERSION;
use super::ranks::RankLine;
use crate::error::Error;
use crate::model::DeviceId;
use crate::replay::Metric;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};

/// The `command` of a summary.
pub const COMMAND: &str = "ranks";
/// The longest line. A summary has a few kilobytes; lines about all ranks are longer, but are not read.
const MAX_LINE: usize = 16 << 20;

#[derive(Deserialize)]
struct Head<'a> {
    schema_version: u64,
    #[serde(borrow)]
    command: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    line: std::borrow::Cow<'a, str>,
}

/// A line with its start.
#[derive(Serialize)]
struct Written<'a, T> {
    schema_version: u32,
    command: &'static str,
    line: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

pub fn write_line(line: &RankLine, out: &mut dyn Write) -> io::Result<()> {
    match line {
        RankLine::Rank(rank) => write_body("rank", rank, out),
        RankLine::Empty(empty) => write_body("empty", empty, out),
        RankLine::Failed(failed) => write_body("failed", failed, out),
        RankLine::Skipped(skipped) => write_body("skipped", skipped, out),
    }
}

pub(crate) fn write_body(line: &'static str, body: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let written = Written { schema_version: SCHEMA_VERSION, command: COMMAND, line, body };
    serde_json::to_writer(&mut *out, &written).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// Reads lines that [`write_line`] wrote, about the peak of `metric`. Lines about other devices than `devices` are left out,
/// unless no line is about one of these. Returns what could be read, and why reading stopped: [`Error::UnknownJson`] if it is
/// JSON of another kind.
pub fn read_lines(reader: impl Read, metric: Metric, devices: &[DeviceId]) -> (Vec<RankLine>, Option<Error>) {
    let mut lines = Vec::new();
    let mut reader = BufReader::new(reader);
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let read = reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut text);
        let line = match read {
            Ok(0) => break,
            Ok(MAX_LINE) if !text.ends_with(b"\n") => Err(Problem::Bad(format!("longer than {MAX_LINE} bytes"))),
            Ok(_) => read_line(&text, metric, devices),
            Err(error) => return (lines, Some(crate::input::unwrap_io(error))),
        };
        match line {
            Ok(line) => lines.extend(line),
            Err(Problem::NotOurs(message)) if number == 1 => return (lines, Some(Error::UnknownJson(message))),
            Err(Problem::NotOurs(message) | Problem::Bad(message)) => {
                return (lines, Some(Error::Request(format!("line {number}: {message}"))));
            }
        }
    }
    (lines, None)
}

/// What is wrong with a line.
enum Problem {
    /// It is JSON of another kind.
    NotOurs(String),
    /// It is not JSON, or does not match its kind.
    Bad(String),
}

/// The contents of a line, if it is about a requested rank.
fn read_line(text: &[u8], metric: Metric, devices: &[DeviceId]) -> Result<Option<RankLine>, Problem> {
    let json = text.trim_ascii();
    if json.is_empty() {
        return Ok(None);
    }
    if json == b"{" {
        let message = "expected a summary of memviz ranks on each line, found an object on several lines";
        return Err(Problem::NotOurs(message.to_owned()));
    }
    let head: Head<'_> = parse(json)?;
    if head.command != COMMAND {
        let command = head.command;
        return Err(Problem::NotOurs(format!(
            "expected a summary of memviz ranks, found an answer of memviz {command}"
        )));
    }
    if head.schema_version != u64::from(SCHEMA_VERSION) {
        let found = head.schema_version;
        return Err(Problem::Bad(format!("expected schema_version {SCHEMA_VERSION}, found {found}")));
    }
    let line = match &*head.line {
        "rank" => RankLine::Rank(parse(json)?),
        "empty" => RankLine::Empty(parse(json)?),
        "failed" => RankLine::Failed(parse(json)?),
        "skipped" => RankLine::Skipped(parse(json)?),
        "across" => return Ok(None),
        other => {
            let known = "rank, empty, failed, skipped or across";
            return Err(Problem::Bad(format!("expected a line of kind {known}, found {other:?}")));
        }
    };
    let Some(rank) = line.rank() else { return Ok(Some(line)) };
    rank.check().map_err(Problem::Bad)?;
    if rank.metric != metric {
        let (asked, found) = (metric.name(), rank.metric.name());
        return Err(Problem::Bad(format!("expected a summary with --metric {asked}, found one with --metric {found}")));
    }
    let wanted = devices.is_empty() || devices.contains(&rank.device);
    Ok(wanted.then_some(line))
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|error| {
        let message = error.to_string();
        // The library also reports the number of the line, but there is only one.
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        Problem::Bad(format!("column {}: {what}", error.column()))
    })
}
