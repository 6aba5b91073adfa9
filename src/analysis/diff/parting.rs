//! Where two recordings diverge: the first request that differs.

use crate::facts::device::Device;
use crate::model::Action;
use crate::replay::Instant;

/// The first requests that differ, in size or in whether they failed; none where a side ends earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parting {
    /// Number of requests before it that are alike.
    pub alike: usize,
    /// The request of the base.
    pub base: Option<Asked>,
    /// The request of the other recording.
    pub new: Option<Asked>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// The instant after it.
    pub instant: Instant,
    /// Its entry, counted within the device's trace.
    pub entry: u32,
    /// Bytes requested.
    pub bytes: u64,
    /// Whether the request failed.
    pub failed: bool,
    /// The line that requested them.
    pub site: String,
}

impl Parting {
    /// Compares the requests of both in order: all of them where both recordings have the whole history, else those after
    /// their first steps. `None` where nothing tells which requests belong together, and where all are alike.
    pub(super) fn of(base: &Device<'_>, new: &Device<'_>) -> Option<Self> {
        let is_whole = |device: &Device<'_>| device.history().completeness.is_complete();
        let first_step = |device: &Device<'_>| {
            let steps = device.steps().ok().filter(|steps| steps.are_steps())?;
            steps.ends.first().copied()
        };
        let starts = if is_whole(base) && is_whole(new) { (0, 0) } else { first_step(base).zip(first_step(new))? };
        let (mut left, mut right) = (requests(base, starts.0), requests(new, starts.1));
        let mut alike = 0;
        loop {
            match (left.next(), right.next()) {
                (None, None) => return None,
                (Some(one), Some(another)) if one.1 == another.1 => alike += 1,
                (one, another) => {
                    let base = one.map(|request| asked(base, request));
                    return Some(Self { alike, base, new: another.map(|request| asked(new, request)) });
                }
            }
        }
    }

    /// Both sides, each with its name in answers.
    pub fn sides(&self) -> [(&'static str, Option<&Asked>); 2] {
        [("base", self.base.as_ref()), ("new", self.new.as_ref())]
    }
}

/// An entry, its size, and whether it failed.
type Request = (u32, (u64, bool));

fn requests<'d>(device: &'d Device<'_>, start: Instant) -> impl Iterator<Item = Request> + 'd {
    let entries = (0..).zip(device.track.actions().iter().zip(device.track.sizes()));
    entries.skip(start as usize).filter_map(|(entry, (&action, &size))| match action {
        Action::Alloc => Some((entry, (size, false))),
        Action::Oom => Some((entry, (size, true))),
        _ => None,
    })
}

fn asked(device: &Device<'_>, (entry, (bytes, failed)): Request) -> Asked {
    let site = device.sites().site(device.track.stack(entry));
    Asked { instant: entry.saturating_add(1), entry, bytes, failed, site }
}
