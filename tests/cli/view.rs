//! `memviz view`: the page that it writes, and the one that it serves.

use crate::support::{Run, command, fixture, memviz, memviz_reading, read_unpacked};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use tempfile::TempDir;

/// The marker before the recording in a page, after its name.
const RECORDING: &str = r#"<script type="application/octet-stream;ascii85" id="recording" data-name=""#;

/// The attributes of the recording in a page, and the recording.
fn carried(page: &str) -> (&str, Vec<u8>) {
    let (attributes, packed) = carried_as(page);
    (attributes, zstd::decode_all(&packed[..]).unwrap())
}

/// The same for a compressed recording.
fn carried_as(page: &str) -> (&str, Vec<u8>) {
    let (_, rest) = page.split_once(RECORDING).unwrap();
    let (attributes, rest) = rest.split_once(r#"">"#).unwrap();
    let (text, _) = rest.split_once("</script>").unwrap();
    (attributes, decoded(text))
}

/// Digits of 85, five for four bytes.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |&byte: &u8| u64::from(if byte == b'v' { b'<' } else { byte } - b'!');
    let group = |group: &[u8]| {
        let number = (0..5).fold(0, |number, at| number * 85 + group.get(at).map_or(84, digit));
        u32::try_from(number).unwrap().to_be_bytes()[..group.len() - 1].to_vec()
    };
    text.as_bytes().chunks(5).flat_map(group).collect()
}

#[test]
fn a_page_carries_the_recording_and_the_engine() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("view.html");
    let recording = fixture("gpt_train");
    let run = memviz(&["view", &recording, "-o", path.to_str().unwrap()]);
    run.expect(0);
    assert!(run.stderr.starts_with("wrote "), "{}", run.stderr);
    let page = fs::read_to_string(&path).unwrap();
    let plain = read_unpacked(&recording);
    let (attributes, content) = carried(&page);
    assert!(content == plain, "the recording is whole");
    assert!(attributes.starts_with(r#"snapshot.pickle.gz" data-options="#), "{attributes}");
    // The same from standard input, to standard output.
    let piped = memviz_reading(&["view", "-"], &fs::read(&recording).unwrap());
    assert!(carried(&piped.expect(0).stdout).1 == plain);
    if cfg!(unix) {
        let named = memviz_reading(&["view", "/dev/stdin"], &fs::read(&recording).unwrap());
        assert!(carried(&named.expect(0).stdout).1 == plain, "a pipe comes only once");
    }
    // Small enough to attach.
    let compressed = zstd::encode_all(&plain[..], 3).unwrap().len();
    assert!(page.len() * 10 <= compressed * 14 + 23_700_000, "{} bytes of {compressed}", page.len());
}

/// Frames of several compressors, and one to skip: the page reads each.
#[test]
fn a_page_carries_a_zstd_file_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("snapshot.pickle.zst");
    let plain = read_unpacked(&fixture("tiny"));
    let (first, rest) = plain.split_at(1000);
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3].to_vec();
    let file = [zstd::encode_all(first, 19).unwrap(), skipped, zstd::encode_all(rest, 1).unwrap()].concat();
    fs::write(&path, &file).unwrap();
    let run = memviz(&["view", path.to_str().unwrap()]);
    assert!(carried_as(&run.expect(0).stdout).1 == file);
}

#[test]
fn a_page_refers_to_nothing() {
    let empty = memviz(&["view"]).expect(0).stdout.clone();
    let page = memviz(&["view", &fixture("tiny")]).expect(0).stdout.clone();
    for page in [empty, page] {
        assert!(page.contains(r#"http-equiv="Content-Security-Policy" content="default-src 'none';"#));
        // The name of the format of pictures looks like an address, and terms of libraries have some in them.
        let (before, notice) = page.split_once(r#"<script type="text/plain" id="notice">"#).unwrap();
        let (_, behind) = notice.split_once("</script>").unwrap();
        let page = format!("{before}{behind}").replace("http://www.w3.org/2000/svg", "");
        for reference in [" src=\"", " href=\"", "@import", "http://", "https://"] {
            let at = page.find(reference);
            let around = at.map(|at| page[at..].chars().take(80).collect::<String>());
            assert_eq!(around, None, "{reference}");
        }
    }
}

#[test]
fn names_do_nothing_but_show() {
    let folder = TempDir::new().unwrap();
    let name = "<script>alert(1)<\u{2024}script> \"'&amp;\u{202e}.pickle.gz";
    let path = folder.path().join(name);
    fs::copy(fixture("tiny"), &path).unwrap();
    let page = memviz(&["view", path.to_str().unwrap()]).expect(0).stdout.clone();
    let shown = "&lt;script&gt;alert(1)&lt;\u{2024}script&gt; &quot;'&amp;amp;\u{202e}.pickle.gz\" data-options=";
    assert!(carried(&page).0.starts_with(shown), "{}", carried(&page).0);
    // Names in the recording are in its bytes, which are not text of the page.
    let without = memviz(&["view"]).expect(0).stdout.clone();
    assert_eq!(page.matches("<script").count(), without.matches("<script").count());
}

/// The name and the recording of a page.
fn named(args: &[&str]) -> (String, Vec<u8>) {
    let page = memviz(&[&["view"], args].concat()).expect(0).stdout.clone();
    let (attributes, content) = carried(&page);
    assert!(attributes.ends_with("data-show=\""), "{attributes}");
    (attributes.split_once('"').unwrap().0.to_owned(), content)
}

#[test]
fn a_page_of_a_part_contains_only_that_part() {
    let path = &fixture("multi_gpu");
    let answer = |recording: &[u8], args: &[&str]| {
        let args = [&["peak", "-", "--format", "json"], args].concat();
        memviz_reading(&args, recording).json()["devices"].clone()
    };
    let plain = read_unpacked(path);
    let (name, whole) = named(&[path]);
    assert_eq!((name.as_str(), whole == plain), ("snapshot.pickle.gz", true));
    assert!(named(&[path, "--from", "start"]).1 == plain, "all of it is as it was");

    let (name, one) = named(&[path, "--device", "1"]);
    assert_eq!(name, "snapshot.pickle.gz, device 1");
    assert_eq!(answer(&one, &[]), answer(&plain, &["--device", "1"]));
    assert!(one.len() < plain.len());

    let window = ["--from", "entry:19", "--to", "entry:299"];
    let (name, part) = named(&[&[path.as_str(), "--device", "0"], &window[..]].concat());
    let entries = memviz(&["info", path, "--format", "json"]).json()["devices"][0]["entries"]["total"].clone();
    assert!(name.starts_with("snapshot.pickle.gz, device 0 entries 20 to 299 of "), "{name} {entries}");
    let (of_part, of_whole) =
        (answer(&part, &["--at", "end"]), answer(&plain, &["--device", "0", "--at", "entry:299"]));
    let bytes = |answer: &serde_json::Value| answer[0]["attribution"]["total_bytes"].clone();
    assert_eq!(bytes(&of_part), bytes(&of_whole));
    let (of_part, of_whole) = (answer(&part, &[]), answer(&plain, &[&["--device", "0"], &window[..]].concat()));
    assert_eq!(of_part[0]["peak"]["allocated_bytes"], of_whole[0]["peak"]["allocated_bytes"]);
    // Each device has its own peak.
    let (name, _) = named(&[path, "--to", "peak"]);
    assert!(name.contains("device 0 entries 0 to ") && name.contains(", device 1 entries 0 to "), "{name}");
}

#[test]
fn a_part_of_a_file_that_is_not_a_snapshot_is_shown_first() {
    let trace = "fixtures/traces/profiler_traces/fake_cuda_modules.trace.json.gz";
    let page = memviz(&["view", trace, "--from", "entry:4", "--to", "entry:9"]).expect(0).stdout.clone();
    let (attributes, content) = carried(&page);
    assert!(attributes.contains("&amp;x=entry&amp;from=5&amp;to=11"), "{attributes}");
    assert!(content == read_unpacked(trace));
}

#[test]
fn unusable_inputs_are_refused_before_writing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("view.html");
    let output = path.to_str().unwrap();
    let tiny = fixture("tiny");
    let view = |args: &[&str]| -> Run { memviz(&[&["view", "-o", output], args].concat()) };
    view(&["README.md"]).expect_error("README.md: a text file, such as a log");
    view(&[&tiny, "--device", "7"]).expect_error("expected one of the recorded devices (0), found 7");
    view(&[&tiny, "--from", "end", "--to", "start"]).expect_error("expected --from before --to on device 0");
    view(&["--from", "peak"]).expect_error("<INPUT>");
    view(&[&tiny, "--serve"]).expect_error("--serve");
    memviz(&["view", &tiny, "-o", "view.svg"])
        .expect_error("expected -o with a file name ending in .html, found view.svg");
    assert!(!path.exists());
    let whole = read_unpacked(&tiny);
    let cut = folder.path().join("cut.pickle");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    view(&[cut.to_str().unwrap()]).expect_error("--allow-truncated analyzes the readable part");
    view(&[cut.to_str().unwrap(), "--allow-truncated", "--own", "lib"]).expect(0);
    let part = [cut.to_str().unwrap(), "--allow-truncated", "--to", "entry:0"];
    view(&[&part[..], &["--force"]].concat()).expect_error("expected a complete file");
    let page = fs::read_to_string(&path).unwrap();
    let options = "data-options=\"{&quot;allow_truncated&quot;:true,&quot;own&quot;:[&quot;lib&quot;]}\"";
    assert!(carried(&page).0.contains(options), "{}", carried(&page).0);
}

/// A server that ends with the test.
struct Serving {
    child: Child,
    port: String,
    path: String,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let mut child = command(&[&["view", "--serve", "-q"], args].concat()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let (port, path) = url.trim().strip_prefix("http://127.0.0.1:").unwrap().split_once('/').unwrap();
        Self { port: port.to_owned(), path: format!("/{path}"), child }
    }

    /// The head and the body of a response.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.write_all(format!("{request}\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn only_the_path_that_nobody_can_guess_is_served() {
    let tiny = fixture("tiny");
    let serving = Serving::start(&[&tiny]);
    assert_eq!(serving.path.len(), 34, "{}", serving.path);
    // A connection without a request does not block others for long.
    let idle = TcpStream::connect(format!("127.0.0.1:{}", serving.port)).unwrap();
    let (head, body) = serving.ask(&format!("GET {} HTTP/1.1", serving.path));
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("Content-Type: text/html; charset=utf-8"), "{head}");
    assert!(body == memviz(&["view", &tiny]).expect(0).stdout);
    drop(idle);
    for other in ["/", "/favicon.ico", &serving.path[..33], &format!("{}x", serving.path), "//", "/../"] {
        let (head, body) = serving.ask(&format!("GET {other} HTTP/1.1"));
        assert!(head.starts_with("HTTP/1.1 404") && body == "not found\n", "{other}: {head}");
    }
    for method in ["POST", "HEAD", "PUT"] {
        assert!(serving.ask(&format!("{method} {} HTTP/1.1", serving.path)).0.starts_with("HTTP/1.1 405"));
    }
    assert_ne!(Serving::start(&[]).path, serving.path);
    let taken = memviz(&["view", "--serve", "--port", &serving.port]);
    taken.expect_error(&format!("127.0.0.1:{}: ", serving.port));
}

#[test]
fn an_existing_page_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("view.html");
    fs::write(&path, "mine").unwrap();
    memviz(&["view", "-o", path.to_str().unwrap()]).expect_error("exists; --force overwrites it");
    assert_eq!(fs::read_to_string(Path::new(&path)).unwrap(), "mine");
}

/// A page without a requested name is written to a new folder, and opened in the browser.
#[cfg(target_os = "linux")]
#[test]
fn a_page_without_a_name_is_opened() {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().unwrap();
    let browser = folder.path().join("browser");
    fs::write(&browser, format!("#!/bin/sh\necho \"$@\" > {}/opened\n", folder.path().display())).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let open = |args: &[&str], browser: &str| -> Run {
        let mut command = command(args);
        for variable in ["DISPLAY", "WAYLAND_DISPLAY"] {
            command.env_remove(variable);
        }
        command.env("TMPDIR", folder.path()).env("BROWSER", browser).output().unwrap().into()
    };
    for args in [&["view", &fixture("oom"), "--open"] as &[&str], &[&fixture("oom"), "--open"]] {
        let run = open(args, &format!("/no/such/program:{} --new %s", browser.display()));
        let written = run.expect(0).stdout.trim();
        let opened = fs::read_to_string(folder.path().join("opened")).unwrap();
        assert_eq!(opened.trim(), format!("--new {written}"));
        let page = fs::read_to_string(written).unwrap();
        assert!(carried(&page).0.ends_with("data-show=\"device=0&amp;at=6363"), "it opens at the request that failed");
        let others = fs::metadata(Path::new(written).parent().unwrap()).unwrap().permissions().mode() & 0o077;
        assert_eq!(others, 0, "nobody else may read it");
    }
    // Without a browser, as over SSH, the page is written anyway.
    let run = open(&["view", &fixture("tiny"), "--open"], "");
    assert!(run.expect(0).stderr.contains("no browser was found"), "{}", run.stderr);
    assert!(Path::new(run.stdout.trim()).exists());
}
