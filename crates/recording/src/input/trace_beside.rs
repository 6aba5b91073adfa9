//! The profiler trace of the same run as a snapshot: it contains the device's memory, which a snapshot does not.

use super::json::devices;
use super::{ReadOptions, Unpacked, open};
use crate::error::Result;
use crate::model::DeviceId;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most bytes of a trace that are read: its GPUs come before its events.
const HEAD: u64 = 1 << 20;
/// How the names of traces end, before the extension of compression.
const ENDS: [&str; 3] = [".pt.trace.json", ".trace.json", ".json"];
const MOST_FILES: usize = 10_000;

/// The path of the trace: `run.trace.json`, `run.pt.trace.json` or `run.json` next to `run.pickle`, each also with `.gz`;
/// otherwise the only file of the folder whose name ends in `.trace.json` or `.trace.json.gz`.
pub fn path_beside(recording: &Path) -> Option<PathBuf> {
    let name = recording.file_name()?.to_str()?;
    let plain = [".gz", ".zst", ".zip"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let stem = plain.strip_suffix(".pickle").or_else(|| plain.strip_suffix(".pkl"))?;
    let same_run =
        ENDS.iter().flat_map(|end| ["", ".gz"].map(|packed| recording.with_file_name(format!("{stem}{end}{packed}"))));
    if let Some(found) = same_run.into_iter().find(|path| path.is_file()) {
        return Some(found);
    }
    let folder = recording.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names =
        fs::read_dir(folder).ok()?.take(MOST_FILES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut traces = names.filter(|name| name.ends_with(".trace.json") || name.ends_with(".trace.json.gz"));
    let only = traces.next()?;
    traces.next().is_none().then(|| recording.with_file_name(only)).filter(|path| path.is_file())
}

/// The memory of each GPU in bytes, from the trace next to a recording, and the name of the trace; `None` if there is no such
/// trace, or if it names no GPU.
pub fn memory_beside(recording: &Path) -> Option<(String, Vec<(DeviceId, u64)>)> {
    let path = path_beside(recording)?;
    let gpus = head_of(&path).ok()?;
    let memory: Vec<_> =
        gpus.iter().filter_map(|gpu| Some((gpu.id?, gpu.memory))).filter(|&(_, memory)| memory > 0).collect();
    let name = path.file_name()?.to_string_lossy().into_owned();
    (!memory.is_empty()).then_some((name, memory))
}

fn head_of(path: &Path) -> Result<Vec<devices::TracedGpu>> {
    let options = ReadOptions { on_one_thread: true, ..ReadOptions::default() };
    devices::read(Unpacked::new(open(path)?, &options)?.into_reader().take(HEAD))
}
