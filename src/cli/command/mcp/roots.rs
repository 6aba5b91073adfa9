//! The folders whose files may be read; no other file may be.

use crate::cli::outcome::Failure;
use crate::input::collect::{collect, only_recording};
use crate::input::{device_file, trace_beside};
use std::path::{Component, Path, PathBuf};

/// The most files in one question.
const MOST_FILES: usize = 20_000;

/// The folders that a server may read.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Each as an absolute path, as it was named and with links resolved.
    folders: Vec<(PathBuf, PathBuf)>,
    /// The first folder, in which commands run: paths in it are shown relative to it.
    first: PathBuf,
}

impl Roots {
    /// The named folders, or the current one.
    /// Fails if one of them is not a folder.
    pub fn of(named: &[PathBuf]) -> Result<Self, Failure> {
        let here = [PathBuf::from(".")];
        let named = if named.is_empty() { &here } else { named };
        let folder = |path: &PathBuf| {
            let about = |found: String| Failure::Message(format!("{}: expected a folder, {found}", path.display()));
            let canonical = path.canonicalize().map_err(|error| about(format!("found none: {error}")))?;
            if !canonical.is_dir() {
                return Err(about("found a file".to_owned()));
            }
            let absolute = std::path::absolute(path).unwrap_or_else(|_| canonical.clone());
            Ok((plain(&absolute).unwrap_or(absolute), canonical))
        };
        let folders = named.iter().map(folder).collect::<Result<Vec<_>, _>>()?;
        let first = folders.first().map(|(_, canonical)| canonical.clone()).unwrap_or_default();
        Ok(Self { folders, first })
    }

    /// The folder for relative paths, in which commands run.
    pub fn first(&self) -> &Path {
        &self.first
    }

    /// A recording as an argument of a command; a folder with one recording stands for that recording.
    /// Fails if it is outside the folders, or not a file.
    pub fn recording(&self, typed: &str) -> Result<PathBuf, String> {
        let path = self.existing(typed)?;
        let path = if path.is_dir() {
            let one = only_recording(&path);
            let one = one.ok_or_else(|| format!("{typed}: expected a file, or a folder with one recording"))?;
            self.inside(&one, typed)?
        } else {
            path
        };
        self.usable(path, typed)
    }

    /// Folders, patterns and files as arguments of a command that takes several, and the files that they stand for.
    /// Fails if one of the files is outside the folders, or there are none, or too many.
    pub fn recordings(&self, typed: &[String]) -> Result<(Vec<PathBuf>, Vec<PathBuf>), String> {
        let (mut given, mut files) = (Vec::new(), Vec::new());
        for text in typed {
            let named = self.candidates(text)?;
            let Some(path) = named.iter().find(|path| path.exists()).or(named.first()) else { continue };
            for found in collect(std::slice::from_ref(path)) {
                if let Some(problem) = found.problem {
                    return Err(format!("{text}: {problem}"));
                }
                files.push(self.usable(self.inside(&found.path, text)?, text)?);
            }
            if files.len() > MOST_FILES {
                return Err(format!("{text}: expected at most {MOST_FILES} files, found more"));
            }
            given.push(if path.exists() { self.short(self.inside(path, text)?) } else { self.short(path.clone()) });
        }
        Ok((given, files))
    }

    /// An existing path inside the folders.
    fn existing(&self, typed: &str) -> Result<PathBuf, String> {
        let named = self.candidates(typed)?;
        let found = named.iter().find(|path| path.exists());
        let found = found.ok_or_else(|| format!("{typed}: expected a recording, found no such file"))?;
        self.inside(found, typed)
    }

    /// The typed path as absolute paths, if it may be inside the folders. The system is not asked about other paths.
    fn candidates(&self, typed: &str) -> Result<Vec<PathBuf>, String> {
        if typed.is_empty() || typed.contains('\0') {
            return Err(format!("expected a path, found {typed:?}"));
        }
        let joined = self.folders.iter().map(|(_, folder)| folder.join(typed));
        let inside: Vec<PathBuf> = joined.filter(|path| plain(path).is_some_and(|path| self.holds(&path))).collect();
        if inside.is_empty() { Err(self.outside(typed)) } else { Ok(inside) }
    }

    /// The file at a path, with links resolved, if it is inside the folders.
    fn inside(&self, path: &Path, typed: &str) -> Result<PathBuf, String> {
        let path = path.canonicalize().map_err(|error| format!("{typed}: {error}"))?;
        let is_inside = self.folders.iter().any(|(_, folder)| path.starts_with(folder));
        if is_inside { Ok(path) } else { Err(self.outside(typed)) }
    }

    /// A file as an argument of a command: nothing next to it is outside the folders, and its name cannot be parsed as
    /// anything else.
    fn usable(&self, path: PathBuf, typed: &str) -> Result<PathBuf, String> {
        if !path.is_file() {
            return Err(format!("{typed}: expected a file, found something else"));
        }
        let samples = Some(device_file::path_beside(&path)).filter(|samples| samples.symlink_metadata().is_ok());
        for beside in samples.into_iter().chain(trace_beside::path_beside(&path)) {
            self.inside(&beside, typed)?;
        }
        Ok(self.short(path))
    }

    /// A path relative to the first folder, if it is in it. It never looks like an option.
    fn short(&self, path: PathBuf) -> PathBuf {
        let short = path.strip_prefix(&self.first).ok().filter(|short| {
            let name = short.to_string_lossy();
            !name.is_empty() && !name.starts_with('-')
        });
        short.map(Path::to_path_buf).unwrap_or(path)
    }

    fn holds(&self, path: &Path) -> bool {
        self.folders.iter().any(|(named, canonical)| path.starts_with(named) || path.starts_with(canonical))
    }

    fn outside(&self, typed: &str) -> String {
        let folders: Vec<String> = self.folders.iter().map(|(_, folder)| folder.display().to_string()).collect();
        format!("expected a path inside {}, found {typed:?}; --root allows other folders", folders.join(", "))
    }
}

/// A path without `.` and `..`, computed from its text alone; `None` if it goes above its root.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            part => plain.push(part),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(folder: &str) -> Roots {
        Roots::of(&[PathBuf::from(folder)]).unwrap_or_else(|_| panic!("{folder}"))
    }

    #[test]
    fn only_files_inside_can_be_named() {
        let roots = roots("fixtures/snapshots");
        let recording = |typed: &str| roots.recording(typed);
        assert_eq!(recording("tiny/snapshot.pickle.gz"), Ok(PathBuf::from("tiny/snapshot.pickle.gz")));
        assert_eq!(recording("./oom/../tiny/snapshot.pickle.gz"), Ok(PathBuf::from("tiny/snapshot.pickle.gz")));
        assert_eq!(recording("tiny"), Ok(PathBuf::from("tiny/snapshot.pickle.gz")));
        for outside in ["..", "../../Cargo.toml", "/etc/passwd", "/", "tiny/../../../Cargo.toml", "../snapshotsx"] {
            let error = recording(outside).unwrap_err();
            assert!(error.starts_with("expected a path inside"), "{outside}: {error}");
        }
        for broken in ["", "\0", "nothing.pickle", "tiny/snapshot.pickle.gz/x"] {
            assert!(recording(broken).is_err(), "{broken}");
        }
        for pattern in ["../*/Cargo.toml", "*/../../*", "/etc/*"] {
            let error = roots.recordings(&[pattern.to_owned()]).unwrap_err();
            assert!(error.starts_with("expected a path inside"), "{pattern}: {error}");
        }
    }
}
