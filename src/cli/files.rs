//! Files that are written completely or not at all.
//!
//! Output goes to a temporary file in the same directory first, which is then renamed. A program that reads the file
//! meanwhile finds the old or the new one, and a run that ends early leaves the old one. Since the name is given to another
//! file, existing files are never written to, such as an input that is the same file under a second name.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Number of names tried for a temporary file. They have 64 random bits each: an existing one is left from a killed run.
const ATTEMPTS: usize = 16;

/// A file that was written but does not have its final name yet. It is removed if it is dropped without one.
#[derive(Debug)]
pub struct Staged {
    temporary: PathBuf,
    target: PathBuf,
}

impl Staged {
    /// Writes a file that will be named `path`, or, if that is a link to a file, will replace that file.
    /// Fails if it cannot be written.
    pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (temporary, file) =
            temporary_beside(&target, |path| OpenOptions::new().write(true).create_new(true).open(path))?;
        let staged = Self { temporary, target };
        if let Ok(old) = staged.target.metadata() {
            file.set_permissions(old.permissions())?;
        }
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()?;
        // The name must not reach the disk before the contents.
        out.get_ref().sync_all()?;
        Ok(staged)
    }

    /// Gives it its final name, replacing any existing file.
    /// Fails if the system refuses.
    pub fn replace(self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)
    }

    /// Gives it its final name, unless a file has it already.
    /// Fails if a file has the name ([`io::ErrorKind::AlreadyExists`]), or the system refuses.
    pub fn create(self) -> io::Result<()> {
        match fs::hard_link(&self.temporary, &self.target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // Some file systems do not have hard links.
            Err(_) if self.target.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(&self.temporary, &self.target),
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // It no longer exists once it has its final name.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Writes a file with this name that only this user can read, in a new folder among the system's temporary files, and
/// returns its path. Fails when it cannot be written.
#[cfg(feature = "view")]
pub fn write_temporary(name: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("memviz-{:016x}", RandomState::new().hash_one(name)));
    create_private(&folder)?;
    let path = folder.join(name);
    Staged::write(&path, write)?.create()?;
    Ok(path)
}

/// Creates a folder that only this user can open; on Windows, folders of temporary files are like that.
#[cfg(feature = "view")]
fn create_private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(folder);
    #[cfg(not(unix))]
    return fs::create_dir(folder);
}

/// Gives all files their final names, or none: if one fails, the names before it refer to their old files again.
///
/// # Errors
/// The file that could not be replaced, and why.
pub fn replace_all(files: Vec<Staged>) -> Result<(), (PathBuf, io::Error)> {
    let mut replaced: Vec<(PathBuf, Option<PathBuf>)> = Vec::new();
    for file in files {
        let target = file.target.clone();
        let old = if target.exists() { second_name(&target).map(Some) } else { Ok(None) };
        let done = old.and_then(|old| {
            let done = file.replace();
            replaced.extend(done.is_ok().then(|| (target.clone(), old.clone())));
            if let (Err(_), Some(old)) = (&done, &old) {
                let _ = fs::remove_file(old);
            }
            done
        });
        if let Err(error) = done {
            for (target, old) in replaced {
                // The error reports the problem; nothing better can be done here.
                let _ = match old {
                    Some(old) => fs::rename(old, target),
                    None => fs::remove_file(target),
                };
            }
            return Err((target, error));
        }
    }
    for old in replaced.into_iter().filter_map(|(_, old)| old) {
        let _ = fs::remove_file(old);
    }
    Ok(())
}

/// A hard link to a file, or a copy if the file system has none.
fn second_name(path: &Path) -> io::Result<PathBuf> {
    let linked = temporary_beside(path, |second| match fs::hard_link(path, second) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::copy(path, second).map(|_| ()),
        linked => linked,
    });
    linked.map(|(second, ())| second)
}

/// Creates something with an unpredictable, unused name next to `path`.
fn temporary_beside<T>(path: &Path, mut make: impl FnMut(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // The length of names is limited; the start is enough to see what the file is for.
    let name: String = name.chars().take(40).collect();
    let mut result = Err(io::ErrorKind::AlreadyExists.into());
    for attempt in 0..ATTEMPTS {
        let random = RandomState::new().hash_one(attempt);
        let temporary = path.with_file_name(format!(".{name}.{random:016x}.tmp"));
        result = make(&temporary).map(|made| (temporary, made));
        if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            break;
        }
    }
    result
}

/// Reads a text file of at most `longest` bytes.
/// Fails if it cannot be read, is longer, or is not UTF-8.
pub fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path)?.take(longest.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::other(format!("expected at most {longest} bytes of text, found more")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "expected text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder for this test, removed at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("memviz-files-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file() {
        let folder = Folder::new("fails");
        let path = folder.0.join("answer.json");
        fs::write(&path, "old").unwrap();
        let failed = Staged::write(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more room"))
        });
        assert!(failed.is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), folder.names().len()), ("old", 1));
    }

    #[test]
    fn the_other_name_of_a_replaced_file_keeps_its_contents() {
        let folder = Folder::new("links");
        let (input, output) = (folder.0.join("input"), folder.0.join("output"));
        fs::write(&input, "recording").unwrap();
        fs::hard_link(&input, &output).unwrap();
        Staged::write(&output, |out| out.write_all(b"answer")).unwrap().replace().unwrap();
        assert_eq!(fs::read_to_string(&input).unwrap(), "recording");
        assert_eq!(fs::read_to_string(&output).unwrap(), "answer");
        assert_eq!(folder.names(), ["input", "output"]);
    }

    #[test]
    fn existing_files_are_not_overwritten() {
        let folder = Folder::new("exists");
        let path = folder.0.join("answer");
        let write = |text: &'static str| Staged::write(&path, |out| out.write_all(text.as_bytes())).unwrap();
        write("first").create().unwrap();
        assert_eq!(write("second").create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), folder.names().len()), ("first", 1));
    }

    #[test]
    fn either_all_files_are_replaced_or_none() {
        let folder = Folder::new("all");
        let [first, second, third] = ["first", "second", "third"].map(|name| folder.0.join(name));
        fs::write(&first, "old").unwrap();
        let stage = |path: &Path| Staged::write(path, |out| out.write_all(b"new")).unwrap();
        let files = vec![stage(&first), stage(&second), stage(&third)];
        // A folder cannot be replaced by a file.
        fs::create_dir(&third).unwrap();
        fs::write(third.join("inside"), "").unwrap();
        let (path, _) = replace_all(files).unwrap_err();
        assert_eq!((path, fs::read_to_string(&first).unwrap().as_str()), (third.clone(), "old"));
        assert_eq!(folder.names(), ["first", "third"]);
        replace_all(vec![stage(&first), stage(&second)]).unwrap();
        assert_eq!([&first, &second].map(|path| fs::read_to_string(path).unwrap()), ["new", "new"]);
        assert_eq!(folder.names(), ["first", "second", "third"]);
    }

    #[test]
    fn text_without_end_is_refused() {
        let folder = Folder::new("text");
        let path = folder.0.join("text");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        assert!(read_text(&path, 4).unwrap_err().to_string().contains("expected at most 4 bytes"));
    }
}
