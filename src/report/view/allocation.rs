//! One allocation with all known facts about it.

use super::frames::Frame;
use super::json;
use super::segments::{PoolNames, address, state};
use crate::facts::code::sites::clipped;
use crate::facts::device::Device;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Holder, Inference};
use crate::facts::segments::layout::{Layout, Piece};
use crate::facts::time::moment::Moment;
use crate::replay::{History, Instant, Metric, NEVER};
use crate::report::common::words;
use serde::Serialize;

#[derive(Serialize)]
struct Answer<'a> {
    id: usize,
    /// `None` if it is unknown.
    address: Option<String>,
    requested_bytes: u64,
    block_bytes: u64,
    born: Instant,
    freed: Option<Instant>,
    completed: Option<Instant>,
    born_us: Option<i64>,
    freed_us: Option<i64>,
    site: String,
    category: &'a str,
    evidence: &'static str,
    inferred: bool,
    /// What holds it in the program, the most telling first; empty if no walk of the recording found anything.
    holders: Vec<&'a str>,
    phase: Option<&'static str>,
    stream: Option<u64>,
    pool: Option<String>,
    annotations: Vec<String>,
    stack: Vec<Frame>,
    forward: Vec<Frame>,
    forward_inferred: bool,
    /// Whether its segment is known, and so its neighbors; `None` then means an end of the segment.
    in_segment: bool,
    before: Option<Neighbor>,
    behind: Option<Neighbor>,
}

#[derive(Serialize)]
struct Neighbor {
    bytes: u64,
    state: &'static str,
    allocation: Option<usize>,
    label: String,
}

/// The allocation with this index; `None` past the end.
pub fn allocation(device: &Device<'_>, id: usize) -> Option<String> {
    let track = device.track;
    let holder = Holder::of_allocation(track, Metric::Active, id)?;
    let allocation = track.allocation(id)?;
    let filter = Filter::default();
    let sites = device.deep_sites();
    let grouper = Grouper::new(device, sites, &filter, GroupBy::Site).inferring(device, Inference::On, Metric::Active);
    let site = |holder: &Holder| grouper.keys(holder).first().map(|key| grouper.label(key, false)).unwrap_or_default();
    let origin = grouper.origin(&holder);
    let decision = device.categories().get(id);
    let entry = History::entry_before(allocation.born);
    let context = entry.filter(|_| track.snapshot.notes.format.has_segments()).map(|entry| track.context(entry));
    let old = track.history.baseline.get(id);
    let pool = context.and_then(|context| context.pool).or(old.and_then(|old| old.pool));
    let born = Moment::of(track, device.annotations(), allocation.born);
    let happens = |instant: Instant| (instant != NEVER).then_some(instant);
    let freed = happens(allocation.freed);
    let layout = Layout::at(track, allocation.born);
    let place = layout.pieces.iter().position(|piece| piece.allocation == Some(id));
    let segment = place.and_then(|_| layout.segment_of(allocation.addr));
    let neighbor = |place: Option<usize>| {
        let place = place.filter(|place| segment.is_some_and(|segment| segment.pieces.contains(place)))?;
        let &Piece { size, state: is, allocation, .. } = layout.pieces.get(place)?;
        let holder = allocation.and_then(|index| Holder::of_allocation(track, Metric::Active, index));
        let label = holder.as_ref().map(site).unwrap_or_default();
        Some(Neighbor { bytes: size, state: state(is), allocation, label })
    };
    Some(json(&Answer {
        id,
        address: (allocation.addr != 0).then(|| address(allocation.addr)),
        requested_bytes: allocation.requested,
        block_bytes: allocation.size,
        born: allocation.born,
        freed,
        completed: happens(allocation.completed),
        born_us: born.since_start_us,
        freed_us: freed.and_then(|freed| Moment::of(track, device.annotations(), freed).since_start_us),
        site: site(&holder),
        category: words::category(decision.category.name()),
        evidence: decision.evidence.words(),
        inferred: !decision.evidence.is_recorded(),
        holders: device.held().map_or_else(Vec::new, |held| held.all_of(id).map(|by| clipped(&by.path)).collect()),
        phase: entry.and_then(|entry| device.phases().span(entry)).map(|span| span.phase.name()),
        stream: context.map(|context| context.stream).or(old.map(|old| old.stream)),
        pool: pool.map(|pool| PoolNames::of(device, std::iter::once(pool)).name(pool)),
        annotations: born.annotations,
        stack: Frame::of_stack(sites, origin.stack),
        forward: origin.forward.map(|stack| Frame::of_stack(sites, stack)).unwrap_or_default(),
        forward_inferred: origin.forward.is_some() && !origin.is_recorded,
        in_segment: segment.is_some(),
        before: neighbor(place.and_then(|place| place.checked_sub(1))),
        behind: neighbor(place.map(|place| place + 1)),
    }))
}
