//! A trace for Perfetto: counters of each device, slices of annotations, steps, phases and blocks, and memory by call stack.

use super::heap::{self, Code};
use super::message::Message;
use crate::analysis::export::{BlockSlice, DeviceTracks, SamplesReport, Slice, TracksReport};
use crate::analysis::peak::DevicePeak;
use crate::model::bytes::Bytes;
use crate::replay::Metric;
use crate::report::Source;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::words::count;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

/// Fields of a trace, a packet, the description of a track, and an event on it.
mod field {
    pub const PACKET: u32 = 1;
    pub const CLOCKS: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const EVENT: u32 = 11;
    pub const NAMES: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK: u32 = 60;
    pub const TRACK_ID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PROCESS: u32 = 3;
    pub const TRACK_PARENT: u32 = 5;
    pub const PROCESS_ID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const PROFILE: u32 = 37;
    pub const TRACK_COUNTER: u32 = 8;
    pub const TRACK_DESCRIPTION: u32 = 14;
    pub const COUNTER_UNIT: u32 = 3;
    pub const COUNTER_AXIS: u32 = 7;
    pub const EVENT_ARGUMENT: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_CATEGORY: u32 = 22;
    pub const EVENT_NAME: u32 = 10;
    pub const EVENT_COUNTER: u32 = 30;
    pub const ARGUMENT_NUMBER: u32 = 3;
    pub const ARGUMENT_TEXT: u32 = 6;
    pub const ARGUMENT_NAME: u32 = 10;
}

/// Types of events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// The single sequence of packets in a trace of memviz, the flag that nothing precedes it, and the flag that names are
/// known from earlier packets.
const SEQUENCE: u64 = 1;
const NOTHING_BEFORE: u64 = 1;
const NAMES_BEFORE: u64 = 2;
/// Clocks: the time of day, the clock of heap profiles, and the clock of packets.
const REALTIME: u64 = 1;
const MONOTONIC_COARSE: u64 = 4;
const BOOTTIME: u64 = 6;
/// The unit of a counter.
const BYTES: u64 = 3;
/// Slices that overlap without nesting cannot share a track; up to this many tracks are tried for each.
const LANES: usize = 32;

/// Writes a trace of all devices. Heap profiles show `samples`: memory held at the instant of each device, and memory
/// allocated.
pub fn write(
    source: Source<'_>,
    report: &TracksReport,
    samples: &SamplesReport,
    out: &mut dyn Write,
) -> io::Result<()> {
    let first = report.devices.iter().filter_map(|device| device.points.first()).map(|point| point.time_us).min();
    let names = IndexSet::default();
    let mut trace = Trace { out, packet: Message::default(), tracks: 0, names, start_us: first.unwrap_or(0) };
    trace.begin(report.has_times)?;
    for (device, process) in report.devices.iter().zip(1..) {
        write_device(source, report, (device, process), &mut trace)?;
    }
    trace.slices("annotations", None, "annotation", &report.annotations)?;
    write_heaps(report, samples, &mut trace)
}

/// Writes the heap profiles of devices, each of which is a process in the trace.
fn write_heaps(report: &TracksReport, samples: &SamplesReport, trace: &mut Trace<'_>) -> io::Result<()> {
    if samples.devices.is_empty() {
        return Ok(());
    }
    let process = |id| report.devices.iter().position(|device| device.device == id).map(|place| place as u64 + 1);
    let mut code = Code::default();
    let mut profile = Message::default();
    let mut last = trace.start_us;
    let mut more = 0;
    for device in &samples.devices {
        // Devices without a history have no counters.
        let process = if let Some(process) = process(device.peak.device) {
            process
        } else {
            more += 1;
            trace.process(report.devices.len() as u64 + more, &device_name(device.peak.device))?
        };
        let stacks = code.add(device);
        let time = device.peak.time_us.or(device.peak.entry.map(i64::from)).unwrap_or(trace.start_us);
        last = last.max(time);
        let name = held_name(&device.peak);
        let at = (name.as_str(), process, nanoseconds(time));
        heap::heap(&mut profile, at, device, &stacks, |sample| sample.held);
        if device.has_history() {
            let name = format!("{}: allocated while recording", device_name(device.peak.device));
            let at = (name.as_str(), process, nanoseconds(time));
            heap::heap(&mut profile, at, device, &stacks, |sample| sample.allocated);
        }
    }
    trace.packet.message(field::PACKET, |packet| {
        packet.number_or_zero(field::TIMESTAMP, nanoseconds(last)).number(field::SEQUENCE, SEQUENCE);
        packet.number(field::SEQUENCE_FLAGS, NAMES_BEFORE);
        packet.message(field::NAMES, |names| code.describe(names));
        packet.message(field::PROFILE, |message| {
            message.append(&profile);
        });
    });
    trace.packet.write(trace.out)
}

/// The name of the heap of an instant: `Device 0: held at the peak`, or `Device 0: active at entry 12 of 60`.
fn held_name(peak: &DevicePeak) -> String {
    let what = if peak.metric == Metric::Allocated { "held" } else { peak.metric.name() };
    let is_peak = peak.instant == peak.maxima[peak.metric as usize].instant;
    let place = if is_peak { "the peak".to_owned() } else { notes::place(peak) };
    format!("{}: {what} at {place}", device_name(peak.device))
}

fn write_device(
    source: Source<'_>,
    report: &TracksReport,
    (device, process): (&DeviceTracks, u64),
    trace: &mut Trace<'_>,
) -> io::Result<()> {
    let name = device_name(device.device);
    let group = trace.track(&name, None, |track| {
        let mut lines = notes::source(source.recording);
        if !report.has_times {
            lines.push("the recording has no times: one microsecond stands for one entry".to_owned());
        }
        lines.extend(notes::limits(&device.completeness, &device.baseline));
        lines.extend(notes::anomalies(&device.anomalies));
        if device.moved > 0 {
            lines.push(format!(
                "{} recorded with a time earlier than that of the previous value; shown at the time of the previous value",
                count(device.moved, "value")
            ));
        }
        track.text(field::TRACK_DESCRIPTION, &lines.join("\n"));
        // Heap profiles belong to processes.
        track.message(field::TRACK_PROCESS, |message| {
            message.number(field::PROCESS_ID, process).text(field::PROCESS_NAME, &name);
        });
    })?;
    for &metric in &device.metrics {
        let track = trace.track(metric.name(), Some(group), |track| {
            track.message(field::TRACK_COUNTER, |counter| {
                counter.number(field::COUNTER_UNIT, BYTES).text(field::COUNTER_AXIS, &name);
            });
        })?;
        let mut last = None;
        let end = device.points.len().saturating_sub(1);
        for (index, point) in device.points.iter().enumerate() {
            let bytes = point.counters.get(metric);
            if last != Some(bytes) || index == end {
                trace.event(point.time_us, track, COUNTER, |event| {
                    event.number_or_zero(field::EVENT_COUNTER, bytes as u64);
                })?;
            }
            last = Some(bytes);
        }
    }
    trace.slices("steps", Some(group), "step", &device.steps)?;
    trace.slices("phases", Some(group), "phase", &device.phases)?;
    trace.blocks(group, &device.blocks)?;
    if device.failures.is_empty() {
        return Ok(());
    }
    let track = trace.track("failed requests", Some(group), |_| {})?;
    for failure in &device.failures {
        let name = format!("tried to allocate {}", Bytes(failure.bytes));
        trace.named((failure.time_us, track, INSTANT), &name, |event| {
            event.text(field::EVENT_CATEGORY, "oom");
            for (name, bytes) in [("bytes", failure.bytes), ("device_free_bytes", failure.device_free_bytes)] {
                event.message(field::EVENT_ARGUMENT, |argument| {
                    argument.text(field::ARGUMENT_NAME, name).number_or_zero(field::ARGUMENT_NUMBER, bytes);
                });
            }
        })?;
    }
    Ok(())
}

/// A trace that is being written.
struct Trace<'o> {
    out: &'o mut dyn Write,
    packet: Message,
    tracks: u64,
    /// Names of events so far. A repeated name is written once.
    names: IndexSet<String, RandomState>,
    /// The start of slices that are open before the recording.
    start_us: i64,
}

impl Trace<'_> {
    /// Writes the packets that must come first. Times since the epoch are also the time of day. Perfetto drops heap profiles
    /// if it does not know how their clock relates to that of packets.
    fn begin(&mut self, has_times: bool) -> io::Result<()> {
        let now = nanoseconds(self.start_us);
        self.packet.message(field::PACKET, |packet| {
            packet.number(field::SEQUENCE, SEQUENCE).number(field::SEQUENCE_FLAGS, NOTHING_BEFORE);
            packet.number(field::TIMESTAMP, now);
            let time_of_day = has_times.then_some(REALTIME);
            packet.message(field::CLOCKS, |clocks| {
                for clock in [BOOTTIME, MONOTONIC_COARSE].into_iter().chain(time_of_day) {
                    clocks.message(1, |reading| {
                        reading.number(1, clock).number_or_zero(2, now);
                    });
                }
            });
        });
        self.packet.write(self.out)
    }

    fn track(&mut self, name: &str, parent: Option<u64>, more: impl FnOnce(&mut Message)) -> io::Result<u64> {
        self.tracks += 1;
        let id = self.tracks;
        self.packet.message(field::PACKET, |packet| {
            packet.number(field::SEQUENCE, SEQUENCE).message(field::TRACK, |track| {
                track.number(field::TRACK_ID, id).text(field::TRACK_NAME, name);
                track.number(field::TRACK_PARENT, parent.unwrap_or(0));
                more(track);
            });
        });
        self.packet.write(self.out)?;
        Ok(id)
    }

    /// Describes a process without counters, and returns its number.
    fn process(&mut self, process: u64, name: &str) -> io::Result<u64> {
        self.track(name, None, |track| {
            track.message(field::TRACK_PROCESS, |message| {
                message.number(field::PROCESS_ID, process).text(field::PROCESS_NAME, name);
            });
        })?;
        Ok(process)
    }

    fn event(&mut self, time_us: i64, track: u64, kind: u64, more: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packet.message(field::PACKET, |packet| {
            packet.number_or_zero(field::TIMESTAMP, nanoseconds(time_us)).number(field::SEQUENCE, SEQUENCE);
            packet.message(field::EVENT, |event| {
                event.number(field::EVENT_TYPE, kind).number(field::EVENT_TRACK, track);
                more(event);
            });
        });
        self.packet.write(self.out)
    }

    fn named(
        &mut self,
        (time_us, track, kind): (i64, u64, u64),
        name: &str,
        more: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        let known = self.names.get_index_of(name);
        let number = known.unwrap_or_else(|| self.names.insert_full(name.to_owned()).0) as u64 + 1;
        self.packet.message(field::PACKET, |packet| {
            packet.number_or_zero(field::TIMESTAMP, nanoseconds(time_us)).number(field::SEQUENCE, SEQUENCE);
            packet.number(field::SEQUENCE_FLAGS, NAMES_BEFORE);
            if known.is_none() {
                packet.message(field::NAMES, |names| {
                    names.message(2, |entry| {
                        entry.number(1, number).text(2, &safe(name));
                    });
                });
            }
            packet.message(field::EVENT, |event| {
                event.number(field::EVENT_TYPE, kind).number(field::EVENT_TRACK, track);
                event.number(field::EVENT_NAME, number);
                more(event);
            });
        });
        self.packet.write(self.out)
    }

    /// Writes slices in the order of their starts, on tracks of one name, which viewers show as one: in each of them slices
    /// nest or follow each other.
    fn slices(&mut self, name: &str, parent: Option<u64>, category: &str, slices: &[Slice]) -> io::Result<()> {
        // Tracks, each with the ends of its open ranges, outermost first.
        let mut lanes: Vec<(u64, Vec<i64>)> = Vec::new();
        for slice in slices {
            let (start, end) = (slice.start_us.unwrap_or(self.start_us), slice.end_us.unwrap_or(i64::MAX));
            let mut place = None;
            for (index, (track, open)) in lanes.iter_mut().enumerate().take(LANES) {
                while let Some(over) = open.pop_if(|over| *over <= start) {
                    self.event(over, *track, END, |_| {})?;
                }
                if open.last().is_none_or(|&around| end <= around) {
                    place = Some(index);
                    break;
                }
            }
            let place = if let Some(place) = place {
                place
            } else {
                lanes.push((self.track(name, parent, |_| {})?, Vec::new()));
                lanes.len() - 1
            };
            let (track, open) = &mut lanes[place];
            self.named((start, *track, BEGIN), &slice.name, |event| {
                event.text(field::EVENT_CATEGORY, category);
                let unknown = [(slice.start_us, "start"), (slice.end_us, "end")];
                for (_, name) in unknown.into_iter().filter(|(time, _)| time.is_none()) {
                    event.message(field::EVENT_ARGUMENT, |argument| {
                        argument.text(field::ARGUMENT_NAME, name).text(field::ARGUMENT_TEXT, "not recorded");
                    });
                }
            })?;
            open.push(end);
        }
        for (track, open) in lanes {
            // Slices that outlast the recording stay open.
            for over in open.into_iter().rev().filter(|&over| over != i64::MAX) {
                self.event(over, track, END, |_| {})?;
            }
        }
        Ok(())
    }
}

impl Trace<'_> {
    /// Writes blocks on as many tracks as there are simultaneous blocks.
    fn blocks(&mut self, parent: u64, blocks: &[BlockSlice]) -> io::Result<()> {
        // Free tracks by the time from which they are free, the earliest first.
        let mut tracks: BinaryHeap<Reverse<(i64, u64)>> = BinaryHeap::new();
        for block in blocks {
            let (start, end) = (block.slice.start_us.unwrap_or(self.start_us), block.slice.end_us.unwrap_or(i64::MAX));
            let is_free = tracks.peek().is_some_and(|Reverse((from, _))| *from <= start);
            let free = if is_free { tracks.pop() } else { None };
            let track = match free {
                Some(Reverse((_, track))) => track,
                None => self.track("blocks", Some(parent), |_| {})?,
            };
            self.named((start, track, BEGIN), &block.slice.name, |event| {
                event.text(field::EVENT_CATEGORY, block.category);
                for (name, number) in [("id", block.id as u64), ("bytes", block.bytes)] {
                    event.message(field::EVENT_ARGUMENT, |argument| {
                        argument.text(field::ARGUMENT_NAME, name).number_or_zero(field::ARGUMENT_NUMBER, number);
                    });
                }
            })?;
            if end != i64::MAX {
                self.event(end, track, END, |_| {})?;
            }
            tracks.push(Reverse((end, track)));
        }
        Ok(())
    }
}

/// Microseconds as nanoseconds.
fn nanoseconds(micros: i64) -> u64 {
    (micros as u64).wrapping_mul(1000)
}
