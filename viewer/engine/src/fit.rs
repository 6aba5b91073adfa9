//! Several recordings of a program at other values of what they differ in: the answer of `memviz fit`.

use crate::{Thrown, about, opened};
use js_sys::Function;
use memviz::Recording;
use memviz::analysis::fit::{FitInput, FitOptions, FitReport};
use memviz::facts::device::Devices;
use memviz::input::alloc_conf::{parse, rest_of};
use memviz::report::{Answer, Source};
use wasm_bindgen::prelude::*;

/// Recordings that differ in one number.
#[wasm_bindgen]
#[derive(Default)]
pub struct Fit {
    all: Vec<(String, &'static Recording, &'static Devices<'static>)>,
}

#[wasm_bindgen]
impl Fit {
    /// None yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Fit {
        Self::default()
    }

    /// Reads one more.
    pub fn add(&mut self, read: Function, name: String, options: &str) -> Thrown<()> {
        let recording = opened(read, &name, options, "")?;
        // As of the recording: the memory is given back with the instance.
        self.all.push((name, recording, Box::leak(Box::new(recording.devices()))));
        Ok(())
    }

    /// What a device needs at other numbers, given those of the recordings in their order.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn predicted(
        &self,
        device: i32,
        parameter: &str,
        values: &[f64],
        at: &[f64],
        alloc_conf: Option<String>,
        capacity: f64,
        top: usize,
    ) -> Thrown<String> {
        let rest = self.all.first().map(|(_, recording, _)| rest_of(&recording.snapshot.settings)).unwrap_or_default();
        let settings = alloc_conf.map(|text| parse(&text, rest)).transpose();
        let settings = settings.map_err(|error| JsError::new(&memviz::report::safe(&error.to_string())))?;
        let inputs = self.all.iter().zip(values);
        let inputs: Vec<FitInput<'_>> =
            inputs.map(|((_, _, devices), &value)| FitInput { value: value as u64, devices }).collect();
        let options = FitOptions::default()
            .at(at.iter().map(|&value| value as u64).collect())
            .capacity((capacity >= 1.0).then_some(capacity as u64))
            .settings(settings)
            .devices(vec![device])
            .top(Some(top));
        let named = |error: &memviz::Error| about("fit", error);
        let report = FitReport::of(parameter, &inputs, &options).map_err(|error| named(&error))?;
        let sources: Vec<Source<'_>> = self.all.iter().map(|(path, recording, _)| Source { path, recording }).collect();
        let mut out = Vec::new();
        report.json(&sources, &mut out).map_err(|error| JsError::new(&error.to_string()))?;
        String::from_utf8(out).map_err(|error| JsError::new(&error.to_string()))
    }
}
