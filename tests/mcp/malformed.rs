//! Requests that are wrong in a hundred ways: each gets an error or no response, and the next valid one is answered.

use crate::client::Client;
use serde_json::{Value, json};

const TINY: &str = "tiny/snapshot.pickle.gz";

/// Lines that are not requests.
fn lines() -> Vec<String> {
    let call =
        |id: Value, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let mut lines: Vec<String> = [
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[]",
        "{}",
        "null",
        "true",
        "0",
        "1e999",
        "\"text\"",
        "nonsense",
        "{]",
        "{\"a\":}",
        "\u{feff}",
        "\u{0}",
        "{\"jsonrpc\":\"2.0\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":-1,\"method\":\"tools/none\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":null}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/none\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"resources/read\",\"params\":{\"uri\":\"file:///etc/passwd\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"prompts/get\",\"params\":{\"name\":\"x\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\",\"params\":{\"cursor\":\"zzz\"}}",
        "[{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}]",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":99}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":7}",
    ]
    .map(str::to_owned)
    .to_vec();
    lines.push("[".repeat(100_000));
    lines.push(format!("\"{}\"", "x".repeat(1_000_000)));
    lines.push(call(json!(7), json!({ "name": "peak" })).to_string().repeat(2));
    for params in [json!(null), json!([]), json!(7), json!({}), json!({ "name": 7 }), json!({ "name": null })] {
        lines.push(call(json!(8), params).to_string());
    }
    lines
}

/// Tool calls that report what is wrong.
fn calls() -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    for input in
        [json!(null), json!(7), json!(true), json!([]), json!({}), json!(""), json!("\u{0}"), json!("x".repeat(9_000))]
    {
        calls.push(("peak", json!({ "input": input })));
        calls.push(("ranks", json!({ "inputs": input })));
    }
    let wrong = [
        ("top", json!("many")),
        ("top", json!(-1)),
        ("top", json!(1.5)),
        ("top", json!([])),
        ("by", json!("nothing")),
        ("by", json!(7)),
        ("at", json!("yesterday")),
        ("at", json!("step:999999999999999999999")),
        ("include", json!("(")),
        ("include", json!([7, {}])),
        ("include", json!(["\u{0}"])),
        ("metric", json!({})),
        ("all_frames", json!("yes")),
        ("device", json!(["x"])),
        ("device", json!([99])),
        ("nothing", json!(1)),
        ("format", json!("xml")),
        ("format", json!(7)),
        ("max_bytes", json!(0)),
        ("max_bytes", json!(1e9)),
        ("max_bytes", json!("lots")),
        ("max_bytes", json!(-5)),
        ("from", json!("--output=x")),
        ("own", json!("[")),
    ];
    calls.extend(wrong.into_iter().map(|(key, value)| ("peak", json!({ "input": TINY, key: value }))));
    let drills = [
        json!({}),
        json!({ "id": 7 }),
        json!({ "id": "" }),
        json!({ "id": "a0" }),
        json!({ "id": "a999999999999999999999" }),
        json!({ "id": "a1", "at": 7 }),
        json!({ "id": "a1", "at": "devices" }),
        json!({ "id": "a1", "at": "/nothing" }),
        json!({ "id": "a1", "from": -1 }),
        json!({ "id": "a1", "count": "x" }),
        json!({ "id": "a1", "line": -1 }),
        json!({ "id": "a1", "line": 1_000_000 }),
        json!({ "id": "a1", "other": 1 }),
    ];
    calls.extend(drills.into_iter().map(|drill| ("drill", drill)));
    for (tool, given) in [
        ("fit", json!({ "inputs": [TINY, TINY, TINY, TINY] })),
        ("fit", json!({ "inputs": [TINY], "capacity": "much" })),
        ("diff", json!({ "base": TINY })),
        ("diff", json!({ "base": TINY, "new": TINY, "new_at": "x" })),
        ("check", json!({ "inputs": [TINY] })),
        ("check", json!({ "inputs": [TINY], "max_peak": "-1" })),
        ("check", json!({ "inputs": [TINY], "max_site": ["x"] })),
        ("simulate", json!({ "input": TINY, "alloc_conf": "x" })),
        ("simulate", json!({ "input": TINY, "gpu": "none" })),
        ("leaks", json!({ "input": TINY, "steps": "(" })),
    ] {
        calls.push((tool, given));
    }
    calls
}

#[test]
fn a_hundred_malformed_requests_do_no_harm() {
    let mut client = Client::new(&["fixtures/snapshots"]);
    let good = client.answer("peak", &json!({ "input": TINY }));
    let (lines, calls) = (lines(), calls());
    assert!(lines.len() + calls.len() >= 100, "{} and {}", lines.len(), calls.len());
    for line in &lines {
        client.send(line);
        // Whatever it responds, it continues and answers correctly.
        assert_eq!(client.answer("peak", &json!({ "input": TINY })), good, "{}", &line[..line.len().min(100)]);
    }
    for (tool, given) in calls {
        let error = client.error(tool, &given);
        assert!(error.lines().count() == 1 && error.len() < 10_000, "{tool} {given}: {error}");
    }
    assert_eq!(client.answer("peak", &json!({ "input": TINY })), good);
    let unknown = client.request("tools/call", &json!({ "name": "nothing", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(client.end(), Some(0));
}

#[test]
fn clients_without_the_protocol_get_an_error() {
    for first in ["", "nonsense\n", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n"] {
        let run = crate::support::memviz_reading(&["mcp"], first.as_bytes());
        run.expect(0);
    }
    let run =
        crate::support::memviz_reading(&["mcp"], b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    run.expect(2);
    let run = crate::support::memviz(&["mcp", "--root", "Cargo.toml"]);
    run.expect(2);
    assert!(run.stderr.contains("Cargo.toml: expected a folder, found a file"), "{}", run.stderr);
}
