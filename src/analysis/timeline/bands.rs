//! Bands: the memory in each column, by group.

use super::{Band, Column, ColumnOf, DeviceTimeline, INACTIVE, LEAKS};
use crate::analysis::leaks::LeakRow;
use crate::facts::grouping::attribution::OTHER;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder};
use crate::facts::training::{Categories, Category};
use crate::replay::{Counters, Instant, Metric};
use crate::sorting::SortRows;
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::HashMap;

const MOST: usize = 40;

/// Categories from the bottom of the stack up: first memory that stays, above it memory that changes.
const FROM_THE_BOTTOM: [Category; Category::ALL.len()] = [
    Category::Parameter,
    Category::Buffer,
    Category::Gradient,
    Category::OptimizerState,
    Category::ModelState,
    Category::BeforeRecording,
    Category::Communication,
    Category::Workspace,
    Category::KvCache,
    Category::Input,
    Category::Activation,
    Category::Temporary,
    Category::Unknown,
];

struct Stay {
    pile: usize,
    bytes: u64,
    from: usize,
    to: usize,
}

#[derive(Default)]
pub(super) struct Leaks {
    /// The requested bytes per step of each row.
    rates: Vec<i64>,
    /// The row of each block, by index into the allocations of the history.
    rows: HashMap<usize, usize, RandomState>,
}

impl Leaks {
    pub fn add(&mut self, row: &LeakRow) {
        self.rows.extend(row.leaked.iter().map(|&block| (block, self.rates.len())));
        self.rates.push(i64::try_from(row.rate.bytes).unwrap_or(i64::MAX));
    }
}

struct Pile {
    group: usize,
    /// `None` if bands have no category.
    category: Option<Category>,
    /// The row of the leaks that it is part of, if it leaks.
    row: Option<usize>,
    /// Its bytes per step; 0 if it does not leak, or if another pile of the same row has them.
    leak: i64,
    inferred: bool,
    /// Bytes times columns.
    area: u128,
    /// Bytes and blocks at the selected instant.
    bytes: u64,
    blocks: u64,
}

pub(super) fn bands(
    grouper: &Grouper<'_>,
    categories: Option<(&Categories, &Leaks)>,
    columns: &[Instant],
    (metric, instant): (Metric, Instant),
    top: usize,
) -> Vec<Band> {
    let mut groups = Groups::new(grouper);
    let (piles, stays) = piles(&mut groups, categories, columns, (metric, instant));
    let heads = groups.heads(|_| std::iter::empty());
    let named = |pile: &Pile| heads.get(pile.group);
    let band_of = chosen(&piles, top, |pile| named(pile).is_some_and(|(key, _)| key.stands_apart()));
    let mut bands: Vec<Band> = Vec::new();
    let mut place: HashMap<Slot, usize, RandomState> = HashMap::default();
    let mut band_of_pile = Vec::with_capacity(piles.len());
    for (pile, &slot) in piles.iter().zip(&band_of) {
        let index = *place.entry(slot).or_insert(bands.len());
        if index == bands.len() {
            let head = named(pile).map(|(_, head)| head).filter(|_| matches!(slot, Slot::Own(_)));
            bands.push(Band {
                label: head.map_or(OTHER, |head| &head.label).to_owned(),
                category: category(grouper.by, pile, head.map(|head| head.label.as_str())),
                groups: 0,
                inferred: head.is_some_and(|head| head.inferred),
                has_inferred: false,
                bytes: Vec::new(),
                bytes_there: 0,
                blocks_there: 0,
                leak: None,
            });
        }
        let band = &mut bands[index];
        band.leak = pile.row.map(|_| band.leak.unwrap_or(0).saturating_add(pile.leak));
        band.groups += 1;
        band.has_inferred |= pile.inferred || named(pile).is_some_and(|(_, head)| head.inferred);
        band.bytes_there = band.bytes_there.wrapping_add(pile.bytes);
        band.blocks_there += pile.blocks;
        band_of_pile.push(index);
    }
    fill(&mut bands, &stays, &band_of_pile, columns.len());
    bands.retain(|band| band.bytes_there > 0 || band.bytes.iter().any(|&bytes| bytes > 0));
    bands.sort_by_cached_key(|band| Reverse(rank(band)));
    bands
}

fn piles(
    groups: &mut Groups<'_>,
    categories: Option<(&Categories, &Leaks)>,
    columns: &[Instant],
    (metric, instant): (Metric, Instant),
) -> (Vec<Pile>, Vec<Stay>) {
    let table = ColumnOf::new(columns.iter().copied());
    let column_of = |instant| table.column(instant, columns.len());
    let is_there = |born, gone| born <= instant && instant < gone;
    let seen = |born, gone| column_of(born) < column_of(gone) || is_there(born, gone);
    let mut piles: Vec<Pile> = Vec::new();
    let mut stays = Vec::new();
    let mut known: HashMap<(usize, Option<Category>, Option<usize>), usize, RandomState> = HashMap::default();
    Holder::visit(groups.grouper.track, metric, seen, |holder| {
        let Some(&group) = groups.of(holder).first() else { return };
        let category = categories.map(|(categories, _)| categories.get(holder.index).category);
        let row = categories.and_then(|(_, leaks)| leaks.rows.get(&holder.index).copied());
        let index = *known.entry((group, category, row)).or_insert(piles.len());
        if index == piles.len() {
            piles.push(Pile { group, category, row, leak: 0, inferred: false, area: 0, bytes: 0, blocks: 0 });
        }
        let pile = &mut piles[index];
        pile.inferred |= groups.grouper.is_inferred(holder);
        let (from, to) = (column_of(holder.born), column_of(holder.gone));
        if from < to {
            pile.area = pile.area.saturating_add(u128::from(holder.bytes) * (to - from) as u128);
            stays.push(Stay { pile: index, bytes: holder.bytes, from, to });
        }
        if is_there(holder.born, holder.gone) {
            pile.bytes = pile.bytes.wrapping_add(holder.bytes);
            pile.blocks += 1;
        }
    });
    for (row, &rate) in categories.iter().flat_map(|(_, leaks)| leaks.rates.iter().enumerate()) {
        let largest = piles.iter_mut().filter(|pile| pile.row == Some(row)).max_by_key(|pile| pile.area);
        if let Some(pile) = largest {
            pile.leak = rate;
        }
    }
    (piles, stays)
}

/// The band of a pile: its own, or the rest of its category that leaks, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Own(usize),
    Rest(Option<Category>, bool),
}

/// The `top` piles with the largest areas have their own bands, and more piles do if the rest of a category would be
/// the largest band, of all or at the selected instant.
fn chosen(piles: &[Pile], top: usize, stands_apart: impl Fn(&Pile) -> bool) -> Vec<Slot> {
    let mut by_area: Vec<usize> = (0..piles.len()).collect();
    by_area.sort_rows_by_key(|&index| (Reverse(piles[index].area), Reverse(piles[index].bytes), index));
    let mut slots: Vec<Slot> = piles.iter().map(|pile| Slot::Rest(pile.category, pile.row.is_some())).collect();
    let (mut own, mut largest, mut most) = (0, 0, 0);
    for &index in &by_area {
        // Memory that cannot be attributed also has a band.
        let is_apart = piles[index].category.is_none() && stands_apart(&piles[index]);
        if own < top.min(MOST) || is_apart {
            slots[index] = Slot::Own(index);
            largest = largest.max(piles[index].area);
            most = most.max(piles[index].bytes);
            own += usize::from(!is_apart);
        }
    }
    let mut rests: HashMap<Slot, (usize, u128, u64), RandomState> = HashMap::default();
    for (slot, pile) in slots.iter().zip(piles).filter(|(slot, _)| matches!(slot, Slot::Rest(..))) {
        let rest = rests.entry(*slot).or_default();
        *rest = (rest.0 + 1, rest.1 + pile.area, rest.2.saturating_add(pile.bytes));
    }
    for &index in &by_area {
        let Some(rest) = rests.get_mut(&slots[index]) else { continue };
        let is_alone = rest.0 == 1;
        if is_alone || ((rest.1 > largest || rest.2 > most) && own < MOST) {
            *rest = (rest.0 - 1, rest.1 - piles[index].area, rest.2.saturating_sub(piles[index].bytes));
            slots[index] = Slot::Own(index);
            own += 1;
        }
    }
    slots
}

/// The category of a band: that of its pile, or its name.
fn category(by: GroupBy, pile: &Pile, label: Option<&str>) -> Option<Category> {
    let named = label.filter(|_| by == GroupBy::Category);
    pile.category.or_else(|| Category::ALL.into_iter().find(|category| Some(category.name()) == named))
}

/// Adds up every band's bytes in every column: each block is added where it is allocated and removed where it is freed.
fn fill(bands: &mut [Band], stays: &[Stay], band_of_pile: &[usize], columns: usize) {
    let mut changes = vec![0u64; bands.len() * (columns + 1)];
    for stay in stays {
        let start = band_of_pile[stay.pile] * (columns + 1);
        let enters = &mut changes[start + stay.from];
        *enters = enters.wrapping_add(stay.bytes);
        let leaves = &mut changes[start + stay.to];
        *leaves = leaves.wrapping_sub(stay.bytes);
    }
    for (band, changes) in bands.iter_mut().zip(changes.chunks_exact(columns + 1)) {
        let running = changes[..columns].iter().scan(0u64, |sum, &change| {
            *sum = sum.wrapping_add(change);
            Some(*sum)
        });
        band.bytes = running.collect();
    }
}

/// The order of a band in the stack, the lowest first: by category, and within it memory that stays below memory that
/// changes.
fn rank(band: &Band) -> (usize, bool, u64, String) {
    let place = |category| FROM_THE_BOTTOM.iter().position(|&other| other == category);
    let highest = band.bytes.iter().copied().max().unwrap_or(0).max(1);
    let area: u128 = band.bytes.iter().map(|&bytes| u128::from(bytes)).sum();
    // Thousandths of the time that its highest point would last.
    let stays = area * 1000 / (u128::from(highest) * band.bytes.len().max(1) as u128);
    (band.category.and_then(place).unwrap_or(0), band.label == OTHER, 1000 - stays.min(1000) as u64, band.label.clone())
}

pub(super) fn inactive(columns: &[Column], there: &Counters) -> Band {
    let inactive = |counters: &Counters| u64::try_from(counters.reserved.saturating_sub(counters.active)).unwrap_or(0);
    Band {
        label: INACTIVE.to_owned(),
        category: None,
        groups: 0,
        inferred: false,
        has_inferred: false,
        bytes: columns.iter().map(|column| inactive(&column.counters)).collect(),
        bytes_there: inactive(there),
        blocks_there: 0,
        leak: None,
    }
}

impl DeviceTimeline {
    /// The bands of each category as one band, and on top of it another one of what leaks: [`LEAKS`].
    pub fn categories(&self) -> Vec<Band> {
        let mut merged: Vec<Band> = Vec::new();
        for band in &self.bands {
            let label = match band.category {
                Some(_) if band.leak.is_some() => LEAKS,
                Some(category) => category.name(),
                None => &band.label,
            };
            let is_alike = |known: &Band| known.category == band.category;
            if let Some(known) = merged.iter_mut().find(|known| is_alike(known) && known.label == label) {
                known.add(band);
            } else {
                // Bands of a category are next to each other.
                let place = merged.iter().position(|known| label == LEAKS && is_alike(known)).unwrap_or(merged.len());
                merged.insert(place, Band { label: label.to_owned(), inferred: false, ..band.clone() });
            }
        }
        merged
    }
}

impl Band {
    fn add(&mut self, other: &Self) {
        for (sum, bytes) in self.bytes.iter_mut().zip(&other.bytes) {
            *sum = sum.wrapping_add(*bytes);
        }
        self.groups += other.groups;
        self.bytes_there = self.bytes_there.wrapping_add(other.bytes_there);
        self.blocks_there += other.blocks_there;
        self.leak = self.leak.zip(other.leak).map(|(a, b)| a.saturating_add(b));
    }
}
