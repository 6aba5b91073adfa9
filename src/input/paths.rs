//! Globs to files.
//!
//! `**` represents folders at any depth, but does not go through links: a link to a folder above would make them endless.

use glob::Pattern;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Whatever a glob below `folder` matches, folders left out, sorted. Links that lead nowhere, pipes and the like are among
/// it: whoever expects a file there is to be told.
///
/// # Errors
/// When it is no glob, or a folder cannot be read.
pub fn matching(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![folder.to_owned()];
    for part in Path::new(pattern).components() {
        let Component::Normal(name) = part else {
            for path in &mut found {
                path.push(part);
            }
            continue;
        };
        let name = name.to_str().unwrap_or_default();
        found = if name == "**" {
            let mut folders = Vec::new();
            found.into_iter().try_for_each(|path| walk(path, &mut folders))?;
            folders
        } else if is_pattern(name) {
            let pattern = Pattern::new(name).map_err(|error| format!("expected a glob: {error}"))?;
            let mut matching = Vec::new();
            for path in found.iter().filter(|path| shown(path).is_dir()) {
                let entries = entries(path)?.into_iter();
                matching.extend(entries.filter(|entry| entry.file_name().is_some_and(|name| matches(&pattern, name))));
            }
            matching
        } else {
            found.iter().map(|path| path.join(name)).filter(|path| path.symlink_metadata().is_ok()).collect()
        };
    }
    found.retain(|path| !shown(path).is_dir());
    // Two ways through `**` can lead to one file.
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether a text is a glob, and not only a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Why something that was found, rather than named, is not to be opened: a pipe would wait for somebody to write into it.
pub fn no_file(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    (!metadata.is_file()).then(|| "expected a file, found a pipe, socket or device".to_owned())
}

fn matches(pattern: &Pattern, name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| pattern.matches(name))
}

/// The folder that a path means; the empty one is the working directory.
fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = fs::read_dir(shown(folder)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| format!("{}: {error}", shown(folder).display()))?;
    let mut paths: Vec<PathBuf> = read.into_iter().map(|entry| folder.join(entry.file_name())).collect();
    paths.sort();
    Ok(paths)
}

/// A folder and those in it, at any depth. Links lead to none.
fn walk(folder: PathBuf, folders: &mut Vec<PathBuf>) -> Result<(), String> {
    let mut waiting = vec![folder];
    while let Some(folder) = waiting.pop() {
        if !shown(&folder).is_dir() {
            continue;
        }
        let is_folder = |path: &PathBuf| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        waiting.extend(entries(&folder)?.into_iter().filter(is_folder));
        folders.push(folder);
    }
    Ok(())
}
