//! Nothing outside the allowed folders is read, and nothing is written anywhere.

use crate::client::Client;
use serde_json::json;
use std::fs;
use std::path::Path;

/// A folder with an allowed folder, and a recording next to it that is not allowed.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        fs::create_dir_all(place.path("allowed/inner")).unwrap();
        for copy in ["secret.pickle.gz", "allowed/mine.pickle.gz", "allowed/inner/one.pickle.gz"] {
            fs::copy("fixtures/snapshots/tiny/snapshot.pickle.gz", place.path(copy)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn client(&self) -> Client {
        Client::new(&[&self.path("allowed")])
    }
}

#[test]
fn files_outside_are_refused() {
    let place = Place::new();
    let mut client = place.client();
    let (secret, mine) = (place.path("secret.pickle.gz"), place.path("allowed/mine.pickle.gz"));
    for input in ["mine.pickle.gz", "./inner/../mine.pickle.gz", "inner", &mine] {
        client.answer("peak", &json!({ "input": input }));
    }
    let outside = [
        secret.as_str(),
        "../secret.pickle.gz",
        "inner/../../secret.pickle.gz",
        "..",
        "/etc/passwd",
        "/proc/self/environ",
        // It does not reveal whether the file exists.
        "../nothing.pickle",
    ];
    for input in outside {
        let error = client.error("peak", &json!({ "input": input }));
        assert!(error.starts_with("expected a path inside"), "{input}: {error}");
        client.error("diff", &json!({ "base": "mine.pickle.gz", "new": input }));
        client.error(
            "diff",
            &json!({ "base": "mine.pickle.gz", "new": "mine.pickle.gz", "base_at": format!("x@{input}") }),
        );
        client.error("ranks", &json!({ "inputs": ["mine.pickle.gz", input] }));
        client.error("check", &json!({ "inputs": ["mine.pickle.gz"], "baseline": input }));
        let error = client.error("nsys", &json!({ "input": "mine.pickle.gz", "snapshot": input }));
        assert!(error.starts_with("expected a path inside"), "{input}: {error}");
    }
    for pattern in ["../*", "../*.pickle.gz", "*/../../*.gz", "/etc/*"] {
        let error = client.error("ranks", &json!({ "inputs": [pattern] }));
        assert!(error.starts_with("expected a path inside"), "{pattern}: {error}");
    }
    // A folder whose name starts like a file at an instant does not give access.
    fs::create_dir(place.path("allowed/mine.pickle.gz@annotation:x")).unwrap();
    for at in ["annotation:x/../../secret.pickle.gz", "/../../secret.pickle.gz@peak"] {
        client.error("diff", &json!({ "base": "mine.pickle.gz", "new": "mine.pickle.gz", "new_at": at }));
    }
    fs::remove_dir(place.path("allowed/mine.pickle.gz@annotation:x")).unwrap();
    client.error("ledger", &json!({ "input": "mine.pickle.gz", "gpu": "../secret.pickle.gz" }));
    // Options that write, and words that look like options, are not arguments.
    for (key, value) in
        [("output", "x.json"), ("o", "x"), ("config", "x.toml"), ("source", "/"), ("update_baseline", "")]
    {
        let error = client.error("check", &json!({ "inputs": ["mine.pickle.gz"], key: value }));
        assert!(error.starts_with("expected arguments of check"), "{error}");
    }
    client.error("peak", &json!({ "input": "--output=x" }));
    client.error("peak", &json!({ "input": "mine.pickle.gz", "at": "peak --output=x" }));
    client.error("peak", &json!({ "input": "-" }));
    assert_eq!(client.end(), Some(0));
    assert_eq!(names(place.folder.path()), ["allowed", "secret.pickle.gz"]);
    assert_eq!(names(Path::new(&place.path("allowed"))), ["inner", "mine.pickle.gz"]);
}

#[cfg(unix)]
#[test]
fn links_to_outside_are_refused() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    symlink(place.path("secret.pickle.gz"), place.path("allowed/link.pickle.gz")).unwrap();
    symlink(place.path(""), place.path("allowed/up")).unwrap();
    symlink(place.path("allowed/mine.pickle.gz"), place.path("allowed/inside.pickle.gz")).unwrap();
    let mut client = place.client();
    client.answer("peak", &json!({ "input": "inside.pickle.gz" }));
    for input in ["link.pickle.gz", "up/secret.pickle.gz", "up"] {
        let error = client.error("peak", &json!({ "input": input }));
        assert!(error.starts_with("expected a path inside"), "{input}: {error}");
    }
    for input in [".", "*.pickle.gz", "up/*"] {
        let error = client.error("ranks", &json!({ "inputs": [input] }));
        assert!(error.starts_with("expected a path inside"), "{input}: {error}");
    }
    // Files next to a recording are read with it.
    fs::write(place.path("samples"), "{}").unwrap();
    for name in ["allowed/mine.device.json", "allowed/mine.trace.json"] {
        symlink(place.path("samples"), place.path(name)).unwrap();
        let error = client.error("peak", &json!({ "input": "mine.pickle.gz" }));
        assert!(error.starts_with("expected a path inside"), "{name}: {error}");
        fs::remove_file(place.path(name)).unwrap();
    }
    fs::write(place.path("allowed/memviz.toml"), "[[budget]]\ninput = \"*\"\nbaseline = \"../secret.pickle.gz\"\n")
        .unwrap();
    let error = client.error("check", &json!({ "inputs": ["inner/one.pickle.gz"], "max_peak": "1GiB" }));
    assert!(error.starts_with("expected a path inside"), "{error}");
}

/// A pickle is read, never executed; neither is anything else that a stranger made.
#[test]
fn files_of_strangers_are_errors() {
    let mut client = Client::new(&["fixtures/malformed"]);
    let mut asked = 0;
    for file in names(Path::new("fixtures/malformed")) {
        for tool in ["triage", "peak", "info"] {
            let answer = client.call(tool, &json!({ "input": file }));
            assert!(answer.text.len() <= 8_000, "{file}");
            asked += usize::from(answer.is_error);
        }
    }
    assert!(asked > 20, "only {asked} were errors");
    assert_eq!(client.end(), Some(0));
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
