//! Analyses, on recordings with a known answer and on programs written for a test.

mod agreement;
mod backward;
mod categories;
mod checkpoint;
mod code;
mod comparison;
mod cured_plans;
mod cures;
mod each;
mod exit;
mod fragmentation;
mod layers;
mod leaks;
mod mistaken;
mod oom;
mod scene;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
mod weights;
mod what_if;
