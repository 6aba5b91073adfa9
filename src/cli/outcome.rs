//! How a run of the command line ends.

use crate::report::safe;
use std::io::{self, Write};
use std::process::ExitCode;

/// How a run ended. The numbers are the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done = 0,
    CheckFailed = 1,
    Failed = 2,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

/// Why a command failed; the message starts with the file concerned.
#[derive(Debug)]
pub(crate) enum Failure {
    Message(String),
    /// The reader of the output closed it, which is not a failure.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn about(path: &str, error: &crate::Error) -> Self {
        Self::Message(format!("{path}: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Message(error.to_string()),
        }
    }
}

/// Writes one line to standard error. Messages can quote names from a file, which must be escaped for a terminal.
pub(crate) fn complain(message: &str) {
    // If standard error is closed, nothing can be reported.
    let _ = writeln!(io::stderr(), "memviz: {}", safe(message));
}
