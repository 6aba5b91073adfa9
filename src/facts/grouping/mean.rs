//! Blocks weighted by their lifetime: what a range of the history holds on average.

use super::holder::Holder;
use crate::error::{Error, Result};
use crate::model::device_words;
use crate::replay::{Instant, Track};

/// Binary digits of weights behind the point, so that the sum of a million rounded weights is off by less than a byte.
const FRACTION: u32 = 20;

/// A range of the history of a device.
pub(crate) struct Mean<'a> {
    times: &'a [i64],
    from: Instant,
    to: Instant,
    /// How long the range lasts, in microseconds.
    pub(crate) micros: u64,
}

impl<'a> Mean<'a> {
    /// # Errors
    /// If the recording has no times, or the range has no duration.
    pub(crate) fn of(track: Track<'a>, (from, to): (Instant, Instant)) -> Result<Self> {
        if !track.snapshot.notes.has_times {
            return Err(Error::Request("this recording has no times (PyTorch 2.0), and so no means".to_owned()));
        }
        let range = Self { times: track.times(), from, to, micros: 0 };
        let micros = range.time(to).wrapping_sub(range.time(from));
        let micros = u64::try_from(micros).ok().filter(|&micros| micros > 0).ok_or_else(|| {
            Error::Request(format!("expected a range with a duration on {}, found none", device_words(track.device())))
        })?;
        Ok(Self { micros, ..range })
    }

    /// The time of an instant: that of the entry before it.
    fn time(&self, instant: Instant) -> i64 {
        self.times.get((instant as usize).saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Whether something with this lifetime counts.
    pub(crate) fn counts(&self, born: Instant, gone: Instant) -> bool {
        born < self.to && self.from < gone
    }

    /// Bytes of the mean, to be rounded by [`whole`].
    pub(crate) fn weight(&self, holder: &Holder) -> u64 {
        let lifetime = self.time(holder.gone.min(self.to)).wrapping_sub(self.time(holder.born.max(self.from)));
        let (product, micros) = (u128::from(holder.bytes) * u128::from(lifetime as u64), u128::from(self.micros));
        (((product / micros) << FRACTION) | (((product % micros) << FRACTION) / micros)) as u64
    }
}

/// Whole bytes of a weight that has `start` in front of it. Of weights next to each other, they sum to those of the sum.
pub(crate) fn whole(start: u64, weight: u64) -> u64 {
    (start.wrapping_add(weight) >> FRACTION).wrapping_sub(start >> FRACTION)
}
