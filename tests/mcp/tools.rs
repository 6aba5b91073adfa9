//! Every tool, and what answers have in common.

use crate::client::{Client, id_of};
use crate::support::memviz;
use serde_json::{Value, json};

const GPT: &str = "gpt_train/snapshot.pickle.gz";
const OOM: &str = "oom/snapshot.pickle.gz";

/// A question for each tool except `drill`, and the equivalent command line.
pub fn questions() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let fit = ["../fit/minigpt_batch4/snapshot.pickle.gz", "../fit/minigpt_batch8/snapshot.pickle.gz"];
    vec![
        ("triage", json!({ "input": GPT }), vec!["triage", GPT]),
        ("info", json!({ "input": GPT, "device": [0] }), vec!["info", GPT, "--device=0"]),
        ("peak", json!({ "input": GPT, "by": "category", "top": 3 }), vec!["peak", GPT, "--by=category", "--top=3"]),
        ("blocks", json!({ "input": GPT, "id": [200, 300] }), vec!["blocks", GPT, "--id=200", "--id=300"]),
        ("timeline", json!({ "input": GPT, "points": 10 }), vec!["fragmentation", GPT, "--over-time", "--points=10"]),
        ("oom", json!({ "input": OOM }), vec!["oom", OOM]),
        (
            "leaks",
            json!({ "input": "leak/snapshot.pickle.gz", "capacity": "80GiB" }),
            vec!["leaks", "leak/snapshot.pickle.gz", "--capacity=80GiB"],
        ),
        ("fragmentation", json!({ "input": OOM, "at": "oom" }), vec!["fragmentation", OOM, "--at=oom"]),
        ("ledger", json!({ "input": OOM, "capacity": "8GiB" }), vec!["ledger", OOM, "--capacity=8GiB"]),
        (
            "nsys",
            json!({ "input": "../nsys/training.sqlite", "snapshot": "tiny/snapshot.pickle.gz" }),
            vec!["nsys", "../nsys/training.sqlite", "--snapshot=tiny/snapshot.pickle.gz"],
        ),
        ("checkpoint", json!({ "input": GPT }), vec!["checkpoint", GPT]),
        (
            "simulate",
            json!({ "input": GPT, "sweep": true, "optimizer": "adam8bit" }),
            vec!["simulate", GPT, "--sweep", "--optimizer=adam8bit"],
        ),
        (
            "fit",
            json!({ "inputs": fit, "vary": "batch=4,8", "at": ["16"], "capacity": "8GiB" }),
            vec!["fit", fit[0], fit[1], "--vary=batch=4,8", "--at=16", "--capacity=8GiB"],
        ),
        (
            "diff",
            json!({ "base": GPT, "new": GPT, "base_at": "step:1:end", "new_at": "step:2:end" }),
            vec!["diff", "gpt_train/snapshot.pickle.gz@step:1:end", "gpt_train/snapshot.pickle.gz@step:2:end"],
        ),
        ("ranks", json!({ "inputs": ["multi_gpu"] }), vec!["ranks", "multi_gpu"]),
        ("check", json!({ "inputs": [GPT], "max_peak": "4GiB" }), vec!["check", GPT, "--max-peak=4GiB"]),
    ]
}

/// A server for all fixtures, with relative paths to recordings.
pub fn client() -> Client {
    Client::new(&["fixtures/snapshots", "fixtures"])
}

#[test]
fn every_tool_says_what_its_command_says() {
    let mut client = client();
    let listed = client.request("tools/list", &json!({}));
    let names: Vec<&str> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let asked: Vec<&str> = questions().iter().map(|(tool, ..)| *tool).chain(["drill"]).collect();
    assert_eq!(names, asked);
    for (tool, arguments, typed) in questions() {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_memviz"));
        // Commands that an answer recommends start with the name by which memviz was called.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::arg0(&mut command, "memviz");
        let said = command.args(typed).current_dir("fixtures/snapshots").output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let mut given = arguments.clone();
        given["max_bytes"] = json!(100_000);
        let told = client.answer(tool, &given);
        let (answer, last) = told.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(format!("{answer}\n"), said, "{tool}");
        assert!(last.ends_with("drill with this id shows all figures as JSON]"), "{last}");
        // All figures, from the same question.
        let figures: Value = serde_json::from_str(&client.answer("drill", &json!({ "id": id_of(&told) }))).unwrap();
        assert_eq!(figures["id"], id_of(&told), "{tool}");
    }
    assert_eq!(client.end(), Some(0));
}

#[test]
fn schemas_accept_only_the_options_of_the_tools() {
    let mut client = client();
    let listed = client.request("tools/list", &json!({}));
    let bytes = listed.to_string().len();
    assert!(bytes < 30_000, "the list of tools takes {bytes} bytes of every conversation");
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert!(!tool["description"].as_str().unwrap().is_empty(), "{name}");
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{name}");
        let schema = &tool["inputSchema"];
        assert_eq!(schema["additionalProperties"], false, "{name}");
        for property in schema["properties"].as_object().unwrap().values() {
            assert!(property["type"].is_string(), "{name}: {property}");
        }
        let Some((_, given, _)) = questions().into_iter().find(|(tool, ..)| *tool == name) else { continue };
        for (key, value) in given.as_object().unwrap() {
            let kind = &schema["properties"][key]["type"];
            let expected = match value {
                Value::String(_) => "string",
                Value::Number(_) => "integer",
                Value::Bool(_) => "boolean",
                _ => "array",
            };
            assert_eq!(kind, expected, "{name}: {key}");
        }
    }
}

#[test]
fn no_answer_is_longer_than_asked_and_nothing_is_lost() {
    let mut client = client();
    for (tool, arguments, _) in questions() {
        for format in ["text", "json"] {
            let mut given = arguments.clone();
            given["format"] = format.into();
            given["max_bytes"] = 1_000.into();
            let answer = client.answer(tool, &given);
            assert!(answer.len() <= 1_000, "{tool}: {} bytes", answer.len());
        }
    }
    // Text that was cut continues where it ended.
    let whole = client.answer("fragmentation", &json!({ "input": OOM, "max_bytes": 100_000 }));
    let mut parts = String::new();
    let mut line = 1;
    loop {
        let part = client.answer("drill", &json!({ "id": id_of(&whole), "line": line, "max_bytes": 1_000 }));
        assert!(part.len() <= 1_000);
        let (text, last) = part.trim_end().rsplit_once('\n').unwrap();
        parts += &format!("{text}\n");
        let Some((_, next)) = last.split_once("line=") else { break };
        line = next.split(' ').next().unwrap().parse().unwrap();
    }
    assert_eq!(parts, format!("{}\n", whole.trim_end().rsplit_once('\n').unwrap().0));
}

#[test]
fn ids_select_rows_stacks_and_failed_requests() {
    let mut client = client();
    let id = id_of(&client.answer("oom", &json!({ "input": OOM })));
    let mut drill = |at: &str, from: u64| {
        let answer = client.answer("drill", &json!({ "id": id, "at": at, "from": from, "max_bytes": 3_000 }));
        let part: Value = serde_json::from_str(&answer).unwrap();
        part
    };
    let expected = memviz_json("oom", OOM);
    let requests = drill("/devices/0/ooms", 0);
    assert_eq!((&requests["shown"], &requests["of"]), (&json!(1), &json!(1)));
    assert!(!requests["cut"].as_array().unwrap().is_empty(), "a failed request takes more than 3,000 bytes");
    assert_eq!(drill("/devices/0/ooms/0/signature", 0)["value"], expected["devices"][0]["ooms"][0]["signature"]);
    // All rows, page by page, equal those of the command.
    let rows = &expected["devices"][0]["ooms"][0]["attribution"]["rows"];
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let page = drill("/devices/0/ooms/0/attribution/rows", from);
        found.extend(page["value"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_u64() else { break };
        from = next;
    }
    assert_eq!(&Value::Array(found), rows);
    let stack = drill("/devices/0/ooms/0/attribution/rows/0/stack", 0);
    assert_eq!(stack["value"], rows[0]["stack"]);
    let wrong = client.error("drill", &json!({ "id": "a1", "at": "/devices/7" }));
    assert!(wrong.starts_with("at: expected a part of a1"), "{wrong}");
}

#[test]
fn a_block_is_drilled_into_by_its_id_and_address() {
    let mut client = client();
    let list = client.answer("blocks", &json!({ "input": OOM, "at": "oom", "top": 3, "format": "json" }));
    let list: Value = serde_json::from_str(&list).unwrap();
    let first = &list["value"]["devices"][0]["blocks"][0];
    let (id, address) = (&first["id"], &first["address"]);
    let one = client.answer("blocks", &json!({ "input": OOM, "id": [id], "max_bytes": 2_000 }));
    assert!(one.len() <= 2_000 && one.contains(address.as_str().unwrap()), "{one}");
    let by_address = json!({ "input": OOM, "address": [address], "at": "oom", "format": "json" });
    let by_address: Value = serde_json::from_str(&client.answer("blocks", &by_address)).unwrap();
    assert_eq!(by_address["value"]["devices"][0]["blocks"][0]["id"], *id);
    // Its stack, part by part.
    let answer = client.answer("drill", &json!({ "id": by_address["id"], "at": "/devices/0/blocks/0/stack" }));
    let expected =
        memviz(&["blocks", "fixtures/snapshots/oom/snapshot.pickle.gz", "--id", &id.to_string(), "--format", "json"]);
    let stack = serde_json::from_str::<Value>(&answer).unwrap()["value"].clone();
    assert_eq!(stack, expected.json()["devices"][0]["blocks"][0]["stack"]);
}

fn memviz_json(command: &str, path: &str) -> Value {
    memviz(&[command, &format!("fixtures/snapshots/{path}"), "--format", "json"]).json()
}

#[test]
fn two_recordings_are_open_at_once() {
    let mut client = client();
    let first = client.answer("peak", &json!({ "input": GPT }));
    let second = client.answer("peak", &json!({ "input": OOM }));
    assert_ne!(id_of(&first), id_of(&second));
    let mut peak = |id: &str| {
        let part = client.answer("drill", &json!({ "id": id, "at": "/devices/0/peak/allocated_bytes" }));
        serde_json::from_str::<Value>(&part).unwrap()["value"].clone()
    };
    let found = [peak(&id_of(&first)), peak(&id_of(&second)), peak(&id_of(&first))];
    let truth = |path| memviz_json("peak", path)["devices"][0]["peak"]["allocated_bytes"].clone();
    assert_eq!(found, [truth(GPT), truth(OOM), truth(GPT)]);
    // The same question again is the same answer.
    assert_eq!(client.answer("peak", &json!({ "input": GPT })), first);
}

/// Requests are answered side by side, each with its own answer.
#[test]
fn many_questions_at_once_are_all_answered() {
    let mut client = client();
    let asked: Vec<String> = (0..40).map(|number| format!("q{number}")).collect();
    for (place, id) in asked.iter().enumerate() {
        let input = [GPT, OOM, "leak/snapshot.pickle.gz", "tiny/snapshot.pickle.gz"][place % 4];
        let params = json!({ "name": "peak", "arguments": { "input": input, "top": place + 1 } });
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string());
    }
    let mut answered: Vec<String> = asked
        .iter()
        .map(|_| {
            let response = client.receive();
            assert_eq!(response["result"]["isError"], false, "{response}");
            response["id"].as_str().unwrap().to_owned()
        })
        .collect();
    answered.sort_by_key(|id| id[1..].parse::<u32>().unwrap());
    assert_eq!(answered, asked);
}

#[test]
fn limits_are_those_of_the_commands() {
    let mut client = Client::with(&["--root", "fixtures/snapshots", "--max-memory", "64MiB"]);
    let client_info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info });
    client.request("initialize", &params);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    // A recording that needs more takes the question down, not the server.
    let error = client.error("peak", &json!({ "input": "big_1m" }));
    assert!(error.contains("memory"), "{error}");
    assert!(client.answer("peak", &json!({ "input": "tiny/snapshot.pickle.gz" })).contains("peak allocated"));
}
