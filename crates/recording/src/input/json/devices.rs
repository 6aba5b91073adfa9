//! The GPUs in a profiler trace: `deviceProperties`, as Kineto writes it.

use super::cursor::{Cursor, Parsed};
use super::feed::Feed;
use crate::error::{Error, Result};
use crate::model::gpu::Threads;
use crate::model::{DeviceId, MAX_DEVICE};
use std::io::Read;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracedGpu {
    /// `id`: its index in the process; `None` if the trace does not have it.
    pub id: Option<DeviceId>,
    /// `totalGlobalMem`: its memory in bytes, the total capacity in PyTorch's messages.
    pub memory: u64,
    /// `numSms` and `maxThreadsPerMultiprocessor`, if the trace has both.
    pub threads: Option<Threads>,
}

/// Reads a trace up to its list of GPUs, which comes before the events.
pub fn read(reader: impl Read + Send) -> Result<Vec<TracedGpu>> {
    let mut feed = Feed::new(reader);
    feed.item("the start", |cursor| cursor.expect(b'{', "an object"))?;
    let mut first = true;
    while let Some(is_list) =
        feed.item("the top-level object", |cursor| Ok(cursor.key(first)?.map(|key| &*key == b"deviceProperties")))?
    {
        first = false;
        if is_list {
            return feed.item("\"deviceProperties\"", list);
        }
        feed.item("the top-level object", super::trace::skip)?;
    }
    Err(Error::Request("expected a profiler trace with a key \"deviceProperties\", found none".to_owned()))
}

pub(super) fn list(cursor: &mut Cursor<'_>) -> Parsed<Vec<TracedGpu>> {
    cursor.expect(b'[', "an array of GPUs")?;
    let mut gpus = Vec::new();
    while cursor.element(gpus.is_empty(), b']')? {
        gpus.push(gpu(cursor)?);
    }
    Ok(gpus)
}

/// A number; -1 for anything else.
fn number(cursor: &mut Cursor<'_>) -> Parsed<i64> {
    if cursor.peek()?.is_ascii_digit() {
        return cursor.integer("an integer");
    }
    cursor.skip()?;
    Ok(-1)
}

fn gpu(cursor: &mut Cursor<'_>) -> Parsed<TracedGpu> {
    cursor.expect(b'{', "an object")?;
    let (mut memory, mut processors, mut each) = (0, 0, 0);
    let mut id = None;
    let mut first = true;
    while let Some(key) = cursor.key(first)? {
        first = false;
        let slot = match &*key {
            b"id" => {
                id = DeviceId::try_from(number(cursor)?).ok().filter(|id| (0..=MAX_DEVICE).contains(id));
                continue;
            }
            b"totalGlobalMem" => &mut memory,
            b"numSms" => &mut processors,
            b"maxThreadsPerMultiprocessor" => &mut each,
            _ => {
                cursor.skip()?;
                continue;
            }
        };
        *slot = u64::try_from(number(cursor)?).unwrap_or(0);
    }
    let threads = (processors > 0 && each > 0).then_some(Threads { processors, each });
    Ok(TracedGpu { id, memory, threads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_read_from_in_front_of_the_events() {
        let trace = br#"{"schemaVersion": 1, "deviceProperties": [
            {"id": 0, "totalGlobalMem": 42298834944, "numSms": 108, "maxThreadsPerMultiprocessor": 2048},
            {"id": 1, "totalGlobalMem": 34089730048}], "traceEvents": [ not read"#;
        let threads = Some(Threads { processors: 108, each: 2048 });
        let expected = [
            TracedGpu { id: Some(0), memory: 42_298_834_944, threads },
            TracedGpu { id: Some(1), memory: 34_089_730_048, threads: None },
        ];
        assert_eq!(read(&trace[..]).unwrap(), expected);
        for (bytes, expected) in [("{}", "found none"), ("[1]", "expected an object"), ("{\"deviceProperties\": [", "")]
        {
            let error = read(bytes.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
