//! Writes a function for each name in `symbols.txt` that the sources do not define.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// What functions of a library give when they fail: that they do not support what is asked for.
const FAILURES: [(&str, i32); 12] = [
    ("cublas", 15),
    ("cudnn", 3000),
    ("cufft", 16),
    ("cupti", 27),
    ("cusolver", 8),
    ("cusparse", 10),
    ("cuda", 801),
    ("__cuda", 801),
    ("nccl", 3),
    ("nvml", 3),
    ("nvrtc", 4),
    ("cu", 801),
];

/// Parts of the names of functions that answer a question, or make something that is asked later.
const ANSWERS: [&str; 19] = [
    "Get",
    "Query",
    "bufferSize",
    "BufferSize",
    "Create",
    "Alloc",
    "Find",
    "estimat",
    "Estimat",
    "CanAccess",
    "Workspace",
    "Import",
    "Export",
    "Open",
    "Search",
    "Init",
    "SizeInBytes",
    "Size2",
    "Size_",
];

/// These have such parts, and their answers are not looked at.
const DONE: [&str; 6] = [
    "__cudaInitModule",
    "cublasGetVectorAsync",
    "cublasGetMatrixAsync",
    "cublasSetWorkspace_v2",
    "ncclMemAllocDone",
    "cuptiFinalize",
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=symbols.txt");
    println!("cargo::rerun-if-changed=src");
    // Other libraries name this one by what it is called, not by where it was built.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmemviz_rehearsal.so");
    let mut sources = String::new();
    for entry in fs::read_dir("src")? {
        sources += &fs::read_to_string(entry?.path())?;
    }
    // Names of functions are words that the sources use for nothing else.
    let code = sources.lines().filter(|line| !line.trim_start().starts_with("//"));
    let written: HashSet<&str> =
        code.flat_map(|line| line.split(|next: char| !next.is_alphanumeric() && next != '_')).collect();
    let mut stubs = String::new();
    for name in fs::read_to_string("symbols.txt")?.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if written.contains(name) {
            continue;
        }
        let answers = ANSWERS.iter().any(|part| name.contains(part)) && !DONE.contains(&name);
        let failure = FAILURES.iter().find(|(library, _)| name.starts_with(library)).map_or(1, |&(_, status)| status);
        let body = if answers { format!("refused(c\"{name}\"); {failure}") } else { "0".to_owned() };
        writeln!(
            stubs,
            "/// Not written by hand.\n#[unsafe(no_mangle)]\n#[allow(non_snake_case)]\npub extern \"C\" fn {name}() -> i32 {{ {body} }}"
        )
        .map_err(io::Error::other)?;
    }
    let folder = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&folder).join("stubs.rs"), stubs)
}
