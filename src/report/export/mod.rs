//! What `memviz export` writes for other programs.

#[cfg(feature = "firefox")]
pub mod firefox;
#[cfg(feature = "perfetto")]
mod heap;
#[cfg(any(feature = "perfetto", feature = "pprof"))]
mod message;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(feature = "perfetto")]
pub mod perfetto;
#[cfg(feature = "pprof")]
pub mod pprof;
pub mod prometheus;
#[cfg(feature = "speedscope")]
pub mod speedscope;
