//! Reads JSON that memviz wrote: the answers of `check` and `peak`, to compare newer ones with them.

use super::SCHEMA_VERSION;
use crate::error::{Error, Result};
use crate::model::DeviceId;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::HashSet;

/// One answer about one input.
#[derive(Clone, Debug)]
pub struct SavedAnswer {
    pub path: String,
    pub devices: Vec<SavedDevice>,
}

#[derive(Clone, Debug)]
pub struct SavedDevice {
    pub device: DeviceId,
    /// Peak of allocated bytes; `None` if it is not exact in the answer.
    pub allocated: Option<u64>,
    /// Peak of reserved bytes; `None` if it is not exact in the answer.
    pub reserved: Option<u64>,
    /// Sites and their bytes at the peak of allocated bytes; `None` if the answer does not contain all of them.
    pub sites: Option<Vec<(String, u64)>>,
}

impl SavedAnswer {
    /// A device that occurs twice: it is unknown which one counts.
    fn twice(&self) -> Option<DeviceId> {
        let mut known = HashSet::new();
        self.devices.iter().map(|device| device.device).find(|&device| !known.insert(device))
    }
}

/// Reads the answers in a text, one after another. Fails if it contains no answers, or something else, or answers whose
/// keys are of another version than [`SCHEMA_VERSION`].
pub fn read_answers(text: &str) -> Result<Vec<SavedAnswer>> {
    let malformed =
        |reason: String| Error::Request(format!("expected the JSON of memviz check or peak, found {reason}"));
    let mut answers: Vec<SavedAnswer> = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| malformed(format!("malformed JSON: {error}")))?;
        let version = value.get("schema_version").ok_or_else(|| malformed("no schema_version".to_owned()))?;
        if version.as_u64() != Some(u64::from(SCHEMA_VERSION)) {
            return Err(Error::Request(format!("expected schema_version {SCHEMA_VERSION}, found {version}")));
        }
        match value.get("command").and_then(Value::as_str) {
            Some("check" | "peak") => {}
            Some(other) => return Err(malformed(format!("that of memviz {other}"))),
            None => return Err(malformed("no command".to_owned())),
        }
        if let Some(reason) = value.get("error").and_then(Value::as_str) {
            return Err(malformed(format!("an input that could not be read ({reason})")));
        }
        let answer: Answer = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        let (path, devices) = (answer.input.path, answer.devices.iter().map(Device::saved).collect());
        let answer = SavedAnswer { path, devices };
        if let Some(twice) = answer.twice() {
            return Err(malformed(format!("device {twice} twice")));
        }
        if answers.iter().any(|known| known.path == answer.path) {
            return Err(malformed(format!("two answers about {:?}", answer.path)));
        }
        answers.push(answer);
    }
    if answers.is_empty() {
        return Err(malformed("nothing".to_owned()));
    }
    Ok(answers)
}

/// The keys of an answer that are read; others are ignored.
#[derive(Deserialize)]
struct Answer {
    input: Input,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Input {
    path: String,
}

#[derive(Deserialize)]
struct Device {
    #[serde(rename = "device")]
    number: DeviceId,
    metric: String,
    window: Option<IgnoredAny>,
    /// Which of its figures are exact.
    certainty: Option<Certainty>,
    peak: Counters,
    maxima: Counters,
    attribution: Attribution,
}

#[derive(Deserialize)]
struct Certainty {
    allocated_bytes: String,
    reserved_bytes: String,
}

#[derive(Deserialize)]
struct Counters {
    allocated_bytes: i64,
    reserved_bytes: i64,
}

#[derive(Deserialize)]
struct Attribution {
    by: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    label: String,
    bytes: u64,
}

/// Labels of rows that represent several sites: with such a row, a site without its own row may still have memory.
const SEVERAL: [&str; 2] = ["(other)", "(filtered out)"];

impl Device {
    fn saved(&self) -> SavedDevice {
        let exact = |bytes: i64, certainty: fn(&Certainty) -> &str| {
            // Without this key, no figure is known to be exact, and the maximum of a part of the history is not the peak.
            let is_exact = self.certainty.as_ref().is_some_and(|words| certainty(words) == "exact");
            let known = is_exact && self.window.is_none();
            u64::try_from(bytes).ok().filter(|_| known)
        };
        let at_peak = self.metric == "allocated" && self.peak.allocated_bytes == self.maxima.allocated_bytes;
        let rows = &self.attribution.rows;
        let all =
            at_peak && self.attribution.by == "site" && !rows.iter().any(|row| SEVERAL.contains(&row.label.as_str()));
        SavedDevice {
            device: self.number,
            allocated: exact(self.maxima.allocated_bytes, |words| &words.allocated_bytes),
            reserved: exact(self.maxima.reserved_bytes, |words| &words.reserved_bytes),
            sites: all.then(|| rows.iter().map(|row| (row.label.clone(), row.bytes)).collect()),
        }
    }
}
