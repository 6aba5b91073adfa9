//! The server with the client of the official SDK.

use crate::tools::questions;
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

#[test]
fn the_client_of_the_sdk_can_use_every_tool() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_memviz"));
        command.args(["mcp", "--root", "fixtures/snapshots", "--root", "fixtures"]);
        let client = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.len(), questions().len() + 1);
        let mut asked: Vec<(&str, Value)> =
            questions().into_iter().map(|(tool, arguments, _)| (tool, arguments)).collect();
        asked.push(("drill", json!({ "id": "a1", "at": "/devices" })));
        for (tool, arguments) in asked {
            let arguments = arguments.as_object().unwrap().clone();
            let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await.unwrap();
            assert_ne!(result.is_error, Some(true), "{tool}: {result:?}");
            let text = &result.content[0].as_text().unwrap().text;
            assert!(!text.is_empty() && text.len() <= 8_000, "{tool}: {} bytes", text.len());
        }
        client.cancel().await.unwrap();
    });
}
