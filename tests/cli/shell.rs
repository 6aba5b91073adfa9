//! The binary in a shell: exit codes, errors, input, output, colors, help.

use super::commands::{FORMATS, REPORTS};
use crate::support::{self, MALFORMED, command, fixture, memviz, memviz_reading, names, read_unpacked, skipped};
use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

// ------------------------------------------------------------------ exit codes and errors

#[test]
fn success_is_0() {
    let tiny = fixture("tiny");
    for args in [
        &["peak", &tiny] as &[&str],
        &["info", &tiny],
        &["leaks", &tiny],
        &["checkpoint", &tiny],
        &["simulate", &tiny],
        &["man"],
        &["help"],
        &["help", "peak"],
        &["--help"],
        &["peak", "--help"],
        &["--version"],
        &["completions", "bash"],
        &["record"],
        &["record", "--snippet"],
        &["--help-common"],
        &["fit", "--help-common"],
    ] {
        let run = memviz(args);
        run.expect(0);
        assert_eq!(run.stderr, "", "{args:?}");
        assert!(!run.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(memviz(&["--version"]).stdout, format!("memviz {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn usage_errors_exit_with_2_and_name_accepted_values() {
    let tiny = fixture("tiny");
    for (args, parts) in [
        (&[] as &[&str], &["Usage"] as &[&str]),
        (&["frobnicate"], &["frobnicate"]),
        (&["peak"], &["<INPUT>"]),
        (&["info"], &["<INPUT>"]),
        (&["completions"], &["<SHELL>"]),
        (&["completions", "tcsh"], &["tcsh", "bash", "zsh", "fish"]),
        (&["peak", &tiny, &tiny], &[&tiny]),
        (&["peak", &tiny, "--frobnicate"], &["--frobnicate"]),
        (&["peak", &tiny, "--at", "noon"], &["noon", "entry:N", "annotation:NAME[#K]"]),
        (&["peak", &tiny, "--at", "entry:-1"], &["entry:-1"]),
        (&["peak", &tiny, "--at", "time:soon"], &["time:soon"]),
        (&["peak", &tiny, "--from", "annotation:"], &["annotation:"]),
        (&["peak", &tiny, "--to", ""], &["--to"]),
        (&["peak", &tiny, "--device", "gpu"], &["gpu", "a device number or all"]),
        (&["peak", &tiny, "--device", "99999999999"], &["99999999999"]),
        (&["peak", &tiny, "--metric", "rss"], &["rss", "allocated", "active", "requested", "reserved"]),
        (&["peak", &tiny, "--by", "line"], &["line", "site", "annotation"]),
        (&["peak", &tiny, "--format", "xml"], &["xml", "markdown"]),
        (&["peak", &tiny, "--top", "many"], &["many"]),
        (&["peak", &tiny, "--threads", "0"], &["--threads"]),
        (&["peak", &tiny, "--color", "red"], &["red", "auto", "always", "never"]),
        (&["info", &tiny, "--metric", "allocated"], &["--metric"]),
        (&["fragmentation", &tiny, "--points", "9"], &["--over-time"]),
        (&["fragmentation", &tiny, "--over-time", "--points", "0"], &["--points"]),
        (&["fragmentation", &tiny, "--over-time", "--at", "end"], &["--at", "--over-time"]),
        (&["oom", &tiny, "--at", "oom"], &["--at"]),
        (&["checkpoint", &tiny, "--by", "site"], &["--by"]),
        (&["checkpoint", &tiny, "--x", "steps"], &["steps", "time", "entry"]),
    ] {
        let run = memviz(args);
        run.expect(2);
        assert_eq!(run.stdout, "", "{args:?}");
        // Without a command it is help that is wanted.
        assert!(args.is_empty() || run.stderr.lines().count() == 1, "{args:?}: {}", run.stderr);
        assert!(args.is_empty() || run.stderr.starts_with("memviz: "), "{args:?}: {}", run.stderr);
        for part in parts {
            assert!(run.stderr.contains(part), "{args:?} does not mention {part:?}: {}", run.stderr);
        }
    }
}

#[test]
fn errors_are_one_line_with_the_file_in_front() {
    let tiny = fixture("tiny");
    let multi = fixture("multi_gpu");
    let old = fixture("tiny_t201");
    for (path, args, part) in [
        ("no/such/file.pickle", &[] as &[&str], ""),
        (support::FIXTURES, &[], if cfg!(windows) { "" } else { "folder" }),
        ("fixtures/README.md", &[], ""),
        ("Cargo.toml", &[], ""),
        (&tiny, &["--device", "7"], "recorded devices (0), found 7"),
        (&tiny, &["--device", "-1"], "recorded devices (0), found -1"),
        (&multi, &["--device", "0", "--device", "2"], "recorded devices (0, 1), found 2"),
        (&tiny, &["--at", "entry:11"], "11 entries"),
        (&tiny, &["--at", "oom"], "no oom"),
        (&tiny, &["--at", "annotation:step"], "\"step\""),
        (&old, &["--at", "time:1s"], "no times"),
        (&tiny, &["--from", "entry:5", "--to", "entry:2"], "--from before --to"),
    ] {
        let run = memviz(&[&["peak", path], args].concat());
        run.expect_error(part);
        assert!(run.stderr.starts_with(&format!("memviz: {path}: ")), "{args:?}: {:?}", run.stderr);
    }
    memviz(&["peak", &tiny, "--include", "("]).expect_error("regular expression");
}

#[test]
fn annotations_there_are_are_named_when_one_is_not() {
    memviz(&["peak", &fixture("annotated"), "--at", "annotation:evaluation"]).expect_error("backward");
}

#[test]
fn strict_is_1_for_contradictions_only() {
    for file in ["free-of-unknown-address.pickle", "overlapping-alloc.pickle"] {
        let path = format!("{MALFORMED}/{file}");
        for command in REPORTS {
            for format in FORMATS {
                let lenient = memviz(&[command, "--format", format, &path]);
                let strict = memviz(&[command, "--format", format, "--strict", &path]);
                lenient.expect(0);
                strict.expect(1);
                assert_eq!(strict.stdout, lenient.stdout, "the answer is the same");
            }
        }
    }
    for name in ["tiny", "gpt_late", "ring", "skip_actions", "no_history", "empty"] {
        memviz(&["peak", "--strict", &fixture(name)]).expect(0);
    }
    for file in ["unknown-action.pickle", "unknown-keys.pickle"] {
        memviz(&["peak", "--strict", &format!("{MALFORMED}/{file}")]).expect(0);
    }
    memviz(&["peak", "--strict", &format!("{MALFORMED}/empty.pickle")]).expect(2);
}

// ------------------------------------------------------------------ input

#[test]
fn standard_input_is_read() {
    for name in ["tiny", "pinned_t215"] {
        let path = fixture(name);
        let by_name = memviz(&["peak", "--format", "json", &path]).json();
        for bytes in [fs::read(&path).unwrap(), read_unpacked(&path)] {
            let by_pipe = memviz_reading(&["peak", "--format", "json", "-"], &bytes).json();
            assert_eq!(by_pipe["input"]["path"], "<stdin>");
            assert_eq!(by_pipe["input"]["bytes"], bytes.len());
            assert_eq!(by_pipe["devices"], by_name["devices"]);
        }
    }
    let run = memviz_reading(&["peak", "-"], b"");
    run.expect_error("empty");
    assert!(run.stderr.starts_with("memviz: <stdin>: "), "{:?}", run.stderr);
    memviz_reading(&["info", "-"], b"\x80\x04}").expect_error("the file ends");
}

#[test]
fn containers_are_recognized_by_content() {
    let folder = TempDir::new().unwrap();
    let plain = read_unpacked(&fixture("tiny"));
    let gzip = fs::read(fixture("tiny")).unwrap();
    let (first, second) = plain.split_at(plain.len() / 2);
    let expected = memviz(&["peak", "--format", "json", &fixture("tiny")]).json();
    let members = [gzipped(first), gzipped(second)].concat();
    let frames = [zstd::encode_all(first, 1).unwrap(), zstd::encode_all(second, 19).unwrap()].concat();
    let stored = zipped(&[("snapshot.pickle", &plain)], zip::CompressionMethod::Stored);
    let deflated = zipped(&[("rank0/", b""), ("rank0/a.bin", &plain)], zip::CompressionMethod::Deflated);
    for (name, bytes, compression) in [
        ("plain.pickle.gz", &plain, "plain"),
        ("plain.zip", &plain, "plain"),
        ("plain", &plain, "plain"),
        ("gzip.pickle", &gzip, "gzip"),
        ("gzip.zst", &gzip, "gzip"),
        ("gzip-members.pickle", &members, "gzip"),
        ("zstd.pickle", &zstd::encode_all(&plain[..], 3).unwrap(), "zstd"),
        ("zstd-frames.json", &frames, "zstd"),
        ("stored.gz", &stored, "zip"),
        ("deflated.pickle", &deflated, "zip"),
    ] {
        let path = put(&folder, name, bytes);
        let found = memviz(&["peak", "--format", "json", &path]).json();
        assert_eq!(found["devices"], expected["devices"], "{name}");
        assert_eq!(found["input"]["bytes"], bytes.len(), "{name}");
        let info = memviz(&["info", "--format", "json", &path]).json();
        assert_eq!(info["compression"], compression, "{name}");
        assert_eq!(info["decompressed_bytes"], plain.len(), "{name}");
    }
    let two = zipped(&[("a.pickle", &plain), ("b.pickle", &plain)], zip::CompressionMethod::Stored);
    memviz(&["peak", &put(&folder, "two.zip", &two)]).expect_error("several");
    let none = zipped(&[("folder/", b"")], zip::CompressionMethod::Stored);
    memviz(&["peak", &put(&folder, "none.zip", &none)]).expect_error("none");
    memviz(&["peak", &put(&folder, "trace.json", b"{\"traceEvents\": []}")])
        .expect_error("a profiler trace without memory events");
}

// ------------------------------------------------------------------ output

#[test]
fn output_files_are_written_and_never_overwritten_unasked() {
    let folder = TempDir::new().unwrap();
    let tiny = fixture("tiny");
    for command in REPORTS {
        for format in FORMATS {
            let path = folder.path().join(format!("{command}.{format}"));
            let path = path.to_str().unwrap();
            let expected = memviz(&[command, "--format", format, &tiny]).stdout;

            let run = memviz(&[command, "--format", format, "-o", path, &tiny]);
            run.expect(0);
            assert_eq!(run.stdout, "");
            assert!(run.stderr.starts_with(&format!("wrote {path}, ")), "{:?}", run.stderr);
            assert_eq!(run.stderr.lines().count(), 1, "{:?}", run.stderr);
            assert_eq!(fs::read_to_string(path).unwrap(), expected);

            fs::write(path, "precious, and longer than any answer ".repeat(1000)).unwrap();
            let before = fs::read(path).unwrap();
            let run = memviz(&[command, "--format", format, "--output", path, &tiny]);
            run.expect_error("--force");
            assert!(run.stderr.starts_with(&format!("memviz: {path} already exists")), "{:?}", run.stderr);
            assert_eq!(fs::read(path).unwrap(), before, "the file is as it was");

            memviz(&[command, "--format", format, "-o", path, "--force", &tiny]).expect(0);
            assert_eq!(fs::read_to_string(path).unwrap(), expected, "nothing is left of what was there");
        }
    }
}

#[test]
fn no_output_file_is_left_when_there_is_no_answer() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("answer.json");
    let shown = path.to_str().unwrap();
    memviz(&["peak", "-o", shown, "no/such/file"]).expect(2);
    assert!(!path.exists());
    memviz(&["peak", "-o", shown, &fixture("tiny"), "--at", "entry:99"]).expect(2);
    assert!(!path.exists());
    let nowhere = folder.path().join("missing/answer.json");
    let nowhere = nowhere.to_str().unwrap();
    let run = memviz(&["peak", "-o", nowhere, &fixture("tiny")]);
    run.expect_error("/missing does not exist");
    assert!(run.stderr.starts_with(&format!("memviz: {nowhere}: ")), "{:?}", run.stderr);
    memviz(&["peak", "--format", "text", "--force", "-o", folder.path().to_str().unwrap(), &fixture("tiny")])
        .expect_error("is a directory");
}

#[test]
fn the_input_is_never_overwritten() {
    let folder = TempDir::new().unwrap();
    let bytes = fs::read(fixture("tiny")).unwrap();
    let path = put(&folder, "snapshot.pickle.gz", &bytes);
    memviz(&["peak", "--force", "-o", &path, &path]).expect_error("found");
    memviz(&["peak", "--format", "text", "--force", "-o", &path, &path]).expect_error("is the input");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let path = fixture("llama_hf_all");
    for format in FORMATS {
        let args = ["peak", "--by", "stack", "--top", "1000", "--format", format, &path];
        let length = memviz(&args).stdout.len();
        for take in [0, 10, length / 2] {
            closed_pipe(&args, take);
        }
    }
    let large = memviz(&["peak", "--by", "stack", "--format", "json", &path]).stdout.len();
    assert!(large > 2 * 65_536, "the answer does not fit into a pipe");
    closed_pipe(&["info", &path], 0);
    closed_pipe(&["man"], 0);
    closed_pipe(&["completions", "bash"], 0);
    closed_pipe(&["--help"], 0);
}

/// Reads this many bytes of the answer and closes the pipe.
#[track_caller]
fn closed_pipe(args: &[&str], take: usize) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut vec![0; take]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?} after {take} bytes: {output:?}");
    assert_eq!(output.stderr, b"", "{args:?} after {take} bytes");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    if !Path::new("/dev/full").exists() {
        return skipped("there is no /dev/full");
    }
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    for args in [&["peak", &fixture("tiny")] as &[&str], &["info", "--format", "json", &fixture("tiny")], &["man"]] {
        let output = command(args).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.starts_with(b"memviz: "), "{args:?}: {output:?}");
    }
    memviz(&["peak", "--force", "-o", "/dev/full", &fixture("tiny")]).expect_error("/dev/full: ");
}

#[test]
fn colors_are_for_terminals_and_for_those_who_ask() {
    const ESCAPE: &str = "\u{1b}[";
    let path = fixture("gpt_train");
    for name in REPORTS {
        let plain = memviz(&[name, &path]).stdout;
        assert!(!plain.contains(ESCAPE), "a pipe is no terminal");
        assert_eq!(memviz(&[name, "--color", "never", &path]).stdout, plain);
        let colored = memviz(&[name, "--color", "always", &path]).stdout;
        assert!(colored.contains(ESCAPE));
        assert_eq!(without_escapes(&colored), plain, "colors change nothing else");
        let output = command(&[name, "--color", "auto", &path]).env("NO_COLOR", "1").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), plain);
        for format in ["json", "csv", "markdown"] {
            let run = memviz(&[name, "--color", "always", "--format", format, &path]);
            run.expect(0);
            assert!(!run.stdout.contains(ESCAPE), "{format} has no colors");
        }
    }
}

/// With a pseudo-terminal made by `script`.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_colors_and_its_own_width() {
    let path = fixture("gpt_train");
    let in_terminal = |variables: &[(&str, &str)], arguments: &str| {
        // On a busy machine a progress bar would come in between.
        let line = format!("{} peak --quiet {path} {arguments}", env!("CARGO_BIN_EXE_memviz"));
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env_remove("NO_COLOR").env_remove("COLUMNS");
        script.envs(variables.iter().copied()).stdin(Stdio::null()).output()
    };
    let text = |variables: &[(&str, &str)], arguments: &str| match in_terminal(variables, arguments) {
        Ok(output) if output.status.success() => Some(String::from_utf8(output.stdout).unwrap().replace('\r', "")),
        _ => None,
    };
    let Some(colored) = text(&[("COLUMNS", "100")], "") else { return skipped("there is no usable `script`") };
    assert!(colored.contains("\u{1b}["), "{colored:?}");
    let plain = text(&[("COLUMNS", "100"), ("NO_COLOR", "1")], "").unwrap();
    assert_eq!(plain, without_escapes(&colored), "NO_COLOR turns colors off");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert_eq!(text(&[("COLUMNS", "100"), ("NO_COLOR", "")], "").unwrap(), colored, "an empty NO_COLOR does not count");
    assert_eq!(text(&[("COLUMNS", "100"), ("NO_COLOR", "1")], "--color always").unwrap(), colored, "a flag wins");
    assert_eq!(text(&[("COLUMNS", "100")], "--color never").unwrap(), plain);
    let narrow = text(&[("COLUMNS", "60"), ("NO_COLOR", "1")], "").unwrap();
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(longest(&narrow) <= 60, "{narrow}");
    assert!(longest(&plain) > 60, "{plain}");
}

#[test]
fn quiet_hides_warnings_and_nothing_else() {
    // Device 1 has fewer entries.
    let path = fixture("multi_gpu");
    let args = ["peak", &path, "--at", "entry:2300"];
    let loud = memviz(&args);
    loud.expect(0);
    assert_eq!(loud.stderr.lines().count(), 1, "{:?}", loud.stderr);
    assert!(loud.stderr.starts_with(&format!("memviz: {path}: device 1 ")), "{:?}", loud.stderr);
    for flag in ["-q", "--quiet"] {
        let quiet = memviz(&[&args[..], &[flag]].concat());
        quiet.expect(0);
        assert_eq!(quiet.stderr, "");
        assert_eq!(quiet.stdout, loud.stdout);
    }
    memviz(&["peak", "--quiet", "no/such/file"]).expect_error("no/such/file");
}

// ------------------------------------------------------------------ help

#[test]
fn completions_know_commands_and_flags() {
    for (shell, parts) in [
        ("bash", ["_memviz()", "--allow-truncated", "peak", "annotation"]),
        ("zsh", ["#compdef memviz", "--allow-truncated", "peak", "annotation"]),
        ("fish", ["complete -c memviz", "allow-truncated", "peak", "annotation"]),
    ] {
        let run = memviz(&["completions", shell]);
        run.expect(0);
        for part in parts {
            assert!(run.stdout.contains(part), "{shell} lacks {part}");
        }
    }
}

#[test]
fn help_and_manual_mention_every_command_and_flag() {
    let help = memviz(&["--help"]).stdout;
    let man = memviz(&["man"]).stdout.replace('\\', "");
    let commands = command_names();
    for command in &commands {
        assert!(help.contains(&format!("  {command} ")), "{command}: {help}");
        assert!(man.contains(&format!(".TH memviz-{command} 1")), "the manual lacks {command}");
        let own = memviz(&[command, "--help"]);
        own.expect(0);
        let flags: Vec<&str> =
            own.stdout.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2).collect();
        for flag in flags {
            let flag = flag.trim_end_matches([',', ';', '.']);
            assert!(man.contains(flag), "the manual lacks {flag} of {command}");
        }
    }
    assert!(help.contains("Exit codes"), "{help}");
    for code in ["0 success", "1 a requested check failed", "2 error"] {
        assert!(help.contains(code) && man.contains(code), "{code}");
    }
}

#[test]
fn help_fits_a_screen() {
    for command in command_names().iter().map(|name| vec![name.as_str()]).chain([vec![]]) {
        let help = memviz(&[&command[..], &["-h"]].concat());
        let lines = help.expect(0).stdout.trim_end().lines().count();
        assert!(lines < 44, "{command:?} -h has {lines} lines\n{}", help.stdout);
    }
}

/// Where there are no files, an example ends because it finds none, not because it cannot be parsed.
#[test]
fn every_example_of_the_help_can_be_typed() {
    let folder = TempDir::new().unwrap();
    let without = ["record", "mcp", "rules", "schema", "completions", "man"];
    let commands: Vec<String> = command_names().into_iter().filter(|name| !without.contains(&name.as_str())).collect();
    let mut found = 0;
    for name in &commands {
        let help = memviz(&[name, "--help"]).stdout;
        let examples = help.lines().filter_map(|line| Some(line.trim().strip_prefix("memviz ")?.split_once("  # ")?.0));
        for example in examples {
            found += 1;
            let words: Vec<&str> = example.split_whitespace().collect();
            // No `python` is found either, so nothing is rehearsed.
            let run = command(&words).current_dir(&folder).env("PATH", "").output().unwrap();
            let error = String::from_utf8(run.stderr).unwrap();
            let lacks_file = ["No such file", "expected files that match"].iter().any(|reason| error.contains(reason));
            assert!(lacks_file, "{example}: {error}");
        }
    }
    assert_eq!(found, 2 * commands.len());
}

// ------------------------------------------------------------------ helpers

/// The commands, which have a file or a folder each in the sources.
fn command_names() -> Vec<String> {
    let files = names("src/cli/command");
    let stems = files.iter().map(|file| file.strip_suffix(".rs").unwrap_or(file));
    let commands = stems.filter(|stem| !stem.contains('.') && !["mod", "help"].contains(stem));
    let commands = commands.filter(|&stem| cfg!(feature = "mcp") || stem != "mcp");
    let commands: Vec<String> = commands.map(str::to_owned).collect();
    assert!(commands.len() >= 20, "{commands:?}");
    commands
}

/// Writes a file and returns its path.
fn put(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An archive of files and, where the name ends in a slash, folders.
fn zipped(files: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in files {
        if name.ends_with('/') {
            archive.add_directory(*name, options).unwrap();
        } else {
            archive.start_file(*name, options).unwrap();
            archive.write_all(bytes).unwrap();
        }
    }
    archive.finish().unwrap().into_inner()
}

/// Text without `ESC [ ... m`.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').expect("colors end in m").1;
    }
    plain
}
