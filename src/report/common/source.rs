//! The subject of a report.

use crate::Recording;

#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub path: &'a str,
    /// The recording itself, for facts that every report states.
    pub recording: &'a Recording,
}

#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    pub base: Source<'a>,
    pub new: Source<'a>,
}

/// A share of a total in percent; 0 if the total is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Files by their names, since folders reveal the machine; with as many folders as needed if names are equal.
pub(crate) fn file_names<'p>(paths: &[&'p str]) -> Vec<&'p str> {
    let end = |path: &'p str, parts: usize| {
        let separators = path.rmatch_indices(['/', '\\']).map(|(at, _)| at + 1);
        separators
            .take(parts)
            .last()
            .filter(|_| path.matches(['/', '\\']).count() >= parts)
            .map_or(path, |at| &path[at..])
    };
    let longest = paths.iter().map(|path| path.matches(['/', '\\']).count() + 1).max().unwrap_or(1);
    let differ = |parts: &usize| {
        let mut names: Vec<&str> = paths.iter().map(|path| end(path, *parts)).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    };
    // A path cannot be distinguished from itself.
    let parts = (1..=longest).find(differ).unwrap_or(1);
    paths.iter().map(|path| end(path, parts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_folders_that_tell_them_apart() {
        assert_eq!(file_names(&["/home/ada/runs/a/oom.pickle"]), ["oom.pickle"]);
        assert_eq!(file_names(&["/home/ada/a/x.gz", "/home/ada/b/x.gz"]), ["a/x.gz", "b/x.gz"]);
        assert_eq!(file_names(&["/home/ada/a/x.gz", "/home/ada/a/y.gz"]), ["x.gz", "y.gz"]);
        assert_eq!(file_names(&["x.gz", "a/x.gz"]), ["x.gz", "a/x.gz"]);
        assert_eq!(file_names(&["a/x.gz", "a/x.gz"]), ["x.gz", "x.gz"]);
        assert_eq!(file_names(&["C:\\ada\\x.gz", "-"]), ["x.gz", "-"]);
    }
}
