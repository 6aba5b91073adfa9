//! The highest value of a counter within any range of instants: exact and fast.

use crate::replay::{Counters, Instant, Maximum, Metric, Track};

/// Entries of a leaf. Within a leaf, the counters are computed entry by entry from its start.
const LEAF: usize = 64;
/// Nodes below a node.
const FAN: usize = 16;

type Maxima = [Maximum; Metric::ALL.len()];

/// Maxima of all counters over runs of entries, over runs of these runs, and so on.
///
/// Leaf `n` contains the instants after the entries from `n * LEAF` on. A million entries take 2 MB.
#[derive(Clone, Debug)]
pub struct Pyramid {
    starts: Vec<Counters>,
    /// The maxima of the leaves, of every [`FAN`] leaves, and so on up to a single node.
    levels: Vec<Vec<Maxima>>,
}

impl Pyramid {
    /// Goes through a history once.
    pub fn of(track: Track<'_>) -> Self {
        let leaves = (track.entries() as usize).div_ceil(LEAF);
        let mut starts = Vec::with_capacity(leaves);
        let mut maxima: Vec<Maxima> = Vec::with_capacity(leaves);
        let mut before = track.history.start;
        track.walk(|instant, counters| {
            let here = Metric::ALL.map(|metric| Maximum { bytes: counters.get(metric), instant });
            if (instant as usize - 1).is_multiple_of(LEAF) {
                starts.push(before);
                maxima.push(here);
            } else if let Some(leaf) = maxima.last_mut() {
                merge(leaf, &here);
            }
            before = *counters;
        });
        let mut levels = vec![maxima];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let node = |children: &[Maxima]| {
                let mut node = children[0];
                children[1..].iter().for_each(|child| merge(&mut node, child));
                node
            };
            let above = below.chunks(FAN).map(node).collect();
            levels.push(above);
        }
        Self { starts, levels }
    }

    /// The instant at which a counter is highest within `from..=to`, in the track for which this was built; the first
    /// one if there are several.
    pub fn highest(&self, track: Track<'_>, metric: Metric, from: Instant, to: Instant) -> Maximum {
        let to = to.min(track.entries()).max(from);
        let mut best = None;
        let mut take = |found: Maximum| match &best {
            Some(Maximum { bytes, .. }) if *bytes >= found.bytes => {}
            _ => best = Some(found),
        };
        if from == 0 {
            take(Maximum { bytes: track.history.start.get(metric), instant: 0 });
        }
        // Entries that lead to the instants, as a range.
        let (first, end) = ((from as usize).max(1) - 1, to as usize);
        let whole = first.div_ceil(LEAF)..end / LEAF;
        if whole.start < whole.end {
            self.walk(track, metric, first..whole.start * LEAF, &mut take);
            self.climb(metric, whole.clone(), &mut take);
            self.walk(track, metric, whole.end * LEAF..end, &mut take);
        } else {
            self.walk(track, metric, first..end, &mut take);
        }
        best.unwrap_or_default()
    }

    /// Examines the instants after some entries one by one.
    fn walk(&self, track: Track<'_>, metric: Metric, entries: std::ops::Range<usize>, take: &mut impl FnMut(Maximum)) {
        let Some(&start) = self.starts.get(entries.start / LEAF).filter(|_| !entries.is_empty()) else { return };
        let leaf = (entries.start / LEAF * LEAF) as Instant;
        track.walk_between(leaf, start, entries.end as Instant, |instant, counters| {
            if instant as usize > entries.start {
                take(Maximum { bytes: counters.get(metric), instant });
            }
        });
    }

    /// Examines some leaves in order, through as few nodes as cover them.
    fn climb(&self, metric: Metric, leaves: std::ops::Range<usize>, take: &mut impl FnMut(Maximum)) {
        let mut next = leaves.start;
        while next < leaves.end {
            let (mut level, mut width) = (0, 1);
            while level + 1 < self.levels.len() && next.is_multiple_of(width * FAN) && next + width * FAN <= leaves.end
            {
                level += 1;
                width *= FAN;
            }
            if let Some(node) = self.levels.get(level).and_then(|level| level.get(next / width)) {
                take(node[metric as usize]);
            }
            next += width;
        }
    }
}

fn merge(into: &mut Maxima, other: &Maxima) {
    for (best, other) in into.iter_mut().zip(other) {
        if other.bytes > best.bytes {
            *best = *other;
        }
    }
}
