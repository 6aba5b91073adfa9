//! From `jax.profiler.save_device_memory_profile` to [`LiveProfile`].
//!
//! The file is a profile in pprof format. Its samples have two values, `allocations` and `space`, and labels: `kind` is
//! `buffer` or `executable`, and buffers have a `device`. Strings, functions and locations come after the samples that refer
//! to them, so the whole file is read into memory; it is small.

mod wire;

use crate::error::{Error, Result};
use crate::model::bytes::Bytes;
use crate::model::live::{LiveProfile, LiveSample};
use crate::model::{CPU_DEVICE, DeviceId, Format, Frame, FrameId, MAX_DEVICE, SourceNotes, StackId, StrId};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use wire::Message;

/// The largest profile. Those of real programs have some hundred kilobytes.
const MAX_BYTES: u64 = 256 << 20;
/// The most buffers; each is listed separately.
const MAX_BUFFERS: u64 = 1 << 22;
/// Bytes of a name that are shown in a message.
const SHOWN_NAME: usize = 32;
const MAX_DEPTH: usize = 1 << 12;
/// The most frames of all stacks for each byte of the file, since a location can represent several frames.
const FRAMES_PER_BYTE: usize = 4;

/// Numbers of the fields that are read.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING: u64 = 6;
}

/// Whether a file starts like a profile: with the type of its first value, a message of two numbers.
pub fn begins(begin: &[u8]) -> bool {
    matches!(*begin, [0x0a, 4..=22, 0x08, ..])
}

/// Reads a profile that [`begins`].
///
/// # Errors
/// If it is damaged, too large, or a profile of something else.
pub fn read(reader: impl Read) -> Result<LiveProfile> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(super::window::unwrap_io)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("a profile is larger than the limit of {}", Bytes(MAX_BYTES));
        return Err(Error::Limit { at: MAX_BYTES, message });
    }
    let tables = Tables::of(&bytes)?;
    let (count_index, space_index) = tables.value_indexes()?;
    let mut profile = LiveProfile::default();
    let mut frames = Frames { known: HashMap::default(), left: bytes.len() * FRAMES_PER_BYTE };
    let devices = Devices::of(&tables, [count_index, space_index])?;
    let mut buffers = 0u64;
    // Number of samples, and their bytes.
    let mut without_device = (0u64, 0u64);
    let mut without_size = 0u64;
    for &message in &tables.samples {
        let sample = tables.sample(message)?;
        let value = |index: usize| sample.values.get(index).copied().unwrap_or_default();
        let (count, bytes) = (value(count_index), value(space_index));
        if count == 0 && bytes == 0 {
            continue;
        }
        let Some(device) = sample.device else {
            // JAX writes -1 for a program whose size it does not know.
            match i64::try_from(bytes) {
                Ok(_) => without_device = (without_device.0 + 1, without_device.1.saturating_add(bytes)),
                Err(_) => without_size += 1,
            }
            continue;
        };
        if i64::try_from(count).is_err() || i64::try_from(bytes).is_err() {
            return Err(Error::malformed(message.at(), "expected a count that fits in 63 bits in a sample"));
        }
        buffers = buffers.saturating_add(count.max(1));
        if buffers > MAX_BUFFERS {
            let what = format!("more than {MAX_BUFFERS} buffers");
            return Err(Error::Limit { at: message.at(), message: what });
        }
        let device = devices.numbers.get(device).copied().ok_or_else(|| Error::Limit {
            at: message.at(),
            message: "more devices than PyTorch can number".to_owned(),
        })?;
        let stack = frames.stack(&tables, &mut profile, &sample.locations, message.at())?;
        profile.samples.push(LiveSample { stack, device, count: count.max(1), bytes });
    }
    profile.notes =
        SourceNotes { format: Format::DeviceMemoryProfile, bytes: bytes.len() as u64, ..SourceNotes::default() };
    if without_device.0 > 0 {
        let reason = format!("compiled programs whose device is not recorded, {} in total", Bytes(without_device.1));
        profile.notes.left_out.insert(reason, without_device.0);
    }
    if without_size > 0 {
        profile.notes.left_out.insert("compiled programs of unknown size".to_owned(), without_size);
    }
    profile.notes.device_names = devices.into_names();
    Ok(profile)
}

/// The parts of a profile, by the numbers that refer to them.
struct Tables<'a> {
    sample_types: Vec<Message<'a>>,
    samples: Vec<Message<'a>>,
    locations: HashMap<u64, Message<'a>, RandomState>,
    functions: HashMap<u64, Message<'a>, RandomState>,
    strings: Vec<&'a [u8]>,
}

/// The parts of a sample that are read.
struct Sample<'a> {
    locations: Vec<u64>,
    values: Vec<u64>,
    device: Option<&'a [u8]>,
}

impl<'a> Tables<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self> {
        let mut tables = Self {
            sample_types: Vec::new(),
            samples: Vec::new(),
            locations: HashMap::default(),
            functions: HashMap::default(),
            strings: Vec::new(),
        };
        let mut profile = Message::new(bytes);
        loop {
            let at = profile.at();
            let Some((number, value)) = profile.next()? else { return Ok(tables) };
            match number {
                field::SAMPLE_TYPE => tables.sample_types.push(value.message(at)?),
                field::SAMPLE => tables.samples.push(value.message(at)?),
                field::LOCATION => {
                    let message = value.message(at)?;
                    tables.locations.insert(number_of(message, 1)?, message);
                }
                field::FUNCTION => {
                    let message = value.message(at)?;
                    tables.functions.insert(number_of(message, 1)?, message);
                }
                field::STRING => tables.strings.push(value.message(at)?.bytes()),
                _ => {}
            }
        }
    }

    /// A string by its index; empty if there is none.
    fn string(&self, index: u64) -> &'a [u8] {
        usize::try_from(index).ok().and_then(|index| self.strings.get(index)).copied().unwrap_or_default()
    }

    /// Which of a sample's values are the number of allocations and the bytes.
    fn value_indexes(&self) -> Result<(usize, usize)> {
        let mut names = Vec::new();
        for &message in &self.sample_types {
            names.push(self.string(number_of(message, 1)?));
        }
        let index = |wanted: &[u8]| names.iter().position(|&name| name == wanted);
        index(b"allocations").zip(index(b"space")).ok_or_else(|| {
            let shown = |name: &&[u8]| format!("{:?}", String::from_utf8_lossy(&name[..name.len().min(SHOWN_NAME)]));
            let found = names.iter().take(4).map(shown).collect::<Vec<_>>().join(", ");
            Error::Foreign(format!(
                "a pprof profile, but not of device memory: expected allocations and space, found {found}; \
                 jax.profiler.save_device_memory_profile writes what memviz reads"
            ))
        })
    }

    fn sample(&self, mut message: Message<'a>) -> Result<Sample<'a>> {
        let mut sample = Sample { locations: Vec::new(), values: Vec::new(), device: None };
        loop {
            let at = message.at();
            let Some((number, value)) = message.next()? else { return Ok(sample) };
            match number {
                1 => value.numbers(at, &mut sample.locations)?,
                2 => value.numbers(at, &mut sample.values)?,
                3 => {
                    let label = value.message(at)?;
                    if self.string(number_of(label, 1)?) == b"device" {
                        sample.device = Some(self.string(number_of(label, 2)?));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The value of a message's number; 0 if it is omitted, as zeros are.
fn number_of(mut message: Message<'_>, wanted: u64) -> Result<u64> {
    let mut found = 0;
    loop {
        let at = message.at();
        let Some((number, value)) = message.next()? else { return Ok(found) };
        if number == wanted {
            found = value.number(at)?;
        }
    }
}

/// Frames of locations that were already looked up.
struct Frames {
    known: HashMap<u64, Vec<FrameId>, RandomState>,
    /// How many more frames stacks may have.
    left: usize,
}

impl Frames {
    /// The stack of these locations, innermost first.
    fn stack(&mut self, tables: &Tables<'_>, profile: &mut LiveProfile, locations: &[u64], at: u64) -> Result<StackId> {
        let mut stack = Vec::new();
        for &location in locations {
            let frames = match self.known.entry(location) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(frames_of(tables, profile, location)?),
            };
            stack.extend(frames.iter());
            if stack.len() > MAX_DEPTH {
                let message = format!("a stack of more than {MAX_DEPTH} frames");
                return Err(Error::Limit { at, message });
            }
        }
        self.left = self.left.checked_sub(stack.len()).ok_or_else(|| Error::Limit {
            at,
            message: "more frames than the file has bytes: locations are repeated".to_owned(),
        })?;
        Ok(profile.stacks.intern_stack(&stack))
    }
}

/// The frames of a location: several, innermost first, if functions were inlined.
fn frames_of(tables: &Tables<'_>, profile: &mut LiveProfile, location: u64) -> Result<Vec<FrameId>> {
    let mut frames = Vec::new();
    let Some(&(mut message)) = tables.locations.get(&location) else { return Ok(frames) };
    loop {
        let at = message.at();
        let Some((number, value)) = message.next()? else { return Ok(frames) };
        if number != 4 {
            continue;
        }
        let line = value.message(at)?;
        let function = tables.functions.get(&number_of(line, 1)?).copied();
        let mut text = |number: u64| -> Result<StrId> {
            let index = function.map_or(Ok(0), |function| number_of(function, number))?;
            Ok(profile.strings.intern(&String::from_utf8_lossy(tables.string(index))))
        };
        let frame = Frame { name: text(2)?, filename: text(4)?, line: number_of(line, 2)?, fx: None };
        frames.push(profile.stacks.intern_frame(frame));
    }
}

/// Device numbers by device names, as JAX writes them: `gpu:0`, `TPU_3(process=0,(1,1,0,0))`, `TFRT_CPU_0`. They do not depend
/// on the order of samples, which changes between runs of one program.
#[derive(Default)]
struct Devices {
    numbers: IndexMap<Vec<u8>, DeviceId, RandomState>,
    taken: HashSet<DeviceId, RandomState>,
}

impl Devices {
    fn of(tables: &Tables<'_>, values: [usize; 2]) -> Result<Self> {
        let mut names = HashSet::with_hasher(RandomState::default());
        for &message in &tables.samples {
            let sample = tables.sample(message)?;
            if values.iter().any(|&index| sample.values.get(index).is_some_and(|&value| value != 0)) {
                names.extend(sample.device);
            }
        }
        Ok(Self::named(names.into_iter().collect()))
    }

    /// Devices of these names, as far as there are numbers: those in the names, and then the next free ones. The first CPU is
    /// the CPU's memory.
    fn named(mut names: Vec<&[u8]>) -> Self {
        // Other devices keep their numbers, even if there is a CPU with the same one.
        names.sort_rows_by_key(|name| (is_cpu(name), first_number(name).unwrap_or(DeviceId::MAX), name.to_vec()));
        let mut devices = Self::default();
        let mut unnumbered = Vec::new();
        for name in names {
            let number = match first_number(name) {
                None | Some(0) if is_cpu(name) => Some(CPU_DEVICE),
                number => number,
            };
            match number.filter(|number| *number <= MAX_DEVICE && !devices.taken.contains(number)) {
                Some(number) => devices.add(name, number),
                None => unnumbered.push(name),
            }
        }
        for name in unnumbered {
            let Some(number) = (0..=MAX_DEVICE).find(|number| !devices.taken.contains(number)) else { break };
            devices.add(name, number);
        }
        devices
    }

    fn add(&mut self, name: &[u8], number: DeviceId) {
        self.taken.insert(number);
        self.numbers.insert(name.to_vec(), number);
    }

    fn into_names(self) -> Vec<(DeviceId, String)> {
        self.numbers.into_iter().map(|(name, number)| (number, String::from_utf8_lossy(&name).into_owned())).collect()
    }
}

fn is_cpu(name: &[u8]) -> bool {
    name.to_ascii_lowercase().windows(3).any(|part| part == b"cpu")
}

fn first_number(name: &[u8]) -> Option<DeviceId> {
    let text = String::from_utf8_lossy(name);
    let start = text.find(|next: char| next.is_ascii_digit())?;
    let digits = text[start..].find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len() - start);
    text[start..start + digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_names() {
        let expected = [
            ("TFRT_CPU_0", CPU_DEVICE),
            ("TFRT_CPU_1", 5),
            ("TFRT_CPU_7", 7),
            ("TPU_3(process=0,(1,1,0,0))", 3),
            ("gpu:0", 0),
            ("gpu:1", 1),
            ("metal", 4),
            ("tpu:3", 2),
        ];
        let mut names: Vec<&[u8]> = expected.iter().map(|(name, _)| name.as_bytes()).collect();
        for _ in 0..names.len() {
            names.rotate_left(3);
            let mut found = Devices::named(names.clone()).into_names();
            found.sort_by(|(_, a), (_, b)| a.cmp(b));
            assert_eq!(found, expected.map(|(name, number)| (number, name.to_owned())));
        }
    }
}
