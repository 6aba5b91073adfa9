//! The real binary, as people and scripts use it.

mod advice;
mod blocks;
mod categories;
mod check;
mod commands;
#[cfg(all(feature = "firefox", feature = "parquet", feature = "perfetto", feature = "pprof", feature = "speedscope"))]
mod curve;
mod diff;
#[cfg(feature = "view")]
mod engine;
mod excerpt;
#[cfg(all(feature = "firefox", feature = "parquet", feature = "perfetto", feature = "pprof", feature = "speedscope"))]
mod export;
#[cfg(unix)]
mod faults;
mod fit;
mod fix;
#[cfg(all(feature = "firefox", feature = "parquet", feature = "perfetto", feature = "pprof", feature = "speedscope"))]
mod heaps;
mod instants;
mod ledger;
#[cfg(unix)]
mod limits;
mod mistakes;
#[cfg(feature = "nsys")]
mod nsys;
mod output;
mod ranks;
mod recommended;
mod rehearse;
mod screens;
mod shell;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
mod triage;
#[cfg(all(feature = "firefox", feature = "parquet", feature = "perfetto", feature = "pprof", feature = "speedscope"))]
mod unknown;
#[cfg(feature = "view")]
mod view;
