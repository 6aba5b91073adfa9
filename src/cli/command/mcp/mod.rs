//! `memviz mcp`.

mod answers;
mod ask;
mod roots;
mod server;
mod tools;

use super::{Run, examples};
use crate::cli::limits;
use crate::cli::outcome::{Failure, Outcome};
use crate::model::bytes::Bytes;
use clap::Args;
use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use roots::Roots;
use serde_json::{Value, json};
use server::Server;
use std::io::{self, Write};
use std::path::PathBuf;

/// Answer questions from coding agents (Model Context Protocol)
///
/// An agent starts this command and talks to it through standard input and output. It can ask the questions that the other
/// commands answer, about recordings in the allowed folders. The command writes no files.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz mcp", "recordings in the current folder"),
    ("memviz mcp --root /data/recordings --root runs", "in these folders"),
]))]
pub struct Mcp {
    /// A folder whose recordings agents may read; may be repeated [default: the current folder]
    ///
    /// Paths are relative to the first one.
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Limit on the memory used to answer one question
    // This is not the ID of the common option, which limits this process itself.
    #[arg(id = "memory", long = "max-memory", value_name = "SIZE", default_value = limits::MEMORY, value_parser = limits::parse_memory)]
    memory: Bytes,
    /// Print instructions for agents (SKILL.md) and exit
    #[arg(long)]
    skill: bool,
}

/// Instructions for agents: which question to ask when.
const SKILL: &str = include_str!("../../../../skills/memviz/SKILL.md");

/// Bytes of an answer, unless the question sets another limit.
const BYTES: usize = 8_000;
/// The lowest and the highest limit that a question may set.
const LEAST_BYTES: usize = 1_000;
const MOST_BYTES: usize = 100_000;
/// The arguments of every tool in addition to the options of its command.
const BOUNDS: [&str; 2] = ["format", "max_bytes"];

fn max_bytes_schema() -> Value {
    let about = "Maximum length of the answer in bytes; if it is cut, it says how to get the rest";
    json!({ "type": "integer", "minimum": LEAST_BYTES, "maximum": MOST_BYTES, "default": BYTES, "description": about })
}

impl Run for Mcp {
    fn run(&self) -> Result<Outcome, Failure> {
        if self.skill {
            io::stdout().write_all(SKILL.as_bytes())?;
            return Ok(Outcome::Done);
        }
        let server = Server::new(Roots::of(&self.root)?, self.memory)?;
        // One thread communicates; processes answer questions.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(async {
            let service = match server.serve((tokio::io::stdin(), tokio::io::stdout())).await {
                Ok(service) => service,
                Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(Outcome::Done),
                Err(_) => {
                    let message =
                        "expected a client of the Model Context Protocol on standard input, found something else";
                    return Err(Failure::Message(message.to_owned()));
                }
            };
            match service.waiting().await {
                Ok(QuitReason::JoinError(error)) | Err(error) => Err(Failure::Message(error.to_string())),
                Ok(_) => Ok(Outcome::Done),
            }
        });
        // Reading standard input cannot be interrupted, and its result is no longer needed.
        runtime.shutdown_background();
        outcome
    }
}
