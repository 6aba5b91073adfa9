//! Compares two instants of one recording: blocks allocated in between, freed in between, and live at both.

use super::input::CONTRADICTORY;
use super::rows::{DiffRow, Fate, Unchanged, keep_top};
use super::{DeviceDiff, DiffInput, DiffInputDevice, DiffReport};
use crate::analysis::peak::PeakOptions;
use crate::error::{Error, Result};
use crate::facts::code::sites::CodeOrigin;
use crate::facts::device::{Device, Devices};
use crate::facts::grouping::{Grouper, Groups, Holder, RowHead};
use crate::replay::{Instant, Metric};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde::Serialize;
use std::cmp::Reverse;

/// Some blocks; segments for [`Metric::Reserved`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub bytes: u64,
    pub blocks: u64,
}

impl Share {
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
        self.blocks += 1;
    }

    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.wrapping_add(other.bytes), blocks: self.blocks + other.blocks }
    }
}

/// The fate of blocks from one instant of a recording to a later one: `born` and `survived` sum to the live blocks of
/// the later one, `freed` and `survived` to those of the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "BlockLives", rename = "BlockLives"))]
#[serde(into = "BlockLives")]
pub struct Lives {
    /// Live only at the later one.
    pub born: Share,
    /// Live only at the earlier one.
    pub freed: Share,
    /// Live at both.
    pub survived: Share,
}

/// The keys of [`Lives`].
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BlockLives {
    /// Bytes that are live only at the later instant.
    born_bytes: u64,
    /// Blocks of them.
    born_blocks: u64,
    /// Bytes that are live only at the earlier instant.
    freed_bytes: u64,
    /// Blocks of them.
    freed_blocks: u64,
    /// Bytes that are live at both.
    survived_bytes: u64,
    /// Blocks of them.
    survived_blocks: u64,
}

impl From<Lives> for BlockLives {
    fn from(Lives { born, freed, survived }: Lives) -> Self {
        Self {
            born_bytes: born.bytes,
            born_blocks: born.blocks,
            freed_bytes: freed.bytes,
            freed_blocks: freed.blocks,
            survived_bytes: survived.bytes,
            survived_blocks: survived.blocks,
        }
    }
}

impl Lives {
    pub fn before(&self) -> Share {
        self.freed.plus(self.survived)
    }

    pub fn after(&self) -> Share {
        self.born.plus(self.survived)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            born: self.born.plus(other.born),
            freed: self.freed.plus(other.freed),
            survived: self.survived.plus(other.survived),
        }
    }

    fn share(&mut self, there_before: bool, there_after: bool) -> &mut Share {
        match (there_before, there_after) {
            (false, _) => &mut self.born,
            (true, false) => &mut self.freed,
            (true, true) => &mut self.survived,
        }
    }
}

/// A group, and the fate of its blocks.
pub(crate) struct LivesOfGroup {
    pub(crate) head: RowHead,
    pub(crate) lives: Lives,
}

/// The fate of all blocks that are live at one of two instants, in total and by group.
pub(crate) fn of_groups(
    grouper: &Grouper<'_>,
    metric: Metric,
    (from, to): (Instant, Instant),
) -> (Lives, Vec<LivesOfGroup>) {
    #[derive(Default)]
    struct Sum {
        lives: Lives,
        inferred: bool,
        origins: IndexMap<CodeOrigin, u64, RandomState>,
    }
    let (mut groups, mut sums, mut total) = (Groups::new(grouper), Vec::<Sum>::new(), Lives::default());
    let is_there = |at: Instant, born: Instant, gone: Instant| born <= at && at < gone;
    let wanted = |born, gone| is_there(from, born, gone) || is_there(to, born, gone);
    Holder::visit(grouper.track, metric, wanted, |holder| {
        let there = [from, to].map(|at| is_there(at, holder.born, holder.gone));
        total.share(there[0], there[1]).add(holder.bytes);
        let (origin, inferred) = (grouper.origin(holder), grouper.is_inferred(holder));
        for &group in groups.of(holder) {
            if group >= sums.len() {
                sums.resize_with(group + 1, Sum::default);
            }
            let sum = &mut sums[group];
            sum.lives.share(there[0], there[1]).add(holder.bytes);
            sum.inferred |= inferred;
            let bytes = sum.origins.entry(origin).or_default();
            *bytes = bytes.wrapping_add(holder.bytes);
        }
    });
    let heads = groups.heads(|group| sums[group].origins.iter().map(|(&origin, &bytes)| (origin, bytes)));
    let row = |((_, head), sum): ((_, RowHead), &Sum)| LivesOfGroup {
        head: RowHead { inferred: head.inferred || sum.inferred, ..head },
        lives: sum.lives,
    };
    (total, heads.into_iter().zip(&sums).map(row).collect())
}

impl DiffReport {
    /// Compares two instants of one recording, with the fate of every block. `base` is the earlier one.
    ///
    /// # Errors
    /// If the instant of `new` comes first on a device.
    pub fn of_instants(
        recording: &Devices<'_>,
        (base, new): (&DiffInput, &DiffInput),
        options: &PeakOptions,
        top: Option<usize>,
    ) -> Result<Self> {
        let mut report = Self::of(base, new, top);
        for pair in &mut report.devices {
            if let Some(device) = recording.get(pair.new.device()) {
                *pair = DeviceDiff::of_instants(device, (&pair.base, &pair.new), options, top)?;
            }
        }
        Ok(report)
    }

    /// Whether both sides are instants of one recording.
    pub fn is_of_instants(&self) -> bool {
        self.devices.iter().any(|device| device.lives.is_some())
    }
}

impl DeviceDiff {
    fn of_instants(
        device: &Device<'_>,
        (base, new): (&DiffInputDevice, &DiffInputDevice),
        options: &PeakOptions,
        top: Option<usize>,
    ) -> Result<Self> {
        let (from, to) = (base.peak.instant, new.peak.instant);
        if from > to {
            let place =
                |instant: Instant| instant.checked_sub(1).map_or("the start".to_owned(), |it| format!("entry {it}"));
            let (from, to, id) = (place(from), place(to), device.id());
            return Err(Error::Request(format!(
                "expected the earlier instant first on device {id}, found {from}, then {to}; swap them"
            )));
        }
        let metric = new.peak.metric;
        let grouper = Grouper::new(device, device.deep_sites(), &options.filter, options.by);
        let grouper = grouper.inferring(device, options.inference, metric);
        let (lives, groups) = of_groups(&grouper, metric, (from, to));
        let rows = groups.into_iter().map(DiffRow::of_lives);
        let is_unchanged = |row: &DiffRow| row.lives.is_some_and(|it| it.born.blocks == 0 && it.freed.blocks == 0);
        let (same, mut rows): (Vec<DiffRow>, Vec<DiffRow>) = rows.partition(is_unchanged);
        rows.sort_rows_by(|a, b| {
            let moved = |row: &DiffRow| row.lives.map(|it| u128::from(it.born.bytes) + u128::from(it.freed.bytes));
            let rank = |row: &DiffRow| (Reverse(moved(row)), Reverse(row.delta_bytes));
            rank(a).cmp(&rank(b)).then_with(|| a.label.cmp(&b.label)).then_with(|| a.stack.cmp(&b.stack))
        });
        let counters = [base, new].map(|side| side.peak.at.get(metric));
        if !options.by.is_inclusive() {
            let sums = [lives.before(), lives.after()].map(|share| share.bytes as i64);
            rows.extend(contradiction([counters[0].wrapping_sub(sums[0]), counters[1].wrapping_sub(sums[1])]));
        }
        let bytes = same.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.new_bytes));
        let left_out = keep_top(&mut rows, top, options.by.is_inclusive());
        Ok(Self {
            base: base.clone(),
            new: new.clone(),
            delta_bytes: counters[1].wrapping_sub(counters[0]),
            rows,
            unchanged: Unchanged { rows: same.len(), bytes },
            left_out,
            lives: Some(lives),
        })
    }
}

/// The bytes by which counters differ from blocks, which happens only if a recording contradicts itself.
fn contradiction([base_bytes, new_bytes]: [i64; 2]) -> Option<DiffRow> {
    let label = CONTRADICTORY.to_owned();
    (base_bytes != 0 || new_bytes != 0).then(|| DiffRow {
        label,
        base_bytes,
        new_bytes,
        delta_bytes: new_bytes.wrapping_sub(base_bytes),
        ..DiffRow::default()
    })
}

impl DiffRow {
    fn of_lives(group: LivesOfGroup) -> Self {
        let LivesOfGroup { head: RowHead { label, inferred, stack }, lives } = group;
        let (before, after) = (lives.before(), lives.after());
        Self {
            label,
            base_label: None,
            fate: match (before.blocks, after.blocks) {
                (0, _) => Fate::New,
                (_, 0) => Fate::Vanished,
                _ => Fate::Changed,
            },
            base_bytes: before.bytes as i64,
            new_bytes: after.bytes as i64,
            delta_bytes: (after.bytes as i64).wrapping_sub(before.bytes as i64),
            base_blocks: before.blocks,
            new_blocks: after.blocks,
            inferred,
            stack,
            lives: Some(lives),
        }
    }
}
