//! Every allocation and free in order, with its address and stack.

use super::code::Code;
use crate::analysis::peak::PeakOptions;
use crate::error::{Error, Result};
use crate::facts::code::sites::Place;
use crate::facts::device::{Device, Devices, ask_each};
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder, Inference};
use crate::model::{DeviceId, StackId, device_words};
use crate::replay::{Completeness, Instant, Metric};
use foldhash::fast::RandomState;
use indexmap::IndexMap;

options! {
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct LivesOptions {
        /// Whether the forward line of memory of backward is inferred.
        pub inference: Inference,
        /// Whether to keep frames that calls only pass through.
        pub all_frames: bool,
        /// Devices; all when empty.
        pub devices: Vec<DeviceId>,
    }
}

#[derive(Clone, Debug, Default)]
pub struct LivesReport {
    pub devices: Vec<DeviceLives>,
    pub skipped: Vec<String>,
    /// Whether times are those of a clock; otherwise, one microsecond represents one entry.
    pub has_times: bool,
}

#[derive(Clone, Debug)]
pub struct DeviceLives {
    pub device: DeviceId,
    /// Places in code, to which stacks refer.
    pub places: Vec<Place>,
    pub stacks: Vec<Vec<u32>>,
    /// Allocations and frees in the order of the entries; those from before the recording first.
    pub events: Vec<Life>,
    pub completeness: Completeness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub time_us: i64,
    pub address: u64,
    /// Its bytes; negative for a free.
    pub bytes: i64,
    /// Index into [`DeviceLives::stacks`]; `None` if the recording has no stack.
    pub stack: Option<u32>,
}

impl LivesReport {
    /// Collects every allocation and free.
    ///
    /// # Errors
    /// If a device does not exist, or none has a history.
    pub fn of(recording: &Devices<'_>, options: &LivesOptions) -> Result<Self> {
        let wanted = recording.wanted(&options.devices)?;
        let (devices, skipped) = ask_each(&wanted, |device| DeviceLives::of(device, options))?;
        Ok(Self { devices, skipped, has_times: recording.snapshot().notes.has_times })
    }
}

impl DeviceLives {
    fn of(device: &Device<'_>, options: &LivesOptions) -> Result<Self> {
        let (track, history) = (device.track, device.history());
        if history.entries() == 0 {
            let message = format!("{}: expected a history, found the state at one instant", device_words(device.id()));
            return Err(Error::Request(message));
        }
        let everything = Filter::default();
        let metric = PeakOptions::default().metric;
        let grouper = Grouper::new(device, device.sites(), &everything, GroupBy::Stack);
        let grouper = grouper.inferring(device, options.inference, metric);
        let mut groups = Groups::new(&grouper);
        // The events at an instant: frees come before allocations; no entry does both.
        let mut events: Vec<(Instant, Event)> = Vec::with_capacity(2 * history.allocations.len());
        for (index, made) in history.allocations.iter().enumerate() {
            let Some(holder) = Holder::of_allocation(track, Metric::Allocated, index) else { continue };
            let group = groups.of(&holder).first().map(|&group| group as u32);
            let (address, bytes) = (made.addr, made.size.cast_signed());
            events.push((made.born, Event { address, bytes, stack: Stack::Group(group) }));
            if made.freed <= history.entries() {
                let stack = made.freed.checked_sub(1).map_or(StackId::EMPTY, |entry| track.stack(entry));
                events.push((made.freed, Event { address, bytes: -bytes, stack: Stack::Recorded(stack) }));
            }
        }
        events.sort_by_key(|&(instant, event)| (instant, event.bytes));
        let mut code = Code::new(device.sites(), options.all_frames);
        let mut stacks: Vec<Vec<u32>> = groups.keys().map(|key| code.of(&grouper, key)).collect();
        let mut recorded: IndexMap<StackId, Option<u32>, RandomState> = IndexMap::default();
        let mut number = |stack: Stack| match stack {
            Stack::Group(group) => group,
            Stack::Recorded(stack) => *recorded.entry(stack).or_insert_with(|| {
                let places = code.of_stack(stack);
                (!places.is_empty()).then(|| {
                    stacks.push(places);
                    stacks.len() as u32 - 1
                })
            }),
        };
        let times = track.times();
        let life = |(instant, event): (Instant, Event)| Life {
            time_us: times.get(instant.saturating_sub(1) as usize).copied().unwrap_or(0),
            address: event.address,
            bytes: event.bytes,
            stack: number(event.stack),
        };
        let events = events.into_iter().map(life).collect();
        Ok(Self { device: device.id(), places: code.into_places(), stacks, events, completeness: history.completeness })
    }
}

#[derive(Clone, Copy)]
struct Event {
    address: u64,
    bytes: i64,
    stack: Stack,
}

#[derive(Clone, Copy)]
enum Stack {
    Group(Option<u32>),
    Recorded(StackId),
}
