//! Opens a written file in the desktop's default program, or a page in the browser.

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
///
/// # Errors
/// If there is no opener, or it reports within two seconds that it failed.
pub fn open(path: &Path) -> io::Result<()> {
    // An absolute path cannot be mistaken for an option.
    start(OPENER, &[std::path::absolute(path)?.into_os_string()])
}

/// Opens a page in the first browser of `$BROWSER` that starts, or else in the desktop's browser.
///
/// # Errors
/// If there is no desktop, for example over SSH, or no browser starts.
pub fn browse(page: &Path) -> io::Result<()> {
    let page = std::path::absolute(page)?;
    let chosen = std::env::var("BROWSER").unwrap_or_default();
    let mut result = None;
    for words in chosen.split(':').map(|command| command.split_whitespace().collect::<Vec<_>>()) {
        let Some((program, arguments)) = words.split_first() else { continue };
        let has_place = arguments.iter().any(|argument| argument.contains(PLACE));
        let placed = |argument: &&str| argument.replace(PLACE, &page.to_string_lossy()).into();
        let mut arguments: Vec<OsString> = arguments.iter().map(placed).collect();
        arguments.extend((!has_place).then(|| page.clone().into_os_string()));
        let started = start(program, &arguments);
        if started.is_ok() {
            return Ok(());
        }
        result = Some(started);
    }
    match result {
        Some(failed) => failed,
        None if has_desktop() => open(&page),
        None => Err(io::Error::other("no browser was found here")),
    }
}

/// The placeholder for the page in a command of `$BROWSER`.
const PLACE: &str = "%s";

/// Whether the user can see windows of this process: not over SSH, unless it forwards windows.
fn has_desktop() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_own = cfg!(any(target_os = "macos", windows)) && !is_set("SSH_CONNECTION");
    is_own || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Starts an opener.
fn start(program: &str, arguments: &[OsString]) -> io::Result<()> {
    let mut opener = Command::new(program);
    opener.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let failed =
        |what: &dyn std::fmt::Display| io::Error::other(format!("written, but {program} did not open it: {what}"));
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
