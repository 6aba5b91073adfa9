//! Several recordings of a program at other values of the number that they differ in: the answer of `memviz fit`.

use crate::names::{axis, metric};
use crate::{Thrown, about, columns_of, opened};
use js_sys::Function;
use memviz::Recording;
use memviz::analysis::fit::{FitInput, FitOptions, FitReport, PredictedOverTime};
use memviz::analysis::scene::{Part, Scene};
use memviz::facts::device::Devices;
use memviz::input::alloc_conf::{parse, rest_of};
use memviz::model::DeviceId;
use memviz::replay::Metric;
use memviz::report::{Answer, Source};
use std::collections::HashMap;
use wasm_bindgen::prelude::*;

/// Recordings that differ in one number.
#[wasm_bindgen]
#[derive(Default)]
pub struct Fit {
    all: Vec<(String, &'static Recording, &'static Devices<'static>)>,
    /// Devices of recordings, by their places, whose curves were requested.
    scenes: HashMap<(usize, DeviceId), Scene<'static>>,
    /// The last predicted curve of each counter, and its key.
    curves: HashMap<Metric, (Predicted, Option<PredictedOverTime>)>,
}

/// The key of a predicted curve: the device, the numbers of the recordings, the number, the settings and the device's bytes.
type Predicted = (DeviceId, Vec<u64>, u64, Option<String>, u64);

#[wasm_bindgen]
impl Fit {
    /// No recordings yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Fit {
        Self::default()
    }

    /// Reads one more recording.
    pub fn add(&mut self, read: Function, name: String, options: &str) -> Thrown<()> {
        let recording = opened(read, &name, options, "")?;
        // As for the recording: the memory is released with the instance.
        self.all.push((name, recording, Box::leak(Box::new(recording.devices()))));
        Ok(())
    }

    /// The needs of a device at other numbers, given the numbers of the recordings in their order.
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
        let options = self
            .options(alloc_conf, capacity)?
            .at(at.iter().map(|&value| value as u64).collect())
            .devices(vec![device])
            .top(Some(top));
        let values: Vec<u64> = values.iter().map(|&value| value as u64).collect();
        let report =
            FitReport::of(parameter, &self.inputs(&values), &options).map_err(|error| about("fit", &error))?;
        let sources: Vec<Source<'_>> = self.all.iter().map(|(path, recording, _)| Source { path, recording }).collect();
        let mut out = Vec::new();
        report.json(&sources, &mut out).map_err(|error| JsError::new(&error.to_string()))?;
        String::from_utf8(out).map_err(|error| JsError::new(&error.to_string()))
    }
    /// The highest value of a counter in each column of the recording at a place, as it would be at a number. Null for
    /// all recordings except the one that defines the order of requests, and if there is no such curve.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn curve_predicted(
        &mut self,
        place: usize,
        device: i32,
        of: &str,
        along: &str,
        from: f64,
        to: f64,
        columns: usize,
        values: &[f64],
        value: f64,
        alloc_conf: Option<String>,
        capacity: f64,
    ) -> Thrown<JsValue> {
        let part = Part { axis: axis(along)?, from, to, columns };
        let metric = metric(of)?;
        let values: Vec<u64> = values.iter().map(|&value| value as u64).collect();
        let wanted = (device, values, value as u64, alloc_conf, capacity as u64);
        if self.curves.get(&metric).is_none_or(|(known, _)| *known != wanted) {
            let options = self.options(wanted.3.clone(), capacity)?;
            let curve = PredictedOverTime::of(&self.inputs(&wanted.1), (device, metric, wanted.2), &options)
                .map_err(|error| about("fit", &error))?;
            self.curves.insert(metric, (wanted, curve));
        }
        let Some(((_, values, ..), Some(curve))) = self.curves.get(&metric) else { return Ok(JsValue::NULL) };
        if values.get(place) != Some(&curve.of) {
            return Ok(JsValue::NULL);
        }
        let found = self.all.get(place).and_then(|(_, _, devices)| devices.get(curve.device));
        let Some(device) = found else { return Ok(JsValue::NULL) };
        let scene = self.scenes.entry((place, curve.device)).or_insert_with(|| Scene::new(device));
        let columns = scene.instants(&part).map_err(|error| about("fit", &error))?;
        Ok(columns_of(&curve.curve, &columns))
    }
}

impl Fit {
    fn inputs(&self, values: &[u64]) -> Vec<FitInput<'static>> {
        self.all.iter().zip(values).map(|(&(_, _, devices), &value)| FitInput { value, devices }).collect()
    }

    fn options(&self, alloc_conf: Option<String>, capacity: f64) -> Thrown<FitOptions> {
        let rest = self.all.first().map(|(_, recording, _)| rest_of(&recording.snapshot.settings)).unwrap_or_default();
        let settings = alloc_conf.map(|text| parse(&text, rest)).transpose();
        let settings = settings.map_err(|error| JsError::new(&memviz::report::safe(&error.to_string())))?;
        Ok(FitOptions::default().capacity((capacity >= 1.0).then_some(capacity as u64)).settings(settings))
    }
}
