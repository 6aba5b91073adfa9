//! The lists of trace entries: one for each device, and one for pinned host memory.

use super::{Assembler, no_device};
use crate::error::{Error, Result};
use crate::input::pickle::findings::expected;
use crate::input::pickle::value::{Items, Value};
use crate::model::{DeviceId, DeviceTrace, HOST_DEVICE, MAX_DEVICE};
use std::ops::Range;

impl Assembler {
    pub(super) fn device_traces(&mut self, at: u64, value: Value) -> Result<()> {
        for (number, list) in (0..).zip(self.items(at, "device_traces", value)?) {
            let device = DeviceId::try_from(number).ok().filter(|&device| device <= MAX_DEVICE);
            self.trace(at, device.ok_or_else(|| no_device(at, number))?, "device_traces", list)?;
        }
        Ok(())
    }

    /// Pinned host memory: one flat list, or one list per device.
    pub(super) fn host_traces(&mut self, at: u64, value: Value) -> Result<()> {
        let nested = match value {
            Value::List(index) => match self.heap.lists.get(index as usize) {
                Some(Items::Values(items)) => items.iter().all(|item| matches!(item, Value::List(_))),
                _ => false,
            },
            _ => false,
        };
        if !nested {
            return self.trace(at, HOST_DEVICE, "host_traces", value);
        }
        let lists = self.items(at, "host_traces", value)?;
        if lists.len() > 1 {
            let message = format!("expected one list of entries in \"host_traces\", found {}", lists.len());
            return Err(Error::malformed(at, message));
        }
        lists.into_iter().try_for_each(|list| self.trace(at, HOST_DEVICE, "host_traces", list))
    }

    fn trace(&mut self, at: u64, device: DeviceId, key: &str, value: Value) -> Result<()> {
        let truncated = matches!(value, Value::List(index) if self.open_lists.contains(&index));
        let consecutive: Option<Range<u32>> = match value {
            Value::List(index) => match self.heap.lists.get(index as usize) {
                Some(Items::Entries(rows)) => Some(rows.clone()),
                _ => None,
            },
            _ => None,
        };
        let rows = match consecutive {
            Some(rows) => {
                // Counted like copies: two devices may refer to the same list.
                self.records(at, u64::from(rows.end - rows.start))?;
                rows.start as usize..rows.end as usize
            }
            None => self.gather(at, key, value)?,
        };
        // Without entries, the final segments cannot be later than the last entry.
        let truncated = truncated && !rows.is_empty();
        self.snapshot.traces.push(DeviceTrace { device, rows, truncated });
        Ok(())
    }

    /// Copies the entries of a list whose rows are not consecutive to consecutive rows.
    fn gather(&mut self, at: u64, key: &str, value: Value) -> Result<Range<usize>> {
        let items = self.items(at, key, value)?;
        let start = self.snapshot.entries.len();
        for item in items {
            self.record(at)?;
            match self.heap.resolve(item) {
                Value::Entry(row) => {
                    if let Some(entry) = self.snapshot.entries.get(row as usize) {
                        self.snapshot.entries.push(entry);
                    }
                }
                Value::Dict(index) => {
                    let entry = self.findings.entry(&self.heap, index)?;
                    self.snapshot.entries.push(entry);
                }
                other => return Err(expected(at, "a trace entry in", key, other)),
            }
        }
        Ok(start..self.snapshot.entries.len())
    }
}
