//! What memviz computes against what PyTorch counted, and against second ways to the same figures.

mod after_oom;
mod agreement;
mod change;
mod changes;
mod counted;
mod excerpt;
mod exports;
mod families;
mod fit;
mod h100;
mod holders;
mod inferred_rules;
mod layout;
mod plan;
mod profiler;
mod real;
mod recordings;
mod replay_properties;
mod simulate;
mod stories;
#[path = "../support/mod.rs"]
mod support;
