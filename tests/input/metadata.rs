//! Metadata that users attach to allocations: texts, dictionaries, and other Python objects.

use crate::support::pickle_writer::{self, Integers, Memo, Node, Strings, Style};
use crate::{error, notes, read};
use serde_json::json;

const PYTHON: Style = Style {
    protocol: 4,
    memo: Memo::Memoize,
    integers: Integers::Shortest,
    strings: Strings::Once,
    batch: 1000,
    always_mark: false,
    frame: None,
};

/// The pickle of a recording whose entries have these metadata.
fn recording(metadata: &[Node]) -> Vec<u8> {
    let entry = |(index, value): (usize, &Node)| {
        Node::dict([
            ("action", Node::str("alloc")),
            ("addr", Node::Int((1 << 40) + 512 * index as i128)),
            ("size", Node::Int(512)),
            ("stream", Node::Int(0)),
            ("time_us", Node::Int(index as i128)),
            ("frames", Node::list([])),
            ("user_metadata", value.clone()),
        ])
    };
    let trace = Node::list(metadata.iter().enumerate().map(entry));
    let snapshot = Node::dict([("segments", Node::list([])), ("device_traces", Node::list([trace]))]);
    pickle_writer::write(&snapshot, PYTHON)
}

/// What was read of each entry's metadata.
fn texts(metadata: &[Node]) -> Vec<String> {
    let recording = read(&recording(metadata)).unwrap();
    let snapshot = &recording.snapshot;
    assert!(!notes(&recording).contains("unknown"), "{}", notes(&recording));
    let text = |entry: memviz::model::trace_entry::TraceEntry| {
        snapshot.strings.get(snapshot.contexts.get(entry.context).user_metadata).to_owned()
    };
    snapshot.entries.rows(snapshot.traces[0].rows.clone()).map(text).collect()
}

#[test]
fn objects_are_their_json_text() {
    let frame = Node::dict([("filename", Node::str("x.py")), ("line", Node::Int(3)), ("name", Node::str("f"))]);
    let dictionary = Node::dict([("layer", Node::Int(3)), ("name", Node::str("a \"b\"\n")), ("on", Node::Bool(true))]);
    let action = Node::dict([("action", Node::str("warm-up")), ("frames", Node::list([frame]))]);
    let found = texts(&[
        dictionary.clone(),
        Node::str("plain"),
        Node::list([Node::Float(0.5), Node::tuple([Node::Int(-1), Node::Bool(false)])]),
        action,
        Node::Int(7),
        Node::dict([]),
        dictionary,
    ]);
    let expected = [
        r#"{"layer": 3, "name": "a \"b\"\n", "on": true}"#,
        "plain",
        "[0.5, [-1, false]]",
        r#"{"action": "warm-up", "frames": [{"filename": "x.py", "line": 3, "name": "f"}]}"#,
        "7",
        "",
        r#"{"layer": 3, "name": "a \"b\"\n", "on": true}"#,
    ];
    assert_eq!(found, expected);
    let json: serde_json::Value = serde_json::from_str(&found[0]).unwrap();
    assert_eq!(json, json!({"layer": 3, "name": "a \"b\"\n", "on": true}));
}

#[test]
fn deep_or_long_values_are_cut_and_say_so() {
    let deep = (0..40).fold(Node::Int(1), |inner, _| Node::list([inner]));
    // Ten times ten times ten ...: two to the hundredth of objects, and a few hundred bytes.
    let many = (0..30).fold(Node::str("x"), |inner, _| Node::list(vec![inner; 10]));
    let long = Node::dict([("text", Node::str("é".repeat(5000)))]);
    let found = texts(&[deep, many, long]);
    assert_eq!(found[0], format!("{}…{}", "[".repeat(16), "]".repeat(16)));
    assert!(found[1..].iter().all(|text| text.ends_with('…') && (4000..4200).contains(&text.len())), "{found:?}");
}

#[test]
fn texts_are_limited_by_the_size_of_the_file() {
    let many = (0..30).fold(Node::str("x"), |inner, _| Node::list(vec![inner; 10]));
    let metadata: Vec<Node> = (0..8000).map(|index| Node::list([Node::Int(index), many.clone()])).collect();
    let error = error(&recording(&metadata));
    assert!(error.contains("\"user_metadata\" strings take more memory than any snapshot needs"), "{error}");
    // Repetitions count once.
    let one = Node::list([many.clone(), many]);
    assert_eq!(texts(&vec![one; 8000]).len(), 8000);
}
