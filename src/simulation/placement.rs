//! The driver's placement of segments: one rule for all simulations.
//!
//! Among free blocks of one size, the allocator uses the one with the lowest address, so the order of segments decides
//! which block a request gets. Recordings do not contain the driver's rule; memviz infers it from the addresses of
//! segments.

use super::player::{Setup, simulate};
use super::program::Program;
use super::recorded::{keeps_order, maxima};
use crate::allocator::Placement;
use crate::model::AllocatorSettings;
use crate::replay::{Metric, Track};

/// The known placements; [`Placement::Arenas`] is the last.
pub(crate) const PLACEMENTS: [Placement; 4] =
    [Placement::LowestFree, Placement::Ascending, Placement::Descending, Placement::Arenas];

/// The placements that make a difference with given settings: within one expandable segment, addresses do not depend on the
/// driver.
pub(crate) fn relevant<'p>(placements: &'p [Placement], settings: &AllocatorSettings) -> &'p [Placement] {
    if settings.expandable_segments { &placements[..1] } else { placements }
}

/// The driver's possible placements of segments, the most likely first; never empty. There is one if a recording under
/// these settings shows it, except for arenas: the next segment may lie in a hole between mappings of the process. A placement is
/// likely if a simulation with it has the recorded order of segments, or else if it reserves as much as recorded.
pub(crate) fn placements_of(track: Track<'_>, program: &Program, settings: &AllocatorSettings) -> Vec<Placement> {
    let mut all = PLACEMENTS.to_vec();
    if settings.expandable_segments {
        return all;
    }
    let setup = Setup { recorded_addresses: false, ..Setup::as_recorded(track, program) };
    let on = |placement| Setup { placement, ..setup.clone() };
    let is_shown = |placement| keeps_order(track, program, &on(placement));
    match all.iter().copied().find(|&placement| is_shown(placement)) {
        Some(Placement::Arenas) => all.rotate_right(1),
        Some(shown) => return vec![shown],
        None => {
            let recorded = maxima(track, program.until)[Metric::Reserved as usize];
            let reserved = |placement| simulate(program, &on(placement)).max_reserved;
            all.sort_by_cached_key(|&placement| i64::try_from(reserved(placement)) != Ok(recorded));
        }
    }
    all
}
