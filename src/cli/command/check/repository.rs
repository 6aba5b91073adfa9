//! Finds recorded paths in the repository that is checked.

use std::io;
use std::path::{Path, PathBuf};

/// The repository for annotations: `GITHUB_WORKSPACE`, or else the working directory.
pub struct Repository {
    root: PathBuf,
}

impl Repository {
    pub fn here() -> io::Result<Self> {
        let workspace = std::env::var_os("GITHUB_WORKSPACE").and_then(|path| PathBuf::from(path).canonicalize().ok());
        let here = std::env::current_dir()?.canonicalize()?;
        Ok(Self { root: workspace.filter(|root| here.starts_with(root)).unwrap_or(here) })
    }

    /// A recorded path as a path in the repository, with slashes, if that file exists. For a path from another machine, the
    /// longest end of the path that is a file in the repository.
    pub fn path_of(&self, file: &str) -> Option<String> {
        let parts: Vec<&str> = file.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
        let is_absolute = file.starts_with('/') || file.contains(":\\");
        let ends = (1..if is_absolute { parts.len() } else { 0 })
            .map(|from| self.root.join(parts[from..].iter().collect::<PathBuf>()));
        let mut candidates = std::iter::once(PathBuf::from(file)).chain(ends);
        candidates.find_map(|path| self.inside(&path))
    }

    fn inside(&self, path: &Path) -> Option<String> {
        let path = path.canonicalize().ok().filter(|path| path.is_file())?;
        let inside = path.strip_prefix(&self.root).ok()?;
        let parts: Option<Vec<&str>> = inside.components().map(|part| part.as_os_str().to_str()).collect();
        Some(parts?.join("/"))
    }
}
