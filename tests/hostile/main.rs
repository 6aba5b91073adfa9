//! Malicious files from earlier attacks: the output for each, and its cost.
#![cfg(feature = "cli")]

mod attacks;
mod cost;
mod families;
#[path = "../support/mod.rs"]
mod support;
