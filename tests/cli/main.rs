//! The real binary, as people and scripts use it.

mod check;
mod commands;
mod diff;
mod ranks;
mod schema;
#[path = "../support/mod.rs"]
mod support;
mod triage;
