//! Where two recordings diverge: the first request that differs.

use crate::facts::device::Device;
use crate::model::Action;
use crate::replay::Instant;

/// The first requests that differ, in size or in whether they failed; none if a side ends earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Number of equal requests before it.
    pub alike: usize,
    pub base: Option<Asked>,
    pub new: Option<Asked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub instant: Instant,
    /// Its entry, counted within the device's trace.
    pub entry: u32,
    pub bytes: u64,
    pub failed: bool,
    pub site: String,
}

/// All requests of a device, to find where it diverges from a recording that is read elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Whether the recording has the whole history.
    pub is_whole: bool,
    /// The end of its first step, if steps are known.
    pub first_step: Option<Instant>,
    pub all: Vec<Request>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub entry: u32,
    pub bytes: u64,
    pub failed: bool,
}

/// The first requests of two recordings that differ; `None` on a side that ends earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Number of equal requests before it.
    pub alike: usize,
    pub base: Option<Request>,
    pub new: Option<Request>,
}

impl Requests {
    pub fn of(device: &Device<'_>) -> Self {
        let (is_whole, first_step) = (is_whole(device), first_step(device));
        Self { is_whole, first_step, all: requests(device, 0).collect() }
    }

    /// Where they diverge from the requests of another recording. `None` if it is unknown which requests belong
    /// together, or if all are equal.
    pub fn apart(&self, new: &Self) -> Option<Apart> {
        let both = (self.is_whole && new.is_whole).then_some((0, 0));
        let (from, to) = both.or_else(|| self.first_step.zip(new.first_step))?;
        let since = |side: &'_ Self, start| side.all.partition_point(|request| request.entry < start);
        let left = &self.all[since(self, from)..];
        let right = &new.all[since(new, to)..];
        apart(left.iter().copied(), right.iter().copied())
    }
}

impl Request {
    /// The request of an entry; `None` for entries that request nothing.
    fn of(entry: u32, action: Action, bytes: u64) -> Option<Self> {
        match action {
            Action::Alloc => Some(Self { entry, bytes, failed: false }),
            Action::Oom => Some(Self { entry, bytes, failed: true }),
            _ => None,
        }
    }
}

impl Asked {
    /// The request of an entry of a device; `None` for entries that request nothing.
    pub fn at(device: &Device<'_>, entry: u32) -> Option<Self> {
        let of = device.track.entry(entry)?;
        Some(Self::of(device, Request::of(entry, of.action, of.size)?))
    }

    fn of(device: &Device<'_>, Request { entry, bytes, failed }: Request) -> Self {
        let site = device.sites().site(device.track.stack(entry));
        Self { instant: entry.saturating_add(1), entry, bytes, failed, site }
    }
}

impl Parting {
    /// Compares the requests of both in order: all of them if both recordings have the whole history, otherwise those
    /// after their first steps. `None` if it is unknown which requests belong together, or if all are equal.
    pub(super) fn of(base: &Device<'_>, new: &Device<'_>) -> Option<Self> {
        let both = (is_whole(base) && is_whole(new)).then_some((0, 0));
        let (from, to) = both.or_else(|| first_step(base).zip(first_step(new)))?;
        let Apart { alike, base: one, new: another } = apart(requests(base, from), requests(new, to))?;
        let base = one.map(|request| Asked::of(base, request));
        Some(Self { alike, base, new: another.map(|request| Asked::of(new, request)) })
    }

    pub fn sides(&self) -> [(&'static str, Option<&Asked>); 2] {
        [("the base", self.base.as_ref()), ("the new recording", self.new.as_ref())]
    }
}

fn is_whole(device: &Device<'_>) -> bool {
    device.history().completeness.is_complete()
}

fn first_step(device: &Device<'_>) -> Option<Instant> {
    let steps = device.steps().ok().filter(|steps| steps.are_steps())?;
    steps.ends.first().copied()
}

/// The first requests that differ; `None` if all are equal.
fn apart(mut base: impl Iterator<Item = Request>, mut new: impl Iterator<Item = Request>) -> Option<Apart> {
    let mut alike = 0;
    loop {
        match (base.next(), new.next()) {
            (None, None) => return None,
            (Some(one), Some(another)) if (one.bytes, one.failed) == (another.bytes, another.failed) => alike += 1,
            (base, new) => return Some(Apart { alike, base, new }),
        }
    }
}

fn requests<'d>(device: &'d Device<'_>, start: Instant) -> impl Iterator<Item = Request> + 'd {
    let entries = (0..).zip(device.track.actions().iter().zip(device.track.sizes()));
    entries.skip(start as usize).filter_map(|(entry, (&action, &bytes))| Request::of(entry, action, bytes))
}
