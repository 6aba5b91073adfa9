//! Files that are not recordings which memviz reads, recognized by their first bytes.
//!
//! The error names the kind of file and what to do: download it, unpack it, or record with a call that memviz can read.

/// What memviz reads, for users with another kind of file.
const OWN: &str = "memviz reads PyTorch's own recordings: torch.cuda.memory._dump_snapshot, or export_chrome_trace with \
                   profile_memory=True";

/// First bytes, the kind of file, and what to do; [`OWN`] if that is empty.
const KINDS: &[(&[u8], &str, &str)] = &[
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file itself", "git lfs pull fetches it"),
    (b"NVIDIA Tegra Profiler Report", "an Nsight Systems report", NSYS),
    (b"SQLite format 3\0", "an SQLite database", DATABASE),
    (b"NVR\0", "an Nsight Compute report", ""),
    (b"memray\0", "a memray recording", "memray's own commands read it; it covers CPU memory"),
    (b"\xfd7zXZ\0", "compressed with xz", "unpack it first, with xz -d"),
    (b"BZh", "compressed with bzip2", "unpack it first, with bzip2 -d"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "unpack it first, with lz4 -d"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it first"),
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)", ""),
    (b"\xff\xd8\xff", "a picture (JPEG)", ""),
    (b"GIF8", "a picture (GIF)", ""),
    (b"%PDF-", "a PDF", ""),
    (b"\x7fELF", "a program or library (ELF)", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", ""),
    (b"GGUF", "a model (GGUF)", ""),
    (b"PAR1", "a Parquet table", "memviz ranks reads those that it wrote"),
    (b"\xff\xfe", "text in UTF-16", "save it as UTF-8"),
    (b"<svg", "a picture (SVG)", ""),
    (b"#!", "a script", ""),
    (b"<?xml", "XML, perhaps a picture (SVG)", ""),
];

/// What to do with a report of Nsight Systems.
const NSYS: &str = "nsys export --type sqlite FILE converts it, and memviz nsys reads the result";

/// What to do with a database.
const DATABASE: &str = "memviz nsys reads it if Nsight Systems exported it";

/// What to do with a profile of `XProf`.
const XPLANE: &str = "TensorBoard and XProf show it; memviz reads files written by \
                      jax.profiler.save_device_memory_profile and torch.cuda.memory._dump_snapshot";

/// First keys of JSON of other programs, what follows them, the kind of file, and what to do.
const JSON: &[(&str, &str, &str, &str)] = &[
    ("rocprofiler-sdk-tool", "", "a trace of rocprofiler-sdk (rocprofv3)", ""),
    (
        "schema",
        "chakra",
        "a PyTorch execution trace (ExecutionTraceObserver), which records operators but no memory",
        OPERATORS,
    ),
];

/// What to do with a file that contains operators without their memory.
const OPERATORS: &str = "torch.profiler.profile(profile_memory=True, with_stack=True) records both";

/// Describes a file with these first bytes and what to do, if memviz recognizes it but does not read it.
pub fn describe(begin: &[u8]) -> Option<String> {
    let found = KINDS.iter().find(|(magic, _, _)| begin.starts_with(magic)).map(|&(_, what, advice)| (what, advice));
    let found = found.or_else(|| is_xplane(begin).then_some(("an XProf profile (.xplane.pb)", XPLANE)));
    let found =
        found.or_else(|| is_cprofile(begin).then_some(("a cProfile profile, which records times but no memory", "")));
    let found = found.or_else(|| json(begin));
    let found = found.or_else(|| is_safetensors(begin).then_some(("a model (safetensors)", "")));
    let (what, advice) = found.or_else(|| is_prose(begin).then_some(("a text file, such as a log or a table", "")))?;
    Some(format!("{what}; {}", if advice.is_empty() { OWN } else { advice }))
}

/// A message whose first field is a plane with the name of a device or the host: `XSpace` of `XProf`.
fn is_xplane(begin: &[u8]) -> bool {
    let is_named = |part: &[u8], name: &[u8]| part.windows(name.len()).any(|window| window == name);
    let start = &begin[..begin.len().min(64)];
    begin.first() == Some(&0x0a) && (is_named(start, b"/device:") || is_named(start, b"/host:"))
}

/// A marshalled dictionary whose first key is a tuple of file, line and function.
fn is_cprofile(begin: &[u8]) -> bool {
    matches!(begin, [b'{' | 0xfb, b')' | 0xa9, 3, ..])
}

fn json(begin: &[u8]) -> Option<(&'static str, &'static str)> {
    let key = begin.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start().strip_prefix(b"\"")?;
    let is_like = |(name, part, _, _): &&(&str, &str, &str, &str)| {
        let rest = key.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"\""));
        rest.is_some_and(|rest| part.is_empty() || rest.windows(part.len()).any(|window| window == part.as_bytes()))
    };
    JSON.iter().find(is_like).map(|&(_, _, what, advice)| (what, advice))
}

/// The length of a JSON header in eight bytes, followed by the header.
fn is_safetensors(begin: &[u8]) -> bool {
    const LONGEST_HEADER: u64 = 100_000_000;
    let Some((length, header)) = begin.split_first_chunk::<8>() else { return false };
    (2..LONGEST_HEADER).contains(&u64::from_le_bytes(*length)) && header.starts_with(b"{\"")
}

/// A first line of several words or cells. JSON and pages start with a bracket, and so do pickles that consist of text.
fn is_prose(begin: &[u8]) -> bool {
    // The last character may be cut.
    let text = match std::str::from_utf8(begin) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&begin[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => return false,
    };
    let first_line = text.trim_start().lines().next().unwrap_or("");
    let is_shown = text.chars().all(|next| !next.is_control() || matches!(next, '\n' | '\r' | '\t'));
    is_shown
        && !first_line.starts_with(['{', '[', '<', '(', '}', ']', ')'])
        && first_line.contains([' ', ',', ';', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_named_with_a_next_step() {
        for (magic, what, _) in KINDS {
            let line = describe(&[magic, &b" and more"[..]].concat()).unwrap_or_default();
            assert!(line.starts_with(what) && line.contains("; ") && !line.contains('\n'), "{line}");
        }
        let safetensors = [&[64, 0, 0, 0, 0, 0, 0, 0][..], b"{\"weight\":"].concat();
        assert!(describe(&safetensors).is_some_and(|line| line.contains("safetensors")));
    }

    #[test]
    fn profiles_of_xprof_are_named() {
        let begin = b"\x0a\xf1\x05\x12\x1e/device:CUSTOM:Megascale Trace";
        assert!(describe(begin).is_some_and(|line| line.contains("XProf")));
        assert_eq!(describe(b"\x0a\x04\x08\x01\x10\x02"), None, "a device memory profile");
    }

    #[test]
    fn profiles_of_other_programs_are_named() {
        for (begin, words) in [
            (&b"{\"rocprofiler-sdk-tool\": [{"[..], "rocprofiler-sdk"),
            (b"{\n  \"schema\": \"1.1.1-chakra.0.0.4\", \"pid\": 7", "ExecutionTraceObserver"),
            (b"{\xa9\x03\xfa\x08train.py\xe9", "cProfile"),
        ] {
            assert!(describe(begin).is_some_and(|line| line.contains(words)), "{words}");
        }
        assert_eq!(describe(b"{\"schemaVersion\": 1, \"deviceProperties\": []"), None, "a trace of torch.profiler");
    }

    #[test]
    fn texts_are_named() {
        for begin in
            ["Traceback (most recent call last):\n", "step,loss\n1,2\n", "  \nimport torch", "é à la carte \u{e9}"]
        {
            assert!(describe(begin.as_bytes()).is_some_and(|line| line.contains("a log")), "{begin}");
        }
        assert!(describe(&"ein Ö".as_bytes()[..5]).is_some(), "cut in the middle of a character");
        assert_eq!(describe(b"cos\nsystem\n(S'echo hi'\ntR."), None, "a pickle that names a function");
    }

    #[test]
    fn recordings_are_not_mistaken() {
        for begin in [&b"\x80\x04\x95"[..], b"\x80\x02}q", b"(dp0", b"{\"traceEvents\":", b"[[", b"<html>", b"", b"B"] {
            assert_eq!(describe(begin), None, "{begin:?}");
        }
    }
}
