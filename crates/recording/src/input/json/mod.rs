//! JSON that `torch.profiler` writes, from a stream; and snapshots as JSON.
//!
//! In: the bytes of a trace or of a memory timeline. Out: [`Profile`] or [`MemoryTimeline`]. Only needed values are built:
//! traces have hundreds of megabytes, and memory events are a small part of that.

mod cursor;
pub mod devices;
mod event;
mod feed;
mod parallel;
pub mod snapshot;
mod timeline;
mod trace;

use super::ReadOptions;
use crate::error::Result;
use crate::model::{MemoryTimeline, Profile};
use feed::Feed;
use std::io::Read;

#[derive(Clone, Debug)]
pub enum Json {
    /// `export_chrome_trace`.
    Trace(Profile),
    Timeline(MemoryTimeline),
}

/// Reads a file that starts like JSON.
pub fn read(reader: impl Read + Send, options: &ReadOptions) -> Result<Json> {
    let mut feed = Feed::new(reader);
    // A timeline is an array of arrays; a bare list of events is an array of objects.
    let looks = feed.look(|bytes| {
        let mut begin = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
        Some((*begin.next()?, *begin.next()?))
    })?;
    match looks {
        Some((b'[', b'[' | b']')) => timeline::read(&mut feed, options).map(Json::Timeline),
        _ => trace::read(&mut feed, options).map(Json::Trace),
    }
}
