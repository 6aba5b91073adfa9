//! Files that mean harm, as earlier attacks made them: what comes out of each, and what it costs.
#![cfg(feature = "cli")]

mod attacks;
mod cost;
mod families;
#[path = "../support/mod.rs"]
mod support;
