//! memviz for a page: opens a recording, and answers what is drawn and read there.
//!
//! Everything is worked out by the library, by the same functions that commands call; here it is only handed over:
//! arguments to options, results to JSON and typed arrays. `engine.d.ts` says what each method takes and gives.

mod file;
mod names;
mod object;

use file::File;
use js_sys::{Float64Array, Function, Object, Uint32Array};
use memviz::Recording;
use memviz::facts::device::{Device, Devices};
use memviz::analysis::flame::{FlameOptions, FlameReport};
use memviz::facts::grouping::filter::Filter;
use memviz::analysis::peak::{PeakOptions, PeakReport};
use memviz::analysis::scene::{EventFilter, Part, Scene};
use memviz::facts::time::when::When;
use memviz::replay::History;
use memviz::report::view::{self, Reading};
use memviz::report::{Answer, Source};
use names::{action, axis, by, metric};
use object::object;
use wasm_bindgen::prelude::*;

type Thrown<T> = Result<T, JsError>;

/// A recording that answers.
#[wasm_bindgen]
pub struct Engine {
    name: String,
    recording: &'static Recording,
    devices: Devices<'static>,
    scenes: Vec<Scene<'static>>,
}

#[wasm_bindgen]
impl Engine {
    /// Reads a recording, as `options` say: those of the command line that are about reading.
    pub fn open(read: Function, name: String, options: &str) -> Thrown<Engine> {
        let mut options =
            Reading::from_json(options).and_then(|reading| reading.options()).map_err(|error| about(&name, &error))?;
        // A page has one thread.
        options.on_one_thread = true;
        let recording = Recording::read(File::new(read), &options).map_err(|error| about(&name, &error))?;
        // Answers borrow from it as long as there is anybody to ask; the memory is given back with the instance.
        let recording: &'static Recording = Box::leak(Box::new(recording));
        let devices = recording.devices();
        let scenes = devices.all().iter().map(Scene::new).collect();
        Ok(Self { name, recording, devices, scenes })
    }

    /// What there is to know before anything is drawn.
    pub fn figures(&self) -> String {
        view::figures(self.source(), &self.devices)
    }

    /// Microseconds of each instant.
    pub fn times(&self, device: i32) -> Thrown<Float64Array> {
        let positions = self.scene(device)?.positions(memviz::analysis::timeline::XAxis::Time);
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

    /// What holds the memory in each column.
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
        let of_each = |value: fn(&memviz::analysis::scene::Shape) -> u32| -> JsValue {
            let values: Vec<u32> = shapes.shapes.iter().map(value).collect();
            Uint32Array::from(values.as_slice()).into()
        };
        let bytes: Vec<u64> = shapes.shapes.iter().map(|shape| shape.bytes).collect();
        let ends = shapes.shapes.iter().map(|shape| shape.points.end as u32);
        let starts: Vec<u32> = std::iter::once(0).chain(ends).collect();
        let points: Vec<f64> =
            shapes.points.iter().flat_map(|&(column, offset)| [f64::from(column), offset as f64]).collect();
        Ok(object(&[
            ("groups", object::groups(shapes.groups.iter())),
            ("allocations", of_each(|shape| shape.allocation)),
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

    /// Who holds the memory at an instant: the answer of `memviz peak`.
    pub fn attribution(&self, device: i32, of: &str, group: &str, instant: u32, top: usize) -> Thrown<String> {
        let options = self.at(device, of, instant)?.by(by(group)?).top(Some(top).filter(|&top| top > 0));
        let report = PeakReport::of(&self.devices, &options).map_err(|error| self.thrown(&error))?;
        self.json(&report)
    }

    /// What grew from one instant to another.
    pub fn difference(&self, device: i32, of: &str, group: &str, from: u32, to: u32, top: usize) -> Thrown<String> {
        let (metric, by, top) = (metric(of)?, by(group)?, Some(top).filter(|&top| top > 0));
        let scene = self.scene(device)?;
        let difference = scene.difference(metric, by, (from, to), top).map_err(|error| self.thrown(&error))?;
        Ok(view::difference(scene.device(), metric, by, (from, to), &difference))
    }

    /// Live bytes by stack at an instant.
    pub fn flame(&self, device: i32, of: &str, instant: u32) -> Thrown<String> {
        let options = FlameOptions::default().peak(self.at(device, of, instant)?);
        let report = FlameReport::of(&self.devices, &options).map_err(|error| self.thrown(&error))?;
        Ok(view::flame(&report))
    }

    /// Segments and blocks at an instant.
    pub fn segments(&self, device: i32, instant: u32) -> Thrown<String> {
        let scene = self.scene(device)?;
        scene.require_instant(instant).map_err(|error| self.thrown(&error))?;
        Ok(view::segments(scene.device(), instant))
    }

    /// All that is known of an allocation.
    pub fn allocation(&self, device: i32, id: usize) -> Thrown<String> {
        let scene = self.scene(device)?;
        let missing = || JsError::new(&format!("{}: device {device} has no allocation {id}", self.name));
        view::allocation(scene.device(), id).ok_or_else(missing)
    }

    /// The ranges of `record_function` that a device has entries in.
    pub fn annotations(&self, device: i32) -> Thrown<String> {
        Ok(view::annotations(self.scene(device)?.device()))
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

    /// The entries that have one of some actions, so many bytes, and a frame that matches; all where nothing is asked for.
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

    /// The frames that labels of stacks stand for.
    pub fn frames(&self, device: i32, labels: Vec<String>) -> Thrown<String> {
        Ok(view::frames(self.scene(device)?.device(), &labels))
    }

    /// What some allocations hold in each column.
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

    /// What deserves a look.
    pub fn findings(&self) -> Thrown<String> {
        view::findings(&self.devices).map_err(|error| self.thrown(&error))
    }
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

/// What `--include` makes of a pattern.
fn filter(pattern: String) -> Thrown<Filter> {
    Filter::new(&[pattern], &[]).map_err(|error| JsError::new(&error.to_string()))
}

/// What the command line prints of an error.
fn about(name: &str, error: &memviz::Error) -> JsError {
    JsError::new(&memviz::report::safe(&format!("{name}: {error}")))
}
