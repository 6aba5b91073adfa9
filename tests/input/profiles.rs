//! `jax.profiler.save_device_memory_profile`.

use crate::support::assert_none;
use crate::{error, read};
use memviz::Recording;
use memviz::analysis::leaks::LeakOptions;
use memviz::analysis::peak::PeakOptions;
use memviz::input::ReadOptions;
use memviz::model::{CPU_DEVICE, Format};
use std::io::Cursor;

/// A message of a protocol buffer that is being written.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn packed(self, field: u64, values: &[u64]) -> Self {
        let mut packed = Self::default();
        for &value in values {
            packed.varint(value);
        }
        self.bytes(field, &packed.0)
    }
}

/// A stack of (function, file, line), innermost first; count, bytes and device.
type Sample<'a> = (&'a [(&'a str, &'a str, u64)], u64, u64, Option<&'a str>);

/// A profile of these samples.
fn profile(types: [&str; 2], samples: &[Sample<'_>]) -> Vec<u8> {
    let mut strings = vec![String::new()];
    let mut string = |text: &str| {
        let known = strings.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            strings.push(text.to_owned());
            strings.len() - 1
        }) as u64
    };
    let mut message = Message::default();
    for name in types {
        message = message.bytes(1, &Message::default().number(1, string(name)).number(2, string("unit")).0);
    }
    let mut places = Vec::new();
    for (stack, count, bytes, device) in samples {
        let ids: Vec<u64> = stack
            .iter()
            .map(|place| {
                places.push(*place);
                places.len() as u64
            })
            .collect();
        let kind = if device.is_some() { "buffer" } else { "executable" };
        let mut sample = Message::default().packed(1, &ids).packed(2, &[*count, *bytes]);
        for (key, value) in [("kind", Some(kind)), ("device", *device)] {
            if let Some(value) = value {
                sample = sample.bytes(3, &Message::default().number(1, string(key)).number(2, string(value)).0);
            }
        }
        message = message.bytes(2, &sample.0);
    }
    for (index, (name, file, line)) in places.iter().enumerate() {
        let id = index as u64 + 1;
        let line = Message::default().number(1, id).number(2, *line);
        message = message.bytes(4, &Message::default().number(1, id).bytes(4, &line.0).0);
        let function = Message::default().number(1, id).number(2, string(name)).number(4, string(file));
        message = message.bytes(5, &function.0);
    }
    for text in &strings {
        message = message.bytes(6, text.as_bytes());
    }
    message.0
}

const JAX: [&str; 2] = ["allocations", "space"];

fn example() -> Vec<u8> {
    let library = ("bind", "/usr/lib/python3.12/site-packages/jax/core.py", 9);
    profile(
        JAX,
        &[
            (&[library, ("forward", "/home/me/model.py", 12)], 3, 3000, Some("gpu:1")),
            (&[("init", "/home/me/model.py", 4)], 1, 512, Some("gpu:1")),
            (&[("init", "/home/me/model.py", 4)], 2, 64, Some("gpu:0")),
            (&[library], 1, 2624, None),
            (&[], 1, 7, Some("TFRT_CPU_0")),
        ],
    )
}

#[test]
fn live_buffers_are_shown_by_device_and_line() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &example()).unwrap();
    for bytes in [example(), gzip.finish().unwrap()] {
        let recording = read(&bytes).unwrap();
        assert_eq!(recording.snapshot.notes.format, Format::DeviceMemoryProfile);
        let report = recording.peak(&PeakOptions::default()).unwrap();
        let rows = report.devices.iter().map(|device| {
            let rows = device.attribution.rows.iter().map(|row| (row.label.as_str(), row.bytes, row.blocks));
            (device.device, device.attribution.total_bytes, rows.collect::<Vec<_>>())
        });
        let expected = [
            (0, 64, vec![("model.py:4 init", 64, 2)]),
            (1, 3512, vec![("model.py:12 forward", 3000, 3), ("model.py:4 init", 512, 1)]),
            (CPU_DEVICE, 7, vec![("(not recorded)", 7, 1)]),
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        let notes = crate::notes(&recording);
        assert!(notes.contains("Device 1 is gpu:1") && notes.contains("CPU memory is TFRT_CPU_0"), "{notes}");
        assert!(notes.contains("compiled programs whose device is not recorded, 2.56 KiB in total (1x)"), "{notes}");
    }
}

#[test]
fn questions_about_a_history_are_refused() {
    let recording = read(&example()).unwrap();
    let refused = recording.leaks(&LeakOptions::default()).map(|_| ()).expect_err("no history").to_string();
    assert!(refused.contains("one instant") && refused.contains("leaks needs a history"), "{refused}");
}

#[cfg(feature = "cli")]
#[test]
fn commands_answer_or_say_why_not() {
    use crate::support::memviz;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.prof");
    std::fs::write(&path, example()).unwrap();
    let path = path.to_str().unwrap();
    for command in ["peak", "flamegraph", "info"] {
        memviz(&[command, path]).expect(0);
    }
    memviz(&["diff", path, path]).expect(0);
    for command in ["leaks", "checkpoint", "oom", "fragmentation", "timeline"] {
        memviz(&[command, path]).expect_error(&format!("{command} needs a history"));
    }
    let run = memviz(&["check", "--max-peak", "1GiB", path]);
    assert_eq!(run.code, Some(2), "a state says nothing of a peak: {}", run.stdout);
}

#[test]
fn profiles_of_other_things_are_named() {
    let error = error(&profile(["samples", "cpu"], &[(&[("f", "a.go", 1)], 1, 2, None)]));
    assert!(error.contains("not of device memory") && error.contains("\"samples\", \"cpu\""), "{error}");
}

#[test]
fn damaged_profiles_are_errors_and_nothing_worse() {
    let whole = example();
    let mut problems = Vec::new();
    let mut look = |bytes: Vec<u8>, what: &dyn Fn() -> String| {
        if let Err(error) = Recording::read(Cursor::new(bytes), &ReadOptions::default()) {
            let error = error.to_string();
            if error.contains('\n') || error.is_empty() {
                problems.push(format!("{}: {error:?}", what()));
            }
        }
    };
    for cut in 0..whole.len() {
        look(whole[..cut].to_vec(), &|| format!("cut at {cut}"));
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[cut] = value;
            look(changed, &|| format!("byte {cut} is {value}"));
        }
    }
    assert_none(&problems);
    // Counts that would take any amount of memory, and locations that are repeated.
    let many = profile(JAX, &[(&[("f", "a.py", 1)], 1 << 40, 1 << 50, Some("gpu:0"))]);
    assert!(error(&many).contains("buffers"), "{}", error(&many));
    let mut inlined = Message::default().number(1, 1);
    for _ in 0..2000 {
        inlined = inlined.bytes(4, &Message::default().number(1, 1).number(2, 3).0);
    }
    let mut repeated = Message::default();
    for name in [1, 2] {
        repeated = repeated.bytes(1, &Message::default().number(1, name).number(2, 1).0);
    }
    for bytes in 0..3000 {
        let sample = Message::default().packed(1, &[1, 1]).packed(2, &[1, bytes + 1]);
        repeated = repeated.bytes(2, &sample.bytes(3, &Message::default().number(1, 3).number(2, 4).0).0);
    }
    repeated = repeated.bytes(4, &inlined.0);
    for text in ["", "allocations", "space", "device", "gpu:0"] {
        repeated = repeated.bytes(6, text.as_bytes());
    }
    assert!(error(&repeated.0).contains("locations are repeated"), "{}", error(&repeated.0));
}
