//! When `expandable_segments` was set, as far as new segments show: PyTorch looks at the setting for each request.
//!
//! The setting decides whether a rest of up to 1 MiB is split off a block, and whether a new segment is expandable. Between two
//! segments of different kinds, only one of two sizes can be right.

use crate::allocator::SizeRules;
use crate::model::{Action, DEFAULT_POOL, DeviceTrace, Snapshot};

/// How requests split free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// As with `expandable_segments:True`: any rest is split off.
    Expandable,
    /// As without: a rest of more than 1 MiB is split off.
    Regular,
    /// One of the two.
    Unknown,
}

/// From which entry on requests split blocks how, in order.
pub type SplitTimeline = Vec<(u32, Splits)>;

/// What the segments of the default pool show, if the setting was changed; empty if nothing shows that. Segments of private pools may
/// be regular whatever the setting is, and PyTorch 2.15 is the first to record the pool of an entry.
pub(super) fn shown(snapshot: &Snapshot, trace: &DeviceTrace, rules: &SizeRules) -> SplitTimeline {
    if snapshot.contexts.iter().all(|context| context.pool.is_none()) {
        return SplitTimeline::new();
    }
    let mut timeline = SplitTimeline::new();
    let mut latest: Option<(u32, Splits)> = None;
    for (at, kind) in segments(snapshot, trace, |pool| pool == Some(DEFAULT_POOL)) {
        match latest {
            None => timeline.push((0, kind)),
            Some((_, before)) if before == kind => {}
            // The request for which the latest one was allocated follows it.
            Some((before, _)) => timeline.extend([(before + 2, Splits::Unknown), (at, kind)]),
        }
        latest = Some((at, kind));
    }
    let end = if rules.is_expandable() { Splits::Expandable } else { Splits::Regular };
    match latest {
        Some((at, kind)) if kind != end => timeline.push((at + 2, Splits::Unknown)),
        _ if timeline.len() < 2 => timeline.clear(),
        _ => {}
    }
    timeline
}

/// The same if each new segment, of whatever pool, shows when the setting changed.
pub(super) fn as_segments_change(snapshot: &Snapshot, trace: &DeviceTrace) -> SplitTimeline {
    let mut timeline: SplitTimeline = segments(snapshot, trace, |_| true).collect();
    timeline.dedup_by_key(|(_, kind)| *kind);
    timeline
}

/// The entries that allocated segments, each with what it shows.
fn segments<'s>(
    snapshot: &'s Snapshot,
    trace: &DeviceTrace,
    is_wanted: impl Fn(Option<crate::model::PoolId>) -> bool + 's,
) -> impl Iterator<Item = (u32, Splits)> + 's {
    (0..).zip(snapshot.entries.rows(trace.rows.clone())).filter_map(move |(at, entry)| {
        let kind = match entry.action {
            Action::SegmentAlloc => Splits::Regular,
            Action::SegmentMap => Splits::Expandable,
            _ => return None,
        };
        is_wanted(snapshot.contexts.get(entry.context).pool).then_some((at, kind))
    })
}
