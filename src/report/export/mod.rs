//! What `memviz export` writes for other programs.

mod message;
pub mod perfetto;
pub mod pprof;
pub mod prometheus;
pub mod speedscope;
