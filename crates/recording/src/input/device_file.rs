//! Reads `run.device.json`, which is next to the recording `run.pickle`.

use crate::error::{Error, Result};
use crate::model::device_file::DeviceFile;
use serde::Deserialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The version of the keys that memviz reads.
const VERSION: u32 = 1;
/// The largest file that is read, in bytes: enough for thousands of processes and groups.
const MOST_BYTES: u64 = 16 << 20;
/// More memory than any device has, in bytes.
const MOST_MEMORY: u64 = 1 << 60;
const COMPRESSED: [&str; 3] = ["gz", "zst", "zip"];

/// The file with the key that distinguishes it from other JSON.
#[derive(Deserialize)]
struct Marked {
    format: String,
    #[serde(flatten)]
    file: DeviceFile,
}

/// The path of the samples for a recording: `run.device.json` for `run.pickle` and `run.pickle.gz`.
pub fn path_beside(recording: &Path) -> PathBuf {
    let is_compressed = recording.extension().is_some_and(|end| COMPRESSED.iter().any(|known| end == *known));
    let plain = if is_compressed { recording.with_extension("") } else { recording.to_path_buf() };
    plain.with_extension("device.json")
}

/// Reads the samples next to a recording; `None` if there are none.
///
/// # Errors
/// If the file cannot be read, is not a file of samples, or has an unknown version.
pub fn beside(recording: &Path) -> Result<Option<DeviceFile>> {
    let path = path_beside(recording);
    let about = |error: Error| Error::Request(format!("{}: {error}", path.display()));
    match path.metadata() {
        // Opening a pipe would block.
        Ok(found) if !found.is_file() => {
            return Err(about(Error::Request("expected a file, found something else".to_owned())));
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        _ => {}
    }
    File::open(&path).map_err(Error::from).and_then(read).map(Some).map_err(about)
}

pub fn read(stream: impl Read) -> Result<DeviceFile> {
    let mut text = Vec::new();
    stream.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Error::Request(format!("expected at most {MOST_BYTES} bytes of device samples, found more")));
    }
    let wrong = |found: String| Error::Request(format!("expected device samples of torch_memviz, found {found}"));
    let marked: Marked = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if marked.format != "memviz device" {
        return Err(wrong(format!("the format {:?}", marked.format)));
    }
    if marked.file.version != VERSION {
        return Err(wrong(format!("version {}; this memviz reads version {VERSION}", marked.file.version)));
    }
    require_plausible(&marked.file).map_err(wrong)?;
    Ok(marked.file)
}

/// Checks that every figure is a possible amount of memory and that no device is listed twice.
fn require_plausible(file: &DeviceFile) -> std::result::Result<(), String> {
    let host = file.host.iter().flat_map(|sample| [sample.reserved_bytes, sample.active_bytes]);
    if host.max().is_some_and(|most| most > MOST_MEMORY) {
        return Err("pinned host memory of more than an exbibyte".to_owned());
    }
    let mut known = HashSet::new();
    for device in &file.devices {
        if !known.insert(device.device) {
            return Err(format!("device {} twice", device.device));
        }
        for sample in &device.samples {
            if sample.free_bytes > sample.total_bytes {
                let (free, total) = (sample.free_bytes, sample.total_bytes);
                return Err(format!("device {} with {free} bytes free of {total}", device.device));
            }
            let processes = sample.processes.iter().flatten().filter_map(|process| process.bytes);
            let groups = sample.nccl.iter().map(|group| group.bytes);
            let own = [sample.total_bytes, sample.reserved_bytes, sample.allocated_bytes];
            let sum = processes.chain(groups).chain(own).try_fold(0u64, u64::checked_add);
            if sum.is_none_or(|sum| sum > MOST_MEMORY) {
                return Err(format!("device {} with more than an exbibyte of memory", device.device));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_next_to_the_recording() {
        for name in ["run.pickle", "run.pickle.gz", "run.pickle.zst"] {
            assert_eq!(path_beside(Path::new("/a").join(name).as_path()), Path::new("/a/run.device.json"));
        }
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        let device = |samples: &str| {
            format!(
                r#"{{"format": "memviz device", "version": 1, "pid": 1, "devices": [{{"device": 0, "samples": [{samples}]}}]}}"#
            )
        };
        let sample = |free: u64, reserved: u64| {
            format!(
                r#"{{"at": "end", "total_bytes": 9, "free_bytes": {free}, "reserved_bytes": {reserved}, "allocated_bytes": 0}}"#
            )
        };
        assert!(read(device(&sample(3, 4)).as_bytes()).is_ok());
        for (text, said) in [
            ("[1]".to_owned(), "invalid type"),
            (r#"{"format": "other", "version": 1, "pid": 1, "devices": []}"#.to_owned(), "the format \"other\""),
            (r#"{"format": "memviz device", "version": 2, "pid": 1, "devices": []}"#.to_owned(), "version 2"),
            (device(&sample(10, 4)), "10 bytes free of 9"),
            (device(&sample(3, u64::MAX)), "more than an exbibyte"),
            (device(r#"{"at": "never"}"#), "unknown variant"),
            (
                device("").replace(
                    "]}]}",
                    r#"]}], "host": [{"at": "end", "reserved_bytes": 0, "active_bytes": 9000000000000000000}]}"#,
                ),
                "pinned",
            ),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert!(error.starts_with("expected device samples"), "{error}");
        }
    }
}
