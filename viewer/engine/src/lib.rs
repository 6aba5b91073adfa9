//! memviz for a page: opens a recording, and answers the page's questions about it.
//!
//! The library computes everything, with the same functions that commands call; this crate only converts: arguments to
//! options, results to JSON and typed arrays. `engine.d.ts` documents what each method takes and returns.

mod file;
mod fit;
mod names;
mod object;

use file::File;
use js_sys::{Float64Array, Function, Object, Uint32Array};
use memviz::Recording;
use memviz::analysis::advice::{Attempt, FixSearch, OverTime, Simulate, WhatIf};
use memviz::analysis::diff::{Apart, Request, Requests};
use memviz::analysis::flame::{self, FlameOptions, FlameReport};
use memviz::analysis::peak::{PeakOptions, PeakReport};
use memviz::analysis::scene::{Column, EventFilter, Part, Scene, SceneAxis, Shape};
use memviz::facts::device::{Device, Devices};
use memviz::facts::grouping::filter::Filter;
use memviz::facts::time::when::When;
use memviz::input::device_file;
use memviz::model::DeviceId;
use memviz::replay::{History, Metric};
use memviz::report::diff;
use memviz::report::view::{self, Reading};
use memviz::report::{Answer, Source};
use names::{action, axis, by, metric, range_part};
use object::object;
use std::collections::{BTreeMap, HashMap};
use wasm_bindgen::prelude::*;

type Thrown<T> = Result<T, JsError>;

/// An open recording.
#[wasm_bindgen]
pub struct Engine {
    name: String,
    recording: &'static Recording,
    devices: Devices<'static>,
    scenes: Vec<Scene<'static>>,
    /// Possible changes for each device, after the first question about them.
    cures: BTreeMap<DeviceId, WhatIf<'static, 'static>>,
    /// The search in progress, for the next device.
    search: Option<FixSearch<'static, 'static>>,
    /// The last curve of each counter with something tried, and what was tried.
    curves: HashMap<(DeviceId, Metric), (Attempt, Option<OverTime>)>,
}

#[wasm_bindgen]
impl Engine {
    /// Reads a recording. `options` are the options of the command line for reading. `samples` are the samples of the
    /// whole device that belong to it, if there are any.
    pub fn open(read: Function, name: String, options: &str, samples: &str) -> Thrown<Engine> {
        let recording = opened(read, &name, options, samples)?;
        let devices = recording.devices();
        let scenes = Scene::all(&devices);
        Ok(Self { name, recording, devices, scenes, cures: BTreeMap::new(), search: None, curves: HashMap::new() })
    }

    /// What is known before anything is drawn.
    pub fn figures(&self) -> String {
        view::figures(self.source(), &self.devices)
    }

    /// Microseconds of each instant.
    pub fn times(&self, device: i32) -> Thrown<Float64Array> {
        let positions = self.scene(device)?.positions(SceneAxis::Time);
        Ok(Float64Array::from(positions.as_slice()))
    }

    /// The highest value of a counter in each column.
    pub fn curve(&self, device: i32, of: &str, along: &str, from: f64, to: f64, columns: usize) -> Thrown<Object> {
        let part = Part { axis: axis(along)?, from, to, columns };
        let columns = self.scene(device)?.columns(metric(of)?, &part).map_err(|error| self.thrown(&error))?;
        let values: Vec<f64> = columns.values.iter().map(|&bytes| bytes as f64).collect();
        Ok(object(&[
            ("values", Float64Array::from(values.as_slice()).into()),
            ("instants", Uint32Array::from(columns.instants.as_slice()).into()),
        ]))
    }

    /// A counter at each of some instants.
    pub fn values(&self, device: i32, of: &str, instants: &[u32]) -> Thrown<Float64Array> {
        let values = self.scene(device)?.values(metric(of)?, instants).map_err(|error| self.thrown(&error))?;
        let values: Vec<f64> = values.iter().map(|&bytes| bytes as f64).collect();
        Ok(Float64Array::from(values.as_slice()))
    }

    /// The memory in each column, by group.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn bands(
        &mut self,
        device: i32,
        of: &str,
        group: &str,
        along: &str,
        from: f64,
        to: f64,
        columns: usize,
        top: usize,
    ) -> Thrown<Object> {
        let part = Part { axis: axis(along)?, from, to, columns };
        let (metric, by) = (metric(of)?, by(group)?);
        let index = self.index(device)?;
        let bands = self.scenes[index].bands(metric, by, &part, top).map_err(|error| self.thrown(&error))?;
        let groups = bands.bands.iter().map(|band| &band.group);
        let values: Vec<f64> = bands.bands.iter().flat_map(|band| &band.bytes).map(|&bytes| bytes as f64).collect();
        Ok(object(&[
            ("groups", object::groups(groups)),
            ("values", Float64Array::from(values.as_slice()).into()),
            ("totals", object::bytes(&bands.totals)),
            ("instants", Uint32Array::from(bands.instants.as_slice()).into()),
        ]))
    }

    /// Blocks as shapes over time.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn blocks(
        &mut self,
        device: i32,
        of: &str,
        group: &str,
        along: &str,
        from: f64,
        to: f64,
        columns: usize,
        limit: usize,
    ) -> Thrown<Object> {
        let part = Part { axis: axis(along)?, from, to, columns };
        let (metric, by) = (metric(of)?, by(group)?);
        let index = self.index(device)?;
        let shapes = self.scenes[index].shapes(metric, by, &part, limit).map_err(|error| self.thrown(&error))?;
        let of_each = |value: fn(&Shape) -> u32| -> JsValue {
            let values: Vec<u32> = shapes.shapes.iter().map(value).collect();
            Uint32Array::from(values.as_slice()).into()
        };
        let bytes: Vec<u64> = shapes.shapes.iter().map(|shape| shape.bytes).collect();
        let history = self.scenes[index].device().history();
        let born = |index: usize| history.allocations.get(index).map(|allocation| allocation.born);
        let segment = |index: usize| history.segments.get(index).map(|segment| segment.made);
        let made = |shape: &Shape| {
            let index = shape.allocation as usize;
            if metric == Metric::Reserved { segment(index) } else { born(index) }.unwrap_or(0)
        };
        let made: Vec<u32> = shapes.shapes.iter().map(made).collect();
        let ends = shapes.shapes.iter().map(|shape| shape.points.end as u32);
        let starts: Vec<u32> = std::iter::once(0).chain(ends).collect();
        let points: Vec<f64> =
            shapes.points.iter().flat_map(|&(column, offset)| [f64::from(column), offset as f64]).collect();
        Ok(object(&[
            ("groups", object::groups(shapes.groups.iter())),
            ("allocations", of_each(|shape| shape.allocation)),
            ("made", Uint32Array::from(made.as_slice()).into()),
            ("bytes", object::bytes(&bytes)),
            ("group", of_each(|shape| shape.group)),
            ("starts", Uint32Array::from(starts.as_slice()).into()),
            ("ends", of_each(|shape| shape.end)),
            ("points", Float64Array::from(points.as_slice()).into()),
            ("rest", object::bytes(&shapes.rest)),
            ("totals", object::bytes(&shapes.totals)),
            ("instants", Uint32Array::from(shapes.instants.as_slice()).into()),
        ]))
    }

    /// The memory at an instant by group: the answer of `memviz peak`.
    pub fn attribution(&self, device: i32, of: &str, group: &str, instant: u32, top: usize) -> Thrown<String> {
        let options = self.at(device, of, instant)?.by(by(group)?).top(Some(top).filter(|&top| top > 0));
        let report = PeakReport::of(&self.devices, &options).map_err(|error| self.thrown(&error))?;
        self.json(&report)
    }

    /// The memory that was live, was allocated and was freed from one instant to another.
    pub fn difference(&self, device: i32, of: &str, group: &str, from: u32, to: u32, top: usize) -> Thrown<String> {
        let (metric, by, top) = (metric(of)?, by(group)?, Some(top).filter(|&top| top > 0));
        let scene = self.scene(device)?;
        let difference = scene.difference(metric, by, (from, to), top).map_err(|error| self.thrown(&error))?;
        Ok(view::difference(scene.device(), metric, by, (from, to), &difference))
    }

    /// The same as one sum.
    pub fn flow(&self, device: i32, of: &str, from: u32, to: u32) -> Thrown<String> {
        let flow = self.scene(device)?.flow(metric(of)?, (from, to)).map_err(|error| self.thrown(&error))?;
        Ok(view::flow(&flow))
    }

    /// For each row of a second recording, the row of a first one that it matches, as in `memviz diff`.
    pub fn matched(&self, group: &str, base: &str, new: &str) -> Thrown<String> {
        view::matched(by(group)?, base, new).map_err(|error| JsError::new(&error.to_string()))
    }

    /// Live bytes by stack at an instant.
    pub fn flame(&self, device: i32, of: &str, instant: u32) -> Thrown<String> {
        let options = FlameOptions::default().peak(self.at(device, of, instant)?);
        let report = FlameReport::of(&self.devices, &options).map_err(|error| self.thrown(&error))?;
        Ok(view::flame(report.devices.first().map_or(&[], |device| device.nodes.as_slice())))
    }

    /// Memory that was allocated, freed, or allocated and kept, from one instant to another, by stack.
    pub fn flame_of_range(&self, device: i32, of: &str, from: u32, to: u32, part: &str) -> Thrown<String> {
        let scene = self.scene(device)?;
        scene.require_range(from, to).map_err(|error| self.thrown(&error))?;
        Ok(view::flame(&flame::of_range(scene.device(), metric(of)?, (from, to), range_part(part)?)))
    }

    /// Segments and blocks at an instant.
    pub fn segments(&self, device: i32, instant: u32) -> Thrown<String> {
        let scene = self.scene(device)?;
        scene.require_instant(instant).map_err(|error| self.thrown(&error))?;
        Ok(view::segments(scene.device(), instant))
    }

    /// Everything that is known about an allocation.
    pub fn allocation(&self, device: i32, id: usize) -> Thrown<String> {
        let scene = self.scene(device)?;
        let missing = || JsError::new(&format!("{}: device {device} has no allocation {id}", self.name));
        view::allocation(scene.device(), id).ok_or_else(missing)
    }

    /// The `record_function` ranges with entries of a device.
    pub fn annotations(&self, device: i32) -> Thrown<String> {
        Ok(view::annotations(self.scene(device)?.device()))
    }

    /// The GPUs that are known by name.
    pub fn gpus(&self) -> String {
        view::gpus()
    }

    /// What changes of the program can name.
    pub fn choices(&self, device: i32) -> Thrown<String> {
        Ok(view::choices(self.scene(device)?.device()))
    }

    /// What the steps of a device have in common, and which of them differ.
    pub fn overlay(&self, device: i32, of: &str, columns: usize) -> Thrown<Object> {
        let overlay = self.scene(device)?.overlay(metric(of)?, columns).map_err(|error| self.thrown(&error))?;
        let curve = |values: &[i64]| {
            let values: Vec<f64> = values.iter().map(|&bytes| bytes as f64).collect();
            JsValue::from(Float64Array::from(values.as_slice()))
        };
        Ok(object(&[
            ("lowest", curve(&overlay.lowest)),
            ("median", curve(&overlay.median)),
            ("highest", curve(&overlay.highest)),
            ("above", curve(&overlay.above)),
            ("below", curve(&overlay.below)),
        ]))
    }

    /// The phases of the program.
    pub fn phases(&self, device: i32) -> Thrown<String> {
        Ok(view::phases(self.scene(device)?.device()))
    }

    /// The samples of the whole device.
    pub fn samples(&self, device: i32) -> String {
        view::samples(&self.devices, device)
    }

    /// The steps of the program.
    pub fn steps(&self, device: i32) -> Thrown<String> {
        Ok(view::steps(self.scene(device)?.device()))
    }

    /// Allocations whose stacks have a frame that matches.
    pub fn search(&self, device: i32, pattern: String) -> Thrown<Uint32Array> {
        Ok(Uint32Array::from(self.scene(device)?.search(&filter(pattern)?).as_slice()))
    }

    /// Whether each of some texts matches, as a frame would.
    pub fn matches(&self, pattern: String, texts: Vec<String>) -> Thrown<Vec<u8>> {
        let filter = filter(pattern)?;
        Ok(texts.iter().map(|text| u8::from(filter.includes(text))).collect())
    }

    /// The entries that have one of these actions, at least this many bytes, and a matching frame; without conditions, all.
    pub fn listed(&self, device: i32, actions: Vec<String>, at_least: f64, pattern: String) -> Thrown<Uint32Array> {
        let actions = actions.iter().map(|name| action(name)).collect::<Thrown<_>>()?;
        let frames = if pattern.is_empty() { None } else { Some(filter(pattern)?) };
        let filter = EventFilter::default().actions(actions).at_least(at_least as u64).frames(frames);
        Ok(Uint32Array::from(self.scene(device)?.events(&filter).as_slice()))
    }

    /// Some entries, as rows of a list.
    pub fn events(&self, device: i32, entries: &[u32]) -> Thrown<String> {
        Ok(view::events(self.scene(device)?.device(), entries))
    }

    /// The stack of an entry.
    pub fn stack(&self, device: i32, entry: u32) -> Thrown<String> {
        Ok(view::stack(self.scene(device)?.device(), entry))
    }

    /// The requests of a device, for [`Engine::apart`] of the engine with the other recording.
    pub fn requests(&self, device: i32) -> Thrown<Object> {
        let Requests { is_whole, first_step, all } = Requests::of(self.scene(device)?.device());
        let entries: Vec<u32> = all.iter().map(|request| request.entry).collect();
        let sizes: Vec<f64> = all.iter().map(|request| request.bytes as f64).collect();
        let failed: Vec<u32> = all.iter().filter(|request| request.failed).map(|request| request.entry).collect();
        Ok(object(&[
            ("whole", is_whole.into()),
            ("step", first_step.map_or(JsValue::NULL, JsValue::from)),
            ("entries", Uint32Array::from(entries.as_slice()).into()),
            ("bytes", Float64Array::from(sizes.as_slice()).into()),
            ("failed", Uint32Array::from(failed.as_slice()).into()),
        ]))
    }

    /// Where the requests of a device differ from [`Engine::requests`] of another recording, which comes first.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn apart(
        &self,
        device: i32,
        whole: bool,
        step: Option<u32>,
        entries: &[u32],
        bytes: &[f64],
        failed: &[u32],
    ) -> Thrown<JsValue> {
        let request = |(&entry, &bytes): (&u32, &f64)| {
            let failed = failed.binary_search(&entry).is_ok();
            Request { entry, bytes: bytes as u64, failed }
        };
        let all = entries.iter().zip(bytes).map(request).collect();
        let base = Requests { is_whole: whole, first_step: step, all };
        let Some(Apart { alike, base, new }) = base.apart(&Requests::of(self.scene(device)?.device())) else {
            return Ok(JsValue::NULL);
        };
        let entry = |request: Option<Request>| request.map_or(JsValue::NULL, |request| request.entry.into());
        let alike = JsValue::from(diff::alike(alike));
        Ok(object(&[("alike", alike), ("base", entry(base)), ("new", entry(new))]).into())
    }

    /// The request of an entry, or the end of the recording if there is none, worded as in `memviz diff`, with this name.
    pub fn request(&self, device: i32, name: &str, entry: Option<u32>) -> Thrown<String> {
        Ok(view::request(self.scene(device)?.device(), name, entry))
    }

    /// The frames that labels of stacks represent.
    pub fn frames(&self, device: i32, labels: Vec<String>) -> Thrown<String> {
        Ok(view::frames(self.scene(device)?.device(), &labels))
    }

    /// Bytes of some allocations in each column.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn held(
        &mut self,
        device: i32,
        of: &str,
        along: &str,
        from: f64,
        to: f64,
        columns: usize,
        allocations: &[u32],
    ) -> Thrown<JsValue> {
        let part = Part { axis: axis(along)?, from, to, columns };
        let metric = metric(of)?;
        let index = self.index(device)?;
        let held = self.scenes[index].held(metric, &part, allocations).map_err(|error| self.thrown(&error))?;
        Ok(object::bytes(&held))
    }

    /// Computes a part of what `findings` needs; returns whether there is more.
    pub fn explore(&mut self) -> bool {
        let Some(scene) = self.scenes.get(self.cures.len()) else { return false };
        let search = self.search.get_or_insert_with(|| {
            // As for the recording: the memory is released with the instance.
            let device: &'static Device<'static> = Box::leak(Box::new(scene.device().clone()));
            FixSearch::of(device, Simulate::All)
        });
        let is_over = !search.step();
        let done = self.search.take_if(|_| is_over);
        self.cures.extend(done.map(|search| (scene.device().id(), search.finish())));
        true
    }

    /// The findings.
    pub fn findings(&mut self) -> Thrown<String> {
        while self.explore() {}
        view::findings(&self.devices, &self.cures).map_err(|error| self.thrown(&error))
    }

    /// The needs of a device with some cures, under other settings, or with another size.
    pub fn tried(
        &mut self,
        device: i32,
        cures: Vec<usize>,
        alloc_conf: Option<String>,
        capacity: f64,
        changes: Vec<String>,
    ) -> Thrown<String> {
        let attempt = attempt(cures, alloc_conf, capacity, &changes)?;
        self.cures(device)?;
        let list = self.cures.get(&device).ok_or_else(|| JsError::new("the device is missing"))?;
        view::tried(self.scene(device)?.device(), list, &attempt).map_err(|error| self.thrown(&error))
    }

    /// The highest value of a counter in each column, with what is tried.
    #[allow(clippy::too_many_arguments, reason = "JavaScript has no options structs that are checked")]
    pub fn curve_tried(
        &mut self,
        device: i32,
        of: &str,
        along: &str,
        from: f64,
        to: f64,
        columns: usize,
        cures: Vec<usize>,
        alloc_conf: Option<String>,
        capacity: f64,
        changes: Vec<String>,
    ) -> Thrown<JsValue> {
        let part = Part { axis: axis(along)?, from, to, columns };
        let metric = metric(of)?;
        let attempt = attempt(cures, alloc_conf, capacity, &changes)?;
        let columns = self.scene(device)?.instants(&part).map_err(|error| self.thrown(&error))?;
        let key = (device, metric);
        if self.curves.get(&key).is_none_or(|(known, _)| *known != attempt) {
            let curve = self.cures(device)?.over_time(metric, &attempt).map_err(|error| self.thrown(&error))?;
            self.curves.insert(key, (attempt, curve));
        }
        let curve = self.curves.get(&key).and_then(|(_, curve)| curve.as_ref());
        Ok(curve.map_or(JsValue::NULL, |curve| columns_of(curve, &columns)))
    }
}

/// A simulated curve in columns: NaN after the request that ends the program.
fn columns_of(curve: &OverTime, columns: &[Column]) -> JsValue {
    let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
    let values: Vec<f64> = curve.columns(columns).into_iter().map(bytes).collect();
    Float64Array::from(values.as_slice()).into()
}

/// What is tried; 0 bytes mean no capacity.
fn attempt(cures: Vec<usize>, alloc_conf: Option<String>, capacity: f64, changes: &[String]) -> Thrown<Attempt> {
    let capacity = (capacity >= 1.0).then_some(capacity as u64);
    let changes = changes.iter().map(|text| text.parse().map_err(|error: String| JsError::new(&error)));
    let attempt = Attempt::default().fixes(cures).alloc_conf(alloc_conf).capacity(capacity);
    Ok(attempt.changes(changes.collect::<Thrown<_>>()?))
}

/// Reads a recording, which stays until the instance ends: answers borrow from it.
fn opened(read: Function, name: &str, options: &str, samples: &str) -> Thrown<&'static Recording> {
    let thrown = |error: &memviz::Error| about(name, error);
    let mut options =
        Reading::from_json(options).and_then(|reading| reading.options()).map_err(|error| thrown(&error))?;
    // A page has one thread.
    options.on_one_thread = true;
    let mut recording = Recording::read(File::new(read), &options).map_err(|error| thrown(&error))?;
    if !samples.is_empty() {
        recording.device_file = Some(device_file::read(samples.as_bytes()).map_err(|error| thrown(&error))?);
    }
    Ok(Box::leak(Box::new(recording)))
}

impl Engine {
    fn source(&self) -> Source<'_> {
        Source { path: &self.name, recording: self.recording }
    }

    fn index(&self, device: i32) -> Thrown<usize> {
        self.devices.wanted(&[device]).map_err(|error| self.thrown(&error))?;
        let missing = || JsError::new("the device is missing");
        self.scenes.iter().position(|scene| scene.device().id() == device).ok_or_else(missing)
    }

    /// Looks for possible changes, unless that was done before.
    fn cures(&mut self, device: i32) -> Thrown<&WhatIf<'static, 'static>> {
        while self.explore() {}
        let missing = || JsError::new("the device is missing");
        self.cures.get(&device).ok_or_else(missing)
    }

    fn scene(&self, device: i32) -> Thrown<&Scene<'static>> {
        Ok(&self.scenes[self.index(device)?])
    }

    /// The options of `memviz peak --at` for an instant of one device.
    fn at(&self, device: i32, of: &str, instant: u32) -> Thrown<PeakOptions> {
        let scene: &Scene<'_> = self.scene(device)?;
        scene.require_instant(instant).map_err(|error| self.thrown(&error))?;
        let device: &Device<'_> = scene.device();
        let when = History::entry_before(instant).map_or(When::Start, When::Entry);
        Ok(PeakOptions::default().metric(metric(of)?).at(Some(when)).devices(vec![device.id()]))
    }

    fn json<'s, A: Answer<About<'s> = Source<'s>>>(&'s self, answer: &A) -> Thrown<String> {
        let mut out = Vec::new();
        answer.json(self.source(), &mut out).map_err(|error| JsError::new(&error.to_string()))?;
        String::from_utf8(out).map_err(|error| JsError::new(&error.to_string()))
    }

    fn thrown(&self, error: &memviz::Error) -> JsError {
        about(&self.name, error)
    }
}

/// Parses a pattern as `--include` does.
fn filter(pattern: String) -> Thrown<Filter> {
    Filter::new(&[pattern], &[]).map_err(|error| JsError::new(&error.to_string()))
}

/// The text that the command line prints for an error.
fn about(name: &str, error: &memviz::Error) -> JsError {
    JsError::new(&memviz::report::safe(&format!("{name}: {error}")))
}
