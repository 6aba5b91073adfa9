//! Data flows one way: no folder of the source uses one that comes after it. The compiler forbids `crates/recording`, a crate of
//! its own, the rest; these are the arrows that it allows.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the crate for the recording, each of which uses only those before it.
const RECORDING: [&str; 4] = ["model", "input", "allocator", "replay"];
/// The stages that use it, likewise.
const REST: [&str; 5] = ["facts", "simulation", "analysis", "report", "cli"];

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
    for (source, stages) in [("crates/recording/src", &RECORDING[..]), ("src", &REST)] {
        for (place, stage) in stages.iter().enumerate() {
            let mut files = Vec::new();
            sources(&Path::new(source).join(stage), &mut files);
            assert!(!files.is_empty(), "{stage} has no files");
            for file in files {
                let code = code(&file);
                let later = stages[place + 1..].iter().filter(|later| code.contains(&format!("crate::{later}::")));
                upward.extend(later.map(|later| format!("{} reads {later}", file.display())));
            }
        }
    }
    assert_eq!(upward, Vec::<String>::new());
}
