//! Refuses impossible sizes, so that no sum of sizes ever overflows 63 bits.

use super::history::History;
use crate::error::{Error, Result};
use crate::model::{Action, Segment, Snapshot};

/// PyTorch refuses requests of this size without recording them. The sum of all sizes of a recording is lower: a million
/// entries of 1 GiB are a thousandth of it.
const TOO_MANY: u64 = 1 << 60;

/// Refuses a recording whose sizes sum to 1 EiB or more. The counters, rows and differences of all other recordings fit 63
/// bits, even if the recording contradicts itself.
///
/// # Errors
/// If there is such a size or sum.
pub fn require_plausible(snapshot: &Snapshot, histories: &[History]) -> Result<()> {
    let sizes = snapshot.entries.sizes();
    // The bitwise OR of all sizes is at least the largest one. For real recordings, this check is enough.
    let largest = u128::from(sizes.iter().fold(0, |bits, size| bits | size));
    let mut sum = largest * sizes.len() as u128;
    if sum >= u128::from(TOO_MANY) {
        sum = 0;
        for (&action, &size) in snapshot.entries.actions().iter().zip(sizes) {
            match action {
                // A failed request is repeated again and again, and nothing sums it.
                Action::Oom | Action::Snapshot | Action::Annotate | Action::Unknown => require(size.into(), snapshot)?,
                _ => sum += u128::from(size),
            }
        }
    }
    sum += snapshot.segments.iter().map(of_segment).sum::<u128>();
    for history in histories {
        let before = history.allocations.iter().take(history.baseline.len());
        sum += before.map(|block| u128::from(block.size) + u128::from(block.requested)).sum::<u128>();
    }
    require(sum, snapshot)
}

fn of_segment(segment: &Segment) -> u128 {
    let own = [segment.total_size, segment.allocated_size, segment.active_size, segment.requested_size.unwrap_or(0)];
    let blocks = segment.blocks.iter().flat_map(|block| [block.size, block.requested_size]);
    own.into_iter().chain(blocks).map(u128::from).sum()
}

fn require(bytes: u128, snapshot: &Snapshot) -> Result<()> {
    if bytes < u128::from(TOO_MANY) {
        return Ok(());
    }
    let message = "the sizes sum to 1 EiB or more, which no device has".to_owned();
    Err(Error::Limit { at: snapshot.notes.bytes, message })
}
