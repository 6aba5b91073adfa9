//! Answers a question in a separate process.
//!
//! So each question has the memory and time limits of a command, whatever the recording contains, and a failure affects no
//! other question.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 16 << 20;
/// The most bytes of error messages that are read.
const LONGEST_COMPLAINT: u64 = 64 << 10;
/// How often to check whether a process has ended.
const INTERVAL: Duration = Duration::from_millis(2);

/// The answer of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its standard output.
    pub answer: String,
    /// Its standard error.
    pub complaints: String,
    /// Whether it succeeded.
    pub is_done: bool,
}

/// A process that is ended when this is dropped.
pub struct Asked {
    child: Arc<Mutex<Child>>,
}

impl Asked {
    /// Starts a command.
    /// Fails if the system cannot start it.
    pub fn start(program: &Path, arguments: &[OsString], folder: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder);
        // Commands to run name memviz as the agent's users call it, not by where this binary lies.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::arg0(&mut command, "memviz");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { child: Arc::new(Mutex::new(child)) })
    }

    /// A function that waits for the reply; it blocks.
    pub fn reply(&self) -> impl FnOnce() -> io::Result<Reply> + Send + 'static {
        let child = Arc::clone(&self.child);
        move || {
            let (answer, complaints) = {
                let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
                (child.stdout.take(), child.stderr.take())
            };
            let complaints = thread::Builder::new().spawn(move || read(complaints, LONGEST_COMPLAINT))?;
            let answer = read(answer, LONGEST + 1)?;
            if answer.len() as u64 > LONGEST {
                end(&child);
                let message =
                    format!("expected an answer of at most {LONGEST} bytes, found more; ask for fewer rows with top");
                return Err(io::Error::other(message));
            }
            let complaints = complaints.join().unwrap_or_else(|_| Ok(Vec::new()))?;
            let status = loop {
                // The lock is held briefly, so that the process can be ended meanwhile.
                if let Some(status) = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()? {
                    break status;
                }
                thread::sleep(INTERVAL);
            };
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let is_done = matches!(status.code(), Some(0 | 1));
            Ok(Reply { answer: text(answer), complaints: text(complaints), is_done })
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        end(&self.child);
    }
}

/// Ends a process, unless it has already ended.
fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    // This fails if it has already ended, which does not matter.
    let _ = child.kill();
    let _ = child.wait();
}

fn read(stream: Option<impl Read>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
