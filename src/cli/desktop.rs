//! Opening a written file in the program that the desktop has for it.

use super::limits;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The program that opens files: it decides by their type and runs nothing in them.
#[cfg(target_os = "macos")]
const OPENER: &str = "open";
#[cfg(windows)]
const OPENER: &str = "explorer";
#[cfg(not(any(target_os = "macos", windows)))]
const OPENER: &str = "xdg-open";

/// How often to check whether it has ended, and how long to wait in between. Some openers run as long as the program that
/// they start.
const LOOKS: usize = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// Opens a file.
/// Fails if there is no opener, or it reports within two seconds that it failed.
pub fn open(path: &Path) -> io::Result<()> {
    // An absolute path cannot be mistaken for an option.
    start(OPENER, &[std::path::absolute(path)?.into_os_string()])
}

pub(super) fn start(program: &str, arguments: &[OsString]) -> io::Result<()> {
    let mut opener = Command::new(program);
    opener.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let failed = |what: &dyn std::fmt::Display| {
        io::Error::other(format!("the file was written, but {program} did not open it: {what}"))
    };
    // The limits of this process do not apply to programs that it starts.
    limits::lift();
    let mut child = opener.spawn().map_err(|error| failed(&error))?;
    for _ in 0..LOOKS {
        match child.try_wait()? {
            // The opener of Windows always ends with 1.
            Some(status) if status.success() || cfg!(windows) => return Ok(()),
            Some(status) => return Err(failed(&status)),
            None => sleep(BETWEEN),
        }
    }
    Ok(())
}
