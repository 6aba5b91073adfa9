//! The driver's placement of segments: one rule for all simulations.
//!
//! Among free blocks of one size, the allocator uses the one with the lowest address, so the order of segments decides
//! which block a request gets. Recordings do not contain the driver's rule; memviz infers it from the addresses of
//! segments.

use super::player::Setup;
use super::program::Program;
use super::recorded::keeps_order;
use crate::allocator::Placement;
use crate::model::AllocatorSettings;
use crate::replay::Track;

/// The known placements, the most likely first.
const ALL: [Placement; 3] = [Placement::LowestFree, Placement::Ascending, Placement::Descending];

/// The possible placements of segments with given settings, the most likely first; never empty. There is one if the recording
/// shows it, or if it makes no difference: within one expandable segment, addresses do not depend on the driver.
pub(crate) fn possible_placements(known: Option<Placement>, settings: &AllocatorSettings) -> &'static [Placement] {
    let place = known.and_then(|known| ALL.iter().position(|&placement| placement == known));
    match place {
        Some(place) => &ALL[place..=place],
        None if settings.expandable_segments => &ALL[..1],
        None => &ALL,
    }
}

/// The driver's placement of segments, if a recording under these settings shows it.
pub(crate) fn placement_of(track: Track<'_>, program: &Program, settings: &AllocatorSettings) -> Option<Placement> {
    if settings.expandable_segments {
        return None;
    }
    let setup = Setup { recorded_addresses: false, ..Setup::as_recorded(track, program) };
    ALL.into_iter().find(|&placement| keeps_order(track, program, &Setup { placement, ..setup.clone() }))
}
