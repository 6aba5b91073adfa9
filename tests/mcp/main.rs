//! `memviz mcp` as clients use it: the real binary, spoken to in the protocol. Without the feature `mcp`, this group only checks what
//! memviz says about that.
#![cfg(feature = "cli")]

#[cfg(feature = "mcp")]
mod client;
#[cfg(feature = "mcp")]
mod evaluation;
#[cfg(not(feature = "mcp"))]
mod left_out;
#[cfg(feature = "mcp")]
mod malformed;
#[cfg(feature = "mcp")]
mod roots;
#[cfg(feature = "mcp-client")]
mod sdk;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "mcp")]
mod tools;
