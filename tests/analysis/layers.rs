//! Data flows one way: no folder of the source uses one that comes after it.

use std::fs;
use std::path::{Path, PathBuf};

/// The stages, each of which uses only those before it.
const STAGES: [&str; 6] = ["replay", "facts", "play", "analysis", "report", "cli"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            sources(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

/// The code of a file without comments and without its tests, which may look at anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or("");
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

#[test]
fn no_stage_reads_a_later_one() {
    let mut upward = Vec::new();
    for (place, stage) in STAGES.iter().enumerate() {
        let mut files = Vec::new();
        sources(&Path::new("src").join(stage), &mut files);
        assert!(!files.is_empty(), "{stage} has no files");
        for file in files {
            let code = code(&file);
            let later = STAGES[place + 1..].iter().filter(|later| code.contains(&format!("crate::{later}::")));
            upward.extend(later.map(|later| format!("{} reads {later}", file.display())));
        }
    }
    assert_eq!(upward, Vec::<String>::new());
}
