//! Entries as rows of a list, and their stacks.

use super::frames::Frame;
use super::json;
use super::segments::{address, pool};
use crate::analysis::diff::Asked;
use crate::facts::device::Device;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Holder, Inference};
use crate::model::Action;
use crate::replay::{Instant, Metric, NEVER};
use crate::report::diff::words;
use serde::Serialize;

#[derive(Serialize)]
struct Event {
    entry: u32,
    action: &'static str,
    bytes: u64,
    /// `None` for entries without an address: a snapshot, a failed request, whose address is `device_free`, and unrecorded ones.
    address: Option<String>,
    device_free: Option<u64>,
    /// `None` if streams are not recorded.
    stream: Option<u64>,
    pool: Option<String>,
    site: String,
    allocation: Option<u32>,
    /// The instant after the entry that allocates the block that this one frees, or frees the block that this one allocates.
    partner: Option<Instant>,
}

/// Some entries of a device; numbers that it does not have are left out. The site of an entry that frees a block is
/// the site of that block.
pub fn events(device: &Device<'_>, entries: &[u32]) -> String {
    let (sites, filter) = (device.deep_sites(), Filter::default());
    let grouper = Grouper::new(device, sites, &filter, GroupBy::Site);
    let grouper = grouper.inferring(device, Inference::On, Metric::Active);
    let site = |allocation: usize| {
        let holder = Holder::of_allocation(device.track, Metric::Active, allocation)?;
        grouper.keys(&holder).first().map(|key| grouper.label(key, false))
    };
    json(&entries.iter().filter_map(|&entry| event(device, entry, &site)).collect::<Vec<_>>())
}

fn event(device: &Device<'_>, number: u32, site: &impl Fn(usize) -> Option<String>) -> Option<Event> {
    let track = device.track;
    let entry = track.entry(number).filter(|_| number < track.entries())?;
    let context = track.context(number);
    let has_address = !matches!(entry.action, Action::Snapshot | Action::Oom | Action::Unknown);
    let link = track.history.links.get(number as usize).copied();
    let allocation = link.filter(|&link| track.allocation(link as usize).is_some());
    let partner = allocation.and_then(|link| track.allocation(link as usize)).map(|allocation| match entry.action {
        Action::Alloc => allocation.freed,
        _ => allocation.born,
    });
    Some(Event {
        entry: number,
        action: entry.action.name(),
        bytes: entry.size,
        address: (has_address && entry.addr != 0).then(|| address(entry.addr)),
        device_free: (entry.action == Action::Oom).then_some(entry.addr),
        stream: track.snapshot.notes.format.has_segments().then_some(context.stream),
        pool: context.pool.map(pool),
        site: allocation
            .and_then(|allocation| site(allocation as usize))
            .unwrap_or_else(|| device.deep_sites().site(entry.stack)),
        allocation,
        partner: partner.filter(|&instant| instant != NEVER && instant != 0),
    })
}

/// The stack of an entry, innermost frame first; empty past the end.
pub fn stack(device: &Device<'_>, entry: u32) -> String {
    json(&Frame::of_stack(device.deep_sites(), device.track.stack(entry)))
}

/// The request of an entry, or the end of the recording if there is none, worded as in `memviz diff`, with this name
/// for the recording.
pub fn request(device: &Device<'_>, name: &str, entry: Option<u32>) -> String {
    let asked = entry.and_then(|entry| Asked::at(device, entry));
    json(&words::request(name, asked.as_ref()))
}
