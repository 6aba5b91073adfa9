//! `memviz mcp` as clients use it: the real binary, spoken to in the protocol.
#![cfg(feature = "mcp")]

mod client;
mod evaluation;
mod malformed;
mod roots;
#[cfg(feature = "mcp-client")]
mod sdk;
#[path = "../support/mod.rs"]
mod support;
mod tools;
