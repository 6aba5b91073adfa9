//! The allocator's settings in the recording.

use super::{Assembler, MAX_ENTRIES, OVERFLOWED};
use crate::error::{Error, Result};
use crate::input::alloc_conf;
use crate::input::pickle::findings::{Fields, expected};
use crate::input::pickle::value::Value;
use crate::model::AllocatorSettings;

/// How the name of the variable whose text is among the settings ends; it starts with the name of the device.
const ALLOC_CONF: &str = "ALLOC_CONF";
/// Settings that PyTorch 2.3 to 2.15 writes in addition, and that affect no figure.
const NO_MATTER: [&str; 10] = [
    "pinned_num_register_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "max_round_threshold",
    "max_cached_size",
];

impl Assembler {
    pub(super) fn settings(&mut self, at: u64, value: Value) -> Result<()> {
        let Value::Dict(index) = value else {
            return Err(expected(at, "a dictionary for", "allocator_settings", value));
        };
        let fields = Fields::of(&self.heap, index, "allocator_settings")?;
        let (at, pairs) = (fields.at, fields.pairs.to_vec());
        let mut settings = AllocatorSettings { recorded: true, ..AllocatorSettings::default() };
        let mut missing = vec!["max_split_size", "expandable_segments", "roundup_power2_divisions", ALLOC_CONF];
        for (key, value) in pairs {
            let Value::Str(id) = key else {
                self.unknown("allocator_settings", key);
                continue;
            };
            let name = self.text(id).to_owned();
            missing.retain(|&known| known != name && !(known == ALLOC_CONF && name.ends_with(known)));
            match name.as_str() {
                "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" => {
                    if !matches!(value, Value::Str(_)) {
                        self.malformed(&name, "a string", value);
                    }
                    settings.alloc_conf = self.show(value);
                    let problems = alloc_conf::read(&settings.alloc_conf.clone(), &mut settings);
                    self.snapshot.notes.malformed.extend(problems);
                }
                OVERFLOWED | MAX_ENTRIES => self.ring(&name, value),
                // -1 means unlimited.
                "max_split_size" => match self.integer(value).filter(|&size| size >= -1) {
                    Some(size) => {
                        settings.max_split_size = u64::try_from(size).ok().filter(|&size| size < u64::MAX);
                    }
                    None => self.malformed(&name, "an integer", value),
                },
                "expandable_segments" => match value {
                    Value::Bool(expandable) => settings.expandable_segments = expandable,
                    _ => self.malformed(&name, "a boolean", value),
                },
                "garbage_collection_threshold" => match self.float(value).filter(|part| (0.0..=1.0).contains(part)) {
                    Some(threshold) => settings.garbage_collection_threshold = threshold,
                    None => self.malformed(&name, "a number", value),
                },
                "roundup_power2_divisions" => match value {
                    Value::Dict(_) => settings.roundup_power2_divisions = self.divisions(at, value)?,
                    _ => self.malformed(&name, "a dictionary", value),
                },
                _ => {
                    if !NO_MATTER.contains(&name.as_str()) {
                        self.unknown("allocator_settings", key);
                    }
                    settings.other.push((name, self.show(value)));
                }
            }
        }
        self.snapshot.notes.malformed.extend(alloc_conf::contradictions(&settings));
        for name in missing {
            let message = format!("expected {name:?} among the allocator settings, found none");
            self.snapshot.notes.malformed.push(message);
        }
        self.snapshot.settings = settings;
        Ok(())
    }

    /// `{"1": 0, "2": 0, ...}`: divisions by the bucket's size in MiB.
    fn divisions(&mut self, at: u64, value: Value) -> Result<[u64; 16]> {
        let (mut divisions, mut found) = ([0; 16], 0);
        let Value::Dict(index) = value else { return Ok(divisions) };
        for &(key, value) in Fields::of(&self.heap, index, "roundup_power2_divisions")?.pairs {
            let Value::Str(id) = key else { continue };
            let bucket = self.text(id).parse::<u64>().ok().filter(|mib| mib.is_power_of_two());
            let slot = bucket.and_then(|mib| divisions.get_mut(mib.trailing_zeros() as usize));
            let count = self.integer(value).and_then(|count| u64::try_from(count).ok());
            // PyTorch accepts no other counts, so it cannot have rounded by them.
            if count.is_some_and(|count| count > 1 && !count.is_power_of_two()) {
                let message = "expected powers of two as counts in \"roundup_power2_divisions\", found others";
                self.snapshot.notes.malformed.push(message.to_owned());
            }
            match (slot, count) {
                (Some(slot), Some(count)) => {
                    *slot = count;
                    found += 1;
                }
                _ => {
                    return Err(Error::malformed(
                        at,
                        "expected powers of two and counts in \"roundup_power2_divisions\"",
                    ));
                }
            }
        }
        if found < divisions.len() {
            let expected = divisions.len();
            let message = format!("expected {expected} counts in \"roundup_power2_divisions\", found {found}");
            self.snapshot.notes.malformed.push(message);
        }
        Ok(divisions)
    }

    fn float(&self, value: Value) -> Option<f64> {
        match value {
            Value::Float(index) => self.heap.floats.get(index as usize).copied(),
            other => self.integer(other).map(|int| int as f64),
        }
    }

    /// An integer. Python allows booleans for some, but PyTorch never writes a boolean for a number.
    fn integer(&self, value: Value) -> Option<i128> {
        self.heap.as_int(value).filter(|_| !matches!(value, Value::Bool(_)))
    }

    fn show(&self, value: Value) -> String {
        match value {
            Value::None => "None".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Str(id) => self.text(id).to_owned(),
            Value::Float(_) => self.float(value).unwrap_or_default().to_string(),
            other => self.heap.as_int(other).map_or_else(|| other.describe().to_owned(), |int| int.to_string()),
        }
    }
}
