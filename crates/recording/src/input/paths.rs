//! From globs to files.
//!
//! `**` represents folders at any depth, but does not follow links, since a link to a parent folder would make it endless.

use glob::Pattern;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// All matches of a glob below `folder`, without folders, sorted. They include broken links, pipes and the like: a caller
/// that expects a file there should report them.
///
/// # Errors
/// If it is not a glob, or a folder cannot be read.
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
    // `**` can find the same file in two ways.
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether a text is a glob, not only a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Why a file that was found, rather than named, must not be opened: a pipe would wait for a writer.
pub fn no_file(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    (!metadata.is_file()).then(|| "expected a file, found a pipe, socket or device".to_owned())
}

/// Bytes of a name that are not UTF-8 count as one character each: a file that is passed over is a budget that is not checked.
fn matches(pattern: &Pattern, name: &OsStr) -> bool {
    pattern.matches(&name.to_string_lossy())
}

/// The folder for a path; the empty path is the working directory.
fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = fs::read_dir(shown(folder)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| format!("{}: {error}", shown(folder).display()))?;
    let mut paths: Vec<PathBuf> = read.into_iter().map(|entry| folder.join(entry.file_name())).collect();
    paths.sort();
    Ok(paths)
}

/// A folder and the folders below it, at any depth. Links are not followed.
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
