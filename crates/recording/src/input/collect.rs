//! From files, directories and globs to a list of files.
//!
//! A directory represents the recordings and summaries in it and in its subfolders, recognized by extension: some programs write
//! a folder for each rank. A glob represents whatever it matches. A file that was found that way may turn out to be something
//! else (a JSON file next to the recordings); a file that was named must be what was requested.

use super::paths::{is_pattern, matching, no_file};
use crate::sorting::SortRows;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    /// Whether it was named, rather than found in a directory or by a glob.
    pub is_named: bool,
    /// Why there is nothing to read; `path` is then what was named.
    pub problem: Option<String>,
}

/// Extensions of recordings and summaries, before that of compression.
const EXTENSIONS: [&str; 6] = ["pickle", "pkl", "json", "jsonl", "ndjson", "parquet"];
/// How many of them are extensions of pickles.
const PICKLES: usize = 2;
/// Extensions of compressed files.
const COMPRESSED: [&str; 4] = ["gz", "zst", "zstd", "zip"];
/// How many levels of subfolders are searched, how many folders, and how many files may be found: a folder may be the root of
/// a file system.
const DEEPEST: usize = 8;
const MOST_FOLDERS: usize = 10_000;
const MOST_FILES: usize = 100_000;

/// The files that `inputs` represent: the files of one input in the order of their names, with numbers in names compared by
/// value, and each path once.
pub fn collect(inputs: &[PathBuf]) -> Vec<Found> {
    let mut seen = HashSet::new();
    let mut files = inputs.iter().flat_map(|input| expand(input)).collect::<Vec<_>>();
    // Comparing components finds `a/b` in `./a//b`; links are not resolved.
    files.retain(|found| {
        let components: PathBuf = found.path.components().filter(|part| part.as_os_str() != ".").collect();
        seen.insert(components)
    });
    files
}

fn expand(input: &Path) -> Vec<Found> {
    let found = |paths: Result<Vec<PathBuf>, String>| match paths {
        Ok(mut paths) => {
            paths.sort_rows_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
            let found = |path: PathBuf| Found { problem: no_file(&path), path, is_named: false };
            paths.into_iter().map(found).collect()
        }
        Err(problem) => vec![Found { path: input.to_owned(), is_named: true, problem: Some(problem) }],
    };
    if input.is_dir() {
        let mut unreadable = Vec::new();
        let mut files = found(below(input, &mut unreadable));
        files.extend(unreadable);
        return files;
    }
    match input.to_str() {
        // A file name may look like a glob.
        Some(pattern) if is_pattern(pattern) && !input.exists() => found(matches(pattern)),
        _ => vec![Found { path: input.to_owned(), is_named: true, problem: None }],
    }
}

/// The files of a folder and of its subfolders that may be recordings or summaries. Links to folders are not followed, since
/// one may lead back, and neither are hidden folders. Subfolders that cannot be read are added to `unreadable`.
fn below(folder: &Path, unreadable: &mut Vec<Found>) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut waiting = vec![(folder.to_owned(), 0)];
    let mut searched = 0;
    while let Some((path, depth)) = waiting.pop() {
        let entries = match entries(&path) {
            Ok(entries) => entries,
            Err(problem) if depth == 0 => return Err(problem),
            Err(problem) => {
                unreadable.push(Found { path, is_named: false, problem: Some(problem) });
                continue;
            }
        };
        searched += 1;
        for entry in entries {
            let is_folder = entry.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
            if is_folder && depth < DEEPEST && !is_hidden(&entry) {
                waiting.push((entry, depth + 1));
            } else if is_candidate(&entry) && !entry.is_dir() {
                files.push(entry);
            }
        }
        let has_too_many = if searched + waiting.len() > MOST_FOLDERS {
            Some((MOST_FOLDERS, "folders"))
        } else {
            (files.len() > MOST_FILES).then_some((MOST_FILES, "files"))
        };
        if let Some((most, what)) = has_too_many {
            return Err(format!(
                "expected at most {most} {what} in the folder and its subfolders, found more; name a subfolder or use a glob"
            ));
        }
    }
    if files.is_empty() && unreadable.is_empty() {
        let [extensions, compressed] =
            [EXTENSIONS.as_slice(), &COMPRESSED].map(|list| format!(".{}", list.join(", .")));
        return Err(format!(
            "expected recordings or summaries in the folder or its subfolders, found none; their names end in one of {extensions}, \
             optionally followed by one of {compressed}"
        ));
    }
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    Ok(entries.map_err(|error| error.to_string())?.into_iter().map(|entry| entry.path()).collect())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The only recording in a folder, if there is exactly one: the only file that may be one, or else the only pickle among
/// other files such as a run's `config.json`.
pub fn only_recording(folder: &Path) -> Option<PathBuf> {
    let mut files = entries(folder).ok()?;
    files.retain(|file| is_candidate(file) && !file.is_dir());
    if files.len() > 1 {
        files.retain(|file| has_extension(file, &EXTENSIONS[..PICKLES]));
    }
    files.pop().filter(|file| files.is_empty() && no_file(file).is_none())
}

/// Whether a name looks like that of a recording or a summary.
fn is_candidate(path: &Path) -> bool {
    has_extension(path, &EXTENSIONS)
}

/// Whether a name ends in one of these, before the extension of compression.
fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()) else { return false };
    let mut parts = name.rsplit('.').peekable();
    parts.next_if(|part| COMPRESSED.contains(part));
    !name.starts_with('.') && parts.next().is_some_and(|part| extensions.contains(&part)) && parts.next().is_some()
}

fn matches(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let files = matching(Path::new(""), pattern)?;
    if files.is_empty() { Err("expected files that match, found none".to_owned()) } else { Ok(files) }
}

/// Natural order: `rank2` before `rank10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let (left_part, left_rest) = part(left);
        let (right_part, right_rest) = part(right);
        let digits = |text: &str| text.starts_with(|next: char| next.is_ascii_digit());
        let order = if digits(left_part) && digits(right_part) {
            let [left, right] = [left_part, right_part].map(|part| part.trim_start_matches('0'));
            left.len().cmp(&right.len()).then_with(|| left.cmp(right))
        } else {
            left_part.cmp(right_part)
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    // Equal except for leading zeros.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The digits, or the other characters, at the start of a text; and the rest.
fn part(text: &str) -> (&str, &str) {
    let is_digit = text.starts_with(|next: char| next.is_ascii_digit());
    let end = text.find(|next: char| next.is_ascii_digit() != is_digit).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_by_value() {
        let mut names = ["rank10", "rank2", "rank02", "rank", "node1_rank3", "rank2b", "rank99999999999999999999"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["node1_rank3", "rank", "rank02", "rank2", "rank2b", "rank10", "rank99999999999999999999"]);
    }

    #[test]
    fn recordings_are_known_by_their_extension() {
        for name in ["rank0.pickle", "a.PKL", "rank0.pickle.gz", "x.pt.trace.json.gz", "all.jsonl", "s.ndjson.zst"] {
            assert!(is_candidate(Path::new(name)), "{name}");
        }
        for name in ["README.md", ".rank0.pickle", "pickle", "rank0.gz", "model.pt", "rank0.pickle.tmp"] {
            assert!(!is_candidate(Path::new(name)), "{name}");
        }
    }
}
