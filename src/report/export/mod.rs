//! What `memviz export` writes for other programs.

pub mod firefox;
mod heap;
mod message;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub mod prometheus;
pub mod speedscope;
