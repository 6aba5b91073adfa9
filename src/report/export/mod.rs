//! What `memviz export` writes for other programs.

#[cfg(feature = "firefox")]
pub(crate) mod firefox;
#[cfg(feature = "perfetto")]
mod heap;
#[cfg(any(feature = "perfetto", feature = "pprof"))]
mod message;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
#[cfg(feature = "perfetto")]
pub mod perfetto;
#[cfg(feature = "pprof")]
pub mod pprof;
pub(crate) mod prometheus;
#[cfg(feature = "speedscope")]
pub(crate) mod speedscope;
