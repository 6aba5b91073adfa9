//! Opening a page in the browser.

use super::desktop::{open, start};
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Opens a page in the first browser of `$BROWSER` that starts, or in that of the desktop if the variable is not set.
/// Fails when there is no desktop, as over SSH, or no browser starts.
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
        None => Err(io::Error::other("no browser was found")),
    }
}

/// What represents the page in a command of `$BROWSER`.
const PLACE: &str = "%s";

/// Whether somebody sits in front of what this process can draw on: over SSH nobody does, unless it forwards windows.
fn has_desktop() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_own = cfg!(any(target_os = "macos", windows)) && !is_set("SSH_CONNECTION");
    is_own || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}
