//! Weighted call stacks in a trace for Perfetto: memory held at the peak and memory allocated, as heap profiles of a process.

use super::message::Message;
use crate::analysis::export::{DeviceSamples, Sample, Sums};
use crate::facts::code::sites::Place;
use crate::report::common::notes::safe;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::collections::BTreeMap;

/// Fields of names, frames and stacks that later packets refer to, and of a profile.
mod field {
    pub const FUNCTIONS: u32 = 5;
    pub const FRAMES: u32 = 6;
    pub const STACKS: u32 = 7;
    pub const MAPPING_PATHS: u32 = 17;
    pub const SOURCES: u32 = 18;
    pub const MAPPINGS: u32 = 19;
    pub const ID: u32 = 1;
    pub const TEXT: u32 = 2;
    pub const FRAME_FUNCTION: u32 = 2;
    pub const FRAME_MAPPING: u32 = 3;
    pub const FRAME_ADDRESS: u32 = 4;
    pub const FRAME_SOURCE: u32 = 5;
    pub const FRAME_LINE: u32 = 6;
    pub const STACK_FRAMES: u32 = 2;
    pub const MAPPING_END: u32 = 5;
    pub const MAPPING_PATH: u32 = 7;
    pub const DUMPS: u32 = 5;
    pub const DUMP_PID: u32 = 1;
    pub const DUMP_SAMPLES: u32 = 2;
    pub const DUMP_TIME: u32 = 9;
    pub const DUMP_HEAP: u32 = 11;
    pub const SAMPLE_STACK: u32 = 1;
    pub const SAMPLE_BYTES: u32 = 2;
    pub const SAMPLE_TIME: u32 = 4;
    pub const SAMPLE_COUNT: u32 = 5;
}

/// The single file that all frames belong to: Perfetto requires one for each frame.
const MAPPING: u64 = 1;

/// Names, frames and stacks of all devices, so that each has a unique number.
#[derive(Default)]
pub(super) struct Code<'a> {
    texts: [IndexSet<String, RandomState>; 2],
    frames: IndexSet<&'a Place, RandomState>,
    stacks: IndexSet<Vec<u64>, RandomState>,
}

impl<'a> Code<'a> {
    fn text(&mut self, kind: usize, text: &str) -> u64 {
        self.texts[kind].insert_full(safe(text)).0 as u64 + 1
    }

    /// Adds the stacks of a device, and returns the number of each.
    pub(super) fn add(&mut self, device: &'a DeviceSamples) -> Vec<u64> {
        let frames: Vec<u64> = device.places.iter().map(|place| self.frames.insert_full(place).0 as u64 + 1).collect();
        let stack = |stack: &Vec<u32>| {
            let frames = stack.iter().rev().filter_map(|&place| frames.get(place as usize).copied()).collect();
            self.stacks.insert_full(frames).0 as u64 + 1
        };
        device.stacks.iter().map(stack).collect()
    }

    /// Writes everything into the data of a packet.
    pub(super) fn describe(mut self, data: &mut Message) {
        let frames: Vec<(u64, u64, u64)> = std::mem::take(&mut self.frames)
            .iter()
            .map(|place| {
                let source = if place.file.is_empty() { 0 } else { self.text(1, &place.file) };
                (self.text(0, &place.function), source, place.line.unwrap_or(0))
            })
            .collect();
        for (kind, field) in [(0, field::FUNCTIONS), (1, field::SOURCES)] {
            for (text, id) in self.texts[kind].iter().zip(1..) {
                data.message(field, |name| {
                    name.number(field::ID, id).text(field::TEXT, text);
                });
            }
        }
        data.message(field::MAPPING_PATHS, |path| {
            path.number(field::ID, MAPPING).text(field::TEXT, "Python");
        });
        data.message(field::MAPPINGS, |mapping| {
            mapping.number(field::ID, MAPPING).number(field::MAPPING_END, frames.len() as u64 + 1);
            mapping.number(field::MAPPING_PATH, MAPPING);
        });
        for ((function, source, line), id) in frames.into_iter().zip(1..) {
            data.message(field::FRAMES, |frame| {
                frame.number(field::ID, id).number(field::FRAME_FUNCTION, function);
                // Frames with the same address would be merged.
                frame.number(field::FRAME_MAPPING, MAPPING).number(field::FRAME_ADDRESS, id);
                frame.number(field::FRAME_SOURCE, source).number(field::FRAME_LINE, line);
            });
        }
        for (stack, id) in self.stacks.iter().zip(1..) {
            data.message(field::STACKS, |message| {
                message.number(field::ID, id);
                for &frame in stack {
                    message.number(field::STACK_FRAMES, frame);
                }
            });
        }
    }
}

/// Writes the heap of a device into a profile: the stacks that have bytes, each once. Perfetto takes several samples of a stack
/// for readings of one counter, and shows the last instead of their sum.
pub(super) fn heap(
    profile: &mut Message,
    (name, pid, time): (&str, u64, u64),
    device: &DeviceSamples,
    stacks: &[u64],
    sums: impl Fn(&Sample) -> Sums,
) {
    let mut of_stack: BTreeMap<u64, Sums> = BTreeMap::new();
    for sample in &device.samples {
        let Some(&stack) = stacks.get(sample.stack) else { continue };
        let sum = of_stack.entry(stack).or_default();
        let Sums { blocks, bytes } = sums(sample);
        sum.blocks += blocks;
        sum.bytes = sum.bytes.wrapping_add(bytes);
    }
    profile.message(field::DUMPS, |dump| {
        dump.number(field::DUMP_PID, pid).number(field::DUMP_TIME, time).text(field::DUMP_HEAP, name);
        for (stack, sum) in of_stack.into_iter().filter(|(_, sum)| sum.bytes > 0) {
            dump.message(field::DUMP_SAMPLES, |sample| {
                sample.number(field::SAMPLE_STACK, stack).number(field::SAMPLE_BYTES, sum.bytes);
                sample.number(field::SAMPLE_TIME, time).number(field::SAMPLE_COUNT, sum.blocks);
            });
        }
    });
}
