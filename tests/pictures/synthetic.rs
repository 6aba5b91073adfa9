//! Synthetic recordings that are hard to draw.

use memviz::Recording;
use memviz::input::Compression;
use memviz::model::trace_entry::TraceEntry;
use memviz::model::{Action, Annotation, DeviceTrace, EntryContext, Frame, FrameId, Segment, Snapshot, StackId, Stage};
use memviz::replay;

/// A recording with every one of those.
pub fn all() -> Vec<(&'static str, Recording)> {
    vec![
        ("no entries", Builder::default().finish()),
        ("one entry", one_entry()),
        ("a single block of 40 GiB", one_block(40 << 30)),
        ("a block of one byte", one_block(1)),
        ("10,000 annotations", many_annotations()),
        ("100 annotations inside each other", deep_annotations()),
        ("8 devices", devices(8)),
        ("1 second", long(1_000_000)),
        ("10 hours", long(36_000_000_000)),
        ("labels of 2,000 characters", labels(&"very_long_name_".repeat(134))),
        ("hostile labels", labels(HOSTILE)),
        ("no times", without_times()),
        ("a stack of 5,000 frames", deep_stack()),
        ("3,000 segments", many_segments()),
        ("sizes near 2^62", one_block(1 << 62)),
        ("an oom far above what is used", capped_oom()),
        ("500 ooms", many_ooms()),
    ]
}

/// Text that must not reach a page unescaped.
pub const HOSTILE: &str = "</text></title><script>alert(1)</script><a href='http://x' onload=\"y\">&amp;\u{202e}\u{0}\u{1b}[31m\u{fffe}]]>`|*<!--";

/// A recording with copies of its first device.
pub fn on_devices(recording: &Recording, count: i32) -> Recording {
    let mut snapshot = recording.snapshot.clone();
    let (trace, segments) = (snapshot.traces[0].clone(), snapshot.segments.clone());
    for device in 1..count {
        let start = snapshot.entries.len();
        for row in trace.rows.clone() {
            snapshot.entries.push(recording.snapshot.entries.get(row).unwrap());
        }
        snapshot.traces.push(DeviceTrace { device, rows: start..snapshot.entries.len(), truncated: false });
        snapshot.segments.extend(segments.iter().cloned().map(|segment| Segment { device, ..segment }));
    }
    let histories = replay::replay(&snapshot);
    Recording { snapshot, histories, compression: Compression::None, bytes: recording.bytes, device_file: None }
}

#[derive(Default)]
struct Builder {
    snapshot: Snapshot,
    start: usize,
    now: i64,
    stack: StackId,
}

impl Builder {
    fn entry(&mut self, action: Action, addr: u64, size: u64) -> &mut Self {
        let context = self.snapshot.contexts.intern(EntryContext::default());
        let (time_us, stack) = (self.now, self.stack);
        self.snapshot.entries.push(TraceEntry { action, addr, size, time_us, stack, context });
        self
    }

    fn wait(&mut self, micros: i64) -> &mut Self {
        self.now += micros;
        self
    }

    /// From here on entries have this stack, innermost frame first.
    fn stack(&mut self, frames: &[(&str, u64, &str)]) -> &mut Self {
        let snapshot = &mut self.snapshot;
        let frames: Vec<FrameId> = frames
            .iter()
            .map(|&(file, line, name)| {
                let (filename, name) = (snapshot.strings.intern(file), snapshot.strings.intern(name));
                snapshot.stacks.intern_frame(Frame { filename, line, name, fx: None })
            })
            .collect();
        self.stack = snapshot.stacks.intern_stack(&frames);
        self
    }

    fn annotation(&mut self, name: &str, start: i64, end: i64) -> &mut Self {
        let name = self.snapshot.strings.intern(name);
        for (stage, time_us) in [(Stage::Start, start), (Stage::End, end)] {
            self.snapshot.annotations.push(Annotation { stage, name, device: 0, time_us });
        }
        self
    }

    /// A temporary segment with one block.
    fn block(&mut self, addr: u64, size: u64, lifetime: i64) -> &mut Self {
        self.entry(Action::SegmentAlloc, addr, size).entry(Action::Alloc, addr, size).wait(lifetime);
        self.entry(Action::FreeRequested, addr, size).entry(Action::FreeCompleted, addr, size);
        self.entry(Action::SegmentFree, addr, size).wait(1)
    }

    fn end_device(&mut self, device: i32) -> &mut Self {
        let rows = self.start..self.snapshot.entries.len();
        self.start = rows.end;
        self.snapshot.traces.push(DeviceTrace { device, rows, truncated: false });
        self
    }

    fn finish(&mut self) -> Recording {
        if self.start < self.snapshot.entries.len() {
            self.end_device(0);
        }
        let mut snapshot = std::mem::take(&mut self.snapshot);
        snapshot.settings.recorded = true;
        snapshot.notes.has_times = true;
        let histories = replay::replay(&snapshot);
        Recording { snapshot, histories, compression: Compression::None, bytes: 0, device_file: None }
    }
}

const MIB: u64 = 1 << 20;

fn one_entry() -> Recording {
    Builder::default()
        .stack(&[("/train/model.py", 7, "forward")])
        .entry(Action::SegmentAlloc, 1 << 40, 2 * MIB)
        .finish()
}

fn one_block(size: u64) -> Recording {
    Builder::default().stack(&[("/train/model.py", 7, "forward")]).block(1 << 40, size, 1_000_000).finish()
}

fn many_annotations() -> Recording {
    let mut builder = Builder::default();
    for step in 0..10_000 {
        let start = builder.now;
        builder.block(1 << 40, 20 * MIB, 90).wait(10);
        let end = builder.now;
        builder.annotation(&format!("ProfilerStep#{step}"), start, end);
    }
    builder.finish()
}

fn deep_annotations() -> Recording {
    let mut builder = Builder::default();
    for depth in 0..100 {
        builder.annotation(&format!("range_{depth}"), depth, 1_000_000 - depth);
    }
    builder.block(1 << 40, 20 * MIB, 1_000_000).finish()
}

fn devices(count: i32) -> Recording {
    let mut builder = Builder::default();
    for device in 0..count {
        builder.now = i64::from(device) * 1000;
        for step in 0..400u64 {
            let line = step % 40;
            builder.stack(&[("/train/model.py", line, "forward"), ("/train/main.py", 3, "<module>")]);
            builder.block((1 << 40) + step * (64 * MIB), (1 + step % 13) * 4 * MIB, 500);
        }
        builder.end_device(device);
    }
    for step in 0..2000 {
        builder.annotation("step", step * 100, step * 100 + 90);
        builder.annotation("forward", step * 100, step * 100 + 40);
    }
    builder.finish()
}

fn long(micros: i64) -> Recording {
    let mut builder = Builder::default();
    for step in 0..1000u64 {
        builder.stack(&[("/train/model.py", step % 20, "forward")]);
        builder.block(1 << 40, (20 + step % 50) * MIB, micros / 1500).wait(micros / 3000);
    }
    builder.finish()
}

fn labels(text: &str) -> Recording {
    let mut builder = Builder::default();
    for line in 0..30 {
        let (file, name) = (format!("/train/{text}{line}.py"), format!("{text}{line}"));
        builder.stack(&[(&file, line, &name), (&file, line + 1, &name)]);
        builder.entry(Action::SegmentAlloc, (1 << 40) + line * 64 * MIB, 20 * MIB);
        builder.entry(Action::Alloc, (1 << 40) + line * 64 * MIB, 20 * MIB).wait(100);
    }
    let end = builder.now;
    builder.annotation(text, 0, end).finish()
}

fn without_times() -> Recording {
    let mut recording = long(1000);
    recording.snapshot.notes.has_times = false;
    recording
}

/// This many blocks of one size, each with a different stack.
pub fn equal_stacks(count: u64) -> Recording {
    let mut builder = Builder::default();
    for line in 0..count {
        builder.stack(&[("/train/model.py", line + 1, "forward"), ("/train/main.py", 3, "<module>")]);
        let addr = (1 << 40) + line * 20 * MIB;
        builder.entry(Action::SegmentAlloc, addr, 20 * MIB).entry(Action::Alloc, addr, 20 * MIB).wait(1);
    }
    builder.finish()
}

/// A segment of 400 blocks that are each two pixels wide, and no hole.
pub fn packed() -> Recording {
    let mut builder = Builder::default();
    builder.entry(Action::SegmentAlloc, 1 << 40, 400 * 2 * MIB);
    for block in 0..400 {
        builder.entry(Action::Alloc, (1 << 40) + block * 2 * MIB, 2 * MIB).wait(1);
    }
    builder.finish()
}

fn deep_stack() -> Recording {
    let names: Vec<String> = (0..5000).map(|depth| format!("level_{depth}")).collect();
    let frames: Vec<(&str, u64, &str)> = names.iter().map(|name| ("/train/deep.py", 1, name.as_str())).collect();
    Builder::default().stack(&frames).block(1 << 40, 20 * MIB, 1000).finish()
}

/// Each with a small block at the start of every second MiB.
fn many_segments() -> Recording {
    let mut builder = Builder::default();
    for segment in 0..3000u64 {
        let addr = (1 << 40) + segment * 64 * MIB;
        builder.stack(&[("/train/model.py", segment % 30, "forward")]);
        builder.entry(Action::SegmentAlloc, addr, 20 * MIB);
        for block in 0..4 {
            builder.entry(Action::Alloc, addr + block * 4 * MIB, 4 * MIB);
        }
        builder.wait(10);
    }
    builder.finish()
}

fn capped_oom() -> Recording {
    let mut builder = Builder::default();
    builder.block(1 << 40, 20 * MIB, 1000).entry(Action::SegmentAlloc, 1 << 40, 20 * MIB);
    builder.entry(Action::Oom, 70 << 30, 2 << 30).finish()
}

fn many_ooms() -> Recording {
    let mut builder = Builder::default();
    builder.entry(Action::SegmentAlloc, 1 << 40, 20 * MIB).entry(Action::Alloc, 1 << 40, 20 * MIB);
    for _ in 0..500 {
        builder.wait(1000).entry(Action::Oom, MIB, 2 << 30);
    }
    builder.finish()
}
