//! What other recordings state, summed up from their bytes: profiler traces, exported timelines, profiles of JAX.

use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes before the first event, at the end, and the most there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    pub start: i64,
    pub end: i64,
    pub highest: i64,
}

impl Curve {
    /// The curve of running totals.
    fn of(start: i64, totals: impl Iterator<Item = i64>) -> Self {
        let mut curve = Self { start, end: start, highest: start };
        for total in totals {
            curve.end = total;
            curve.highest = curve.highest.max(total);
        }
        curve
    }
}

/// The device of a trace's memory event: that of CUDA, or none for the CPU.
type Device = Option<i64>;

/// The memory events in the text of a trace. Nothing else is parsed: it would take minutes.
pub fn memory_events(text: &str) -> Vec<Value> {
    let names = text.match_indices("\"[memory]\"").map(|(at, _)| at);
    let events = names.map(|at| {
        // The name comes before the arguments, so the enclosing object starts at the last brace.
        let start = text[..at].rfind('{').expect("a name stands in an object");
        serde_json::Deserializer::from_str(&text[start..]).into_iter().next().unwrap().unwrap()
    });
    events.collect()
}

/// Allocated and reserved bytes of each device of a profiler trace.
pub fn of_trace(events: &[Value]) -> BTreeMap<Device, (Curve, Curve)> {
    let mut devices: BTreeMap<Device, Vec<(f64, [i64; 3])>> = BTreeMap::new();
    for event in events {
        let args = &event["args"];
        let number = |key: &str| args[key].as_i64().unwrap_or_else(|| panic!("no {key:?} in {event}"));
        let device = (args["Device Type"] != 0).then(|| number("Device Id"));
        let of = ["Bytes", "Total Allocated", "Total Reserved"].map(number);
        devices.entry(device).or_default().push((event["ts"].as_f64().unwrap(), of));
    }
    let curves = devices.into_iter().map(|(device, mut events)| {
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let [bytes, total, reserved] = events[0].1;
        let allocated = Curve::of(total - bytes, events.iter().map(|event| event.1[1]));
        (device, (allocated, Curve::of(reserved, events.iter().map(|event| event.1[2]))))
    });
    curves.collect()
}

/// The bytes of an exported timeline: `[time, action, bytes, category]`, time -1 for memory from before. A new version of a
/// tensor moves its bytes from one category to another, with two rows at the same time.
pub fn of_timeline(rows: &Value) -> Curve {
    let numbers = |row: &Value, index: usize| row[index].as_i64().unwrap();
    let (before, later): (Vec<&Value>, Vec<&Value>) = rows.as_array().unwrap().iter().partition(|row| row[0] == -1);
    let start = before.iter().map(|row| numbers(row, 2)).sum();
    let mut now = start;
    let totals = later.iter().map(|row| {
        let version = row[1] == 3;
        now += if version { 0 } else { numbers(row, 2) };
        now
    });
    Curve::of(start, totals)
}

/// Bytes of live buffers by the name of their device, from a profile in the format of pprof.
pub fn of_profile(bytes: &[u8]) -> BTreeMap<String, i64> {
    let fields = fields(bytes);
    let strings: Vec<&[u8]> = fields.iter().filter(|field| field.0 == 6).map(|field| field.2).collect();
    let text = |index: u64| String::from_utf8_lossy(strings[index as usize]).into_owned();
    let first = |message: &[u8], number: u64| -> u64 {
        self::fields(message).iter().find(|field| field.0 == number).map_or(0, |field| field.1)
    };
    let types: Vec<&[u8]> = fields.iter().filter(|field| field.0 == 1).map(|field| field.2).collect();
    let space = types.iter().position(|kind| text(first(kind, 1)) == "space").expect("a profile of space");
    let mut devices = BTreeMap::new();
    for (_, _, sample) in fields.iter().filter(|field| field.0 == 2) {
        let parts = self::fields(sample);
        let values: Vec<u64> = parts.iter().filter(|part| part.0 == 2).flat_map(varints).collect();
        let labels = parts.iter().filter(|part| part.0 == 3).map(|part| part.2);
        let label = |key: &str| {
            let mut of_key = labels.clone().filter(|label| text(first(label, 1)) == key);
            of_key.next().map(|label| text(first(label, 2)))
        };
        if label("kind").as_deref() == Some("buffer") {
            *devices.entry(label("device").unwrap()).or_default() += values[space] as i64;
        }
    }
    devices
}

/// A field of a message: its number, its value if it is a number, its bytes if it has some.
type Field<'a> = (u64, u64, &'a [u8]);

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = varint(&mut bytes);
        let content = match key & 7 {
            0 => &[][..],
            2 => {
                let (content, rest) = bytes.split_at(number as usize);
                bytes = rest;
                content
            }
            other => panic!("a field of wire type {other}"),
        };
        fields.push((key >> 3, number, content));
    }
    fields
}

/// Numbers of a field that may hold several.
fn varints(&(_, number, mut content): &Field<'_>) -> Vec<u64> {
    if content.is_empty() {
        return vec![number];
    }
    let mut numbers = Vec::new();
    while !content.is_empty() {
        numbers.push(varint(&mut content));
    }
    numbers
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("a number has an end");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}
