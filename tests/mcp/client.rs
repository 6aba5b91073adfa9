//! A client that only knows lines of JSON.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A server, and its responses.
pub struct Client {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last: u64,
}

/// An answer of a tool.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub text: String,
    /// Whether it reports an error.
    pub is_error: bool,
}

impl Client {
    /// A server for the recordings in these folders, ready for requests.
    pub fn new(roots: &[&str]) -> Self {
        let roots = roots.iter().flat_map(|root| ["--root", root]);
        let mut client = Self::with(&roots.collect::<Vec<_>>());
        let client_info = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info });
        let server = client.request("initialize", &params);
        assert_eq!(server["result"]["serverInfo"]["name"], "memviz", "{server}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        client
    }

    /// A server before initialization.
    pub fn with(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memviz"));
        command.arg("mcp").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        // Lines of tests that are not requests have small IDs.
        Self { child, to, from, last: 1_000_000 }
    }

    /// Sends a line unchanged.
    pub fn send(&mut self, line: &str) {
        let to = self.to.as_mut().unwrap();
        to.write_all(line.as_bytes()).unwrap();
        to.write_all(b"\n").unwrap();
        to.flush().unwrap();
    }

    /// The next line of the server.
    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The response to a request; other messages of the server in between are skipped.
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        loop {
            let response = self.receive();
            if response["id"] == id {
                return response;
            }
        }
    }

    /// The answer of a tool.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let response = self.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let result = &response["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {response}"));
        Answer { text: text.to_owned(), is_error: result["isError"] == true }
    }

    /// The same, if it must be one.
    pub fn answer(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.call(tool, arguments);
        assert!(!answer.is_error, "{tool} {arguments}: {}", answer.text);
        answer.text
    }

    /// What is wrong.
    pub fn error(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.call(tool, arguments);
        assert!(answer.is_error, "{tool} {arguments}: {}", answer.text);
        answer.text
    }

    /// Says goodbye; gives the exit code.
    pub fn end(mut self) -> Option<i32> {
        drop(self.to.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// The ID in an answer's last line.
pub fn id_of(text: &str) -> String {
    let last = text.trim_end().lines().last().unwrap();
    last.strip_prefix('[').and_then(|last| last.split(':').next()).unwrap_or_else(|| panic!("{text}")).to_owned()
}
