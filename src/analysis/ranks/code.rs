//! Which code a recording is from: a sample of the lines that allocate, small enough for a summary.

use crate::facts::code::frames::FrameKind;
use crate::facts::code::sites::Sites;
use crate::model::{Action, FrameId, StackId};
use crate::replay::Track;
use crate::wire::ranks::{CodeSample, DIGITS, SAMPLE};
use std::collections::{BTreeSet, HashSet};

/// Fewer lines than this are not representative of a program.
const MIN_LINES: usize = 4;

impl CodeSample {
    /// The lines that allocate on one device; `None` if no stack has the user's own code.
    pub(super) fn of(track: Track<'_>, sites: &Sites<'_>) -> Option<Self> {
        let entries = track.actions().iter().zip(track.stacks());
        let allocs = entries.filter(|(action, _)| **action == Action::Alloc);
        let mut stacks: HashSet<StackId> = allocs.map(|(_, &stack)| stack).collect();
        stacks.extend(track.history.baseline.iter().map(|origin| origin.stack));
        let own = |stack: &StackId| -> Option<FrameId> {
            let frames = track.snapshot.stacks.frame_ids(*stack);
            frames.iter().copied().find(|&frame| sites.kind(frame) == FrameKind::User)
        };
        let frames: HashSet<FrameId> = stacks.iter().filter_map(own).collect();
        let hashes: BTreeSet<u32> = frames.into_iter().map(|frame| hash(&sites.label(frame))).collect();
        (!hashes.is_empty()).then(|| Self::of_hashes(&hashes))
    }

    fn of_hashes(hashes: &BTreeSet<u32>) -> Self {
        let sample: Vec<String> = hashes.iter().take(SAMPLE).map(|hash| format!("{hash:0DIGITS$x}")).collect();
        Self { lines: hashes.len() as u64, sample: sample.concat() }
    }

    /// The hashes, with the number of all lines up to a limit.
    pub(super) fn lines(&self) -> Lines {
        let digits = self.sample.as_bytes().chunks(DIGITS);
        let hash = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let hashes: BTreeSet<u32> = digits.filter_map(hash).collect();
        let is_whole = hashes.len() as u64 >= self.lines;
        let limit = if is_whole { u32::MAX } else { hashes.last().copied().unwrap_or(0) };
        Lines { hashes, limit }
    }
}

/// Hashes of lines: all lines of a program up to a limit, which makes them a fair sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    hashes: BTreeSet<u32>,
    limit: u32,
}

impl Lines {
    /// The lines of both, if both show them.
    pub(super) fn join(&mut self, other: &Self) {
        self.limit = self.limit.min(other.limit);
        self.hashes.extend(&other.hashes);
        let limit = self.limit;
        self.hashes.retain(|&hash| hash <= limit);
    }

    /// The fraction of the lines of one that the other also has: of the one with fewer lines, so that a recording of a
    /// part of a program matches the whole. `None` if there are too few.
    pub(super) fn overlap(&self, other: &Self) -> Option<f64> {
        let limit = self.limit.min(other.limit);
        let count = |lines: &Self| lines.hashes.range(..=limit).count();
        let fewer = count(self).min(count(other));
        let shared = self.hashes.intersection(&other.hashes).filter(|&&hash| hash <= limit).count();
        (fewer >= MIN_LINES).then(|| shared as f64 / fewer as f64)
    }
}

/// FNV-1a, folded to [`DIGITS`] hexadecimal digits: the same on every machine and in every version.
fn hash(text: &str) -> u32 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (((hash >> 48) ^ (hash >> 24) ^ hash) & 0x00ff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(lines: impl Iterator<Item = u32>) -> CodeSample {
        CodeSample::of_hashes(&lines.map(|line| hash(&format!("model.py:{line} forward"))).collect())
    }

    #[test]
    fn the_hash_never_changes() {
        assert_eq!(hash(""), 0x0022_2325 ^ 0x009c_e484 ^ 0xcbf2, "FNV's offset basis, folded");
        assert_ne!(hash("a.py:1 f"), hash("a.py:2 f"));
    }

    #[test]
    fn samples_tell_how_much_code_is_shared() {
        let overlap = |a: &CodeSample, b: &CodeSample| a.lines().overlap(&b.lines());
        let small = sample(0..20);
        assert_eq!(overlap(&small, &small), Some(1.0));
        assert_eq!(overlap(&small, &sample(100..120)), Some(0.0));
        assert_eq!(overlap(&small, &sample(0..10)), Some(1.0), "a part of it");
        assert_eq!(overlap(&small, &sample(0..3)), None, "too few lines to tell");
        let large = sample(0..2000);
        assert_eq!(large.sample.len(), SAMPLE * DIGITS);
        assert_eq!(overlap(&large, &large), Some(1.0));
        let half = overlap(&large, &sample(1000..3000)).unwrap();
        assert!((0.3..0.7).contains(&half), "{half}");
        assert!(overlap(&large, &sample(5000..7000)).unwrap() < 0.1);
        let mut joined = sample(0..1000).lines();
        joined.join(&sample(1000..2000).lines());
        assert_eq!(joined.overlap(&large.lines()), Some(1.0));
    }

    #[test]
    fn samples_from_files_are_checked() {
        let of = |lines, sample: &str| CodeSample { lines, sample: sample.to_owned() }.check();
        assert!(of(2, "00000a00000b").is_ok());
        for (lines, bad) in [(1, "00000"), (1, "00000g"), (1, "00000a00000b"), (9, "é0000")] {
            assert!(of(lines, bad).is_err(), "{bad}");
        }
        assert!(of(65, &"00000a".repeat(65)).is_err());
    }
}
