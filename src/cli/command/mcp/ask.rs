//! A question in a process of its own.
//!
//! So each has the limits on memory and time that the command has, whatever a recording does to it, and one that fails takes no
//! other down.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 16 << 20;
/// The most that is read of complaints.
const LONGEST_COMPLAINT: u64 = 64 << 10;
/// How often to look whether a process has ended.
const INTERVAL: Duration = Duration::from_millis(2);

/// What a command has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it wrote.
    pub answer: String,
    /// What it complained about.
    pub complaints: String,
    /// Whether it has done its work.
    pub is_done: bool,
}

/// A process that ends when this is dropped.
pub struct Asked {
    child: Arc<Mutex<Child>>,
}

impl Asked {
    /// Starts a command.
    ///
    /// # Errors
    /// When the system does not start it.
    pub fn start(program: &Path, arguments: &[OsString], folder: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { child: Arc::new(Mutex::new(child)) })
    }

    /// The work of waiting for its reply, which blocks.
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

/// Ends a process, unless it has ended.
fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    // It cannot be ended when it has ended already, and then that is all.
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
