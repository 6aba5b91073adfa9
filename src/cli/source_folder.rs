//! A folder with the source code of a recorded program. Recorded paths come from a stranger: only files below the folder are read.

use super::code_lines::LARGEST;
use super::files::read_text;
use crate::analysis::fix::SourceFile;
use crate::cli::outcome::Failure;
use std::path::{Path, PathBuf};

pub struct SourceFolder {
    folder: PathBuf,
    /// The parts of its full path.
    parts: Vec<String>,
}

impl SourceFolder {
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let about = |error: &dyn std::fmt::Display| Failure::Message(format!("--source {}: {error}", folder.display()));
        let full = folder.canonicalize().map_err(|error| about(&error))?;
        if !full.is_dir() {
            return Err(about(&"expected a folder, found a file"));
        }
        Ok(Self { folder: folder.to_owned(), parts: parts(&full.to_string_lossy()) })
    }

    /// The file of a recorded path: the path starts with that of the folder, or ends in the path of one file below it.
    ///
    /// # Errors
    /// If there is no such file, or more than one; if it is a link, too large, or no text in UTF-8 that a diff can contain.
    pub fn read(&self, recorded: &str) -> Result<SourceFile, String> {
        let path = self.find(recorded)?;
        let file = self.folder.join(&path);
        let is_plain = |end: &Path| end.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        let mut ends = Path::new(&path).ancestors().filter(|end| !end.as_os_str().is_empty());
        if !ends.all(|end| is_plain(&self.folder.join(end))) {
            return Err(format!("{path}: expected a file, found a link"));
        }
        if !file.is_file() {
            return Err(format!("{path}: expected a file, found something else"));
        }
        let text = read_text(&file, LARGEST).map_err(|error| format!("{path}: {error}"))?;
        let unusual = |next: &char| next.is_control() && !matches!(next, '\t' | '\r' | '\n');
        if let Some(found) = text.chars().find(unusual) {
            return Err(format!("{path}: expected text, found the character {}", found.escape_unicode()));
        }
        if text.matches('\r').count() != text.matches("\r\n").count() {
            return Err(format!("{path}: expected lines that end in a line feed, found a carriage return alone"));
        }
        Ok(SourceFile { path, text })
    }

    /// The path below the folder.
    fn find(&self, recorded: &str) -> Result<String, String> {
        let all = parts(recorded);
        // Names that a diff would have to quote.
        let unusual = |next: char| next.is_control() || matches!(next, '"' | '\\');
        let is_python = all.last().is_some_and(|name| Path::new(name).extension().is_some_and(|end| end == "py"));
        if !is_python || all.iter().any(|part| part == ".." || part.contains(unusual)) {
            return Err(format!("expected the path of a Python file, found {recorded}"));
        }
        let exists = |path: &String| self.folder.join(path).symlink_metadata().is_ok();
        if let Some(below) = all.strip_prefix(&self.parts[..]).map(|below| below.join("/")).filter(exists) {
            return Ok(below);
        }
        let mut found = (0..all.len()).map(|from| all[from..].join("/")).filter(exists);
        match (found.next(), found.next()) {
            (Some(path), None) => Ok(path),
            (None, _) => Err(format!("expected a file of {recorded} below {}, found none", self.folder.display())),
            (Some(one), Some(other)) => Err(format!("expected one file of {recorded}, found {one} and {other}")),
        }
    }
}

/// The parts of a path from any system, without those for the current folder.
fn parts(path: &str) -> Vec<String> {
    path.split(['/', '\\']).filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn recorded_paths_stay_below_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("code");
        fs::create_dir_all(folder.join("lib")).unwrap();
        for path in ["secret.py", "code/train.py", "code/lib/a b.py", "code/lib/train.py"] {
            fs::write(root.path().join(path), path).unwrap();
        }
        let source = SourceFolder::open(&folder).unwrap();
        let read = |path: &str| source.read(path).map(|file| file.path);
        assert_eq!(read("/home/ada/lib/a b.py").as_deref(), Ok("lib/a b.py"));
        assert_eq!(read("C:\\ada\\.\\lib\\a b.py").as_deref(), Ok("lib/a b.py"));
        assert!(read("/home/ada/lib/train.py").unwrap_err().contains("found lib/train.py and train.py"));
        let full = folder.canonicalize().unwrap();
        assert_eq!(read(full.join("lib/train.py").to_str().unwrap()).as_deref(), Ok("lib/train.py"));
        for path in ["../secret.py", "/code/../secret.py", "..\\secret.py", "/etc/passwd", "a\n.py", "\".py", "", "lib"]
        {
            assert!(read(path).unwrap_err().contains("expected the path of a Python file"), "{path}");
        }
        assert!(read("/home/ada/secret.py").unwrap_err().contains("found none"));
    }
}
