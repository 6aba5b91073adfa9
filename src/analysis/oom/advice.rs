//! Changes that would have helped: only what the recording shows, each with its figure.

use super::cause::{Cause, Facts};
use super::request::{Request, Serving};
use super::settings::{Replayed, Simulate};
use crate::allocator::SizeRules;
use crate::facts::code::sites::Sites;
use crate::facts::grouping::private_pools::{PoolKind, PrivatePools};
use crate::facts::segments::expandable::conflicts;
use crate::facts::segments::figures::Figures;
use crate::facts::segments::layout::Layout;
use crate::model::{Action, AllocatorSettings, BlockState, DEFAULT_POOL, PoolId, SegmentType, StackId};
use crate::replay::Track;
use indexmap::IndexMap;
use std::cmp::Reverse;
use std::collections::HashSet;

/// Maximum number of sites that are tried together.
const SITES_TRIED: usize = 5;

/// How a request would have been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// From a free block of this many bytes.
    Block(u64),
    /// By the driver, which would have had this many bytes.
    Driver(u64),
}

/// Something that would have helped, or that would not although it is often recommended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Avoiding blocks that are temporary: those of sites whose earlier blocks were mostly freed.
    FreeSites {
        /// The sites, the one with the most bytes first, each with its bytes and blocks.
        sites: Vec<(String, u64, u64)>,
        /// Whether these are only some of their live blocks: blocks with other stacks of the sites are not known to be freed early.
        some_stacks: bool,
        /// How the request would then have been served.
        fit: Fit,
    },
    /// How the same requests fare with `expandable_segments:True` from the start: whether it would have helped.
    ExpandableSegments(Replayed),
    /// Why `expandable_segments:True`, which would have helped, may fail in this program.
    ExpandableConflict(&'static str),
    /// Other settings that would have served it, if `expandable_segments:True` would not, or does not apply.
    Settings {
        /// As `PYTORCH_CUDA_ALLOC_CONF` takes them; empty for the defaults.
        alloc_conf: String,
        /// How the same requests fare with them.
        replayed: Replayed,
    },
    /// `expandable_segments` is on, although PyTorch's message recommends setting it.
    AlreadyExpandable,
    /// None of the other usual settings would have served it.
    NoSettings {
        /// Number of simulated settings.
        tried: usize,
    },
    /// Inactive bytes in whole pages, which expandable segments could have used elsewhere, if the history is not known well
    /// enough for a replay. With that setting from the start, the blocks would be elsewhere.
    WholePages {
        /// Inactive bytes in whole pages.
        whole_pages: u64,
        /// Bytes of a page of the large pool.
        page: u64,
        /// These bytes and the free memory of the device.
        together: u64,
        /// Whole pages that the request takes.
        needed: u64,
    },
    /// Another stream or a private pool has enough memory, which the request could not use.
    OtherPool {
        /// Small or large pool.
        segment_type: SegmentType,
        stream: Option<u64>,
        pool: Option<PoolId>,
        /// Its use, if it is a private pool.
        kind: Option<PoolKind>,
        /// Its inactive bytes.
        inactive: u64,
        /// Its largest free block.
        largest: u64,
    },
    /// Blocks that were freed already, but that another stream may still use.
    PendingFree { bytes: u64 },
    /// `roundup_power2_divisions` made blocks larger by more than what was missing.
    Rounding {
        /// Rounding loss of all blocks.
        bytes: u64,
        /// The missing bytes.
        missing: u64,
    },
    /// Much of the allocated memory is from before the recording, and its owner is unknown.
    RecordEarlier { bytes: u64 },
}

impl Advice {
    /// Whether it would have helped, or explains more: the rest was tried, or is often recommended, and changes nothing.
    pub fn helps(&self) -> bool {
        match self {
            Self::ExpandableSegments(replayed) => replayed.fails_at.is_none(),
            Self::AlreadyExpandable | Self::NoSettings { .. } => false,
            _ => true,
        }
    }

    /// Whether these are settings that would have served the request.
    pub fn is_of_settings(&self) -> bool {
        matches!(self, Self::ExpandableSegments(_) | Self::Settings { .. }) && self.helps()
    }
}

/// The basis of advice on one failed request.
pub(super) struct Adviser<'a> {
    pub facts: &'a Facts<'a>,
    pub serving: &'a Serving,
    pub layout: &'a Layout,
    pub cause: Cause,
    /// The history to simulate, if this is possible.
    pub simulate: Option<&'a Simulate<'a>>,
}

impl Adviser<'_> {
    /// Advice, the most relevant first.
    pub fn advise(&self, turnover: &Turnover<'_>, sites: &Sites<'_>) -> Vec<Advice> {
        let Self { facts, serving, layout, cause, .. } = *self;
        let mut advice = Vec::new();
        // If the failure is not understood, it is unknown what would have prevented it. With a limit, the free memory of the
        // device does not show how much the process could have used.
        if !matches!(cause, Cause::Unknown | Cause::Limit) {
            advice.extend(other_pool(facts, serving, layout));
            advice.extend(free_sites(facts, layout, turnover, sites));
            advice.extend(self.settings());
            advice.extend(smaller_causes(facts));
        }
        advice.extend(record_earlier(facts, layout));
        advice
    }

    /// Whether other allocator settings would have helped: `expandable_segments` if it is off, otherwise the best of the
    /// usual settings. If they are unlikely to help, they are mentioned only if they would have.
    fn settings(&self) -> Vec<Advice> {
        let expected = self.cause == Cause::Fragmentation;
        if !(expected || self.cause == Cause::Capacity) {
            return Vec::new();
        }
        let settings = &self.facts.track.snapshot.settings;
        let mut advice = self.simulated();
        let is_on = self.facts.request.expandable || settings.expandable_segments;
        if advice.is_empty() && expected && !is_on {
            advice.push(whole_pages(self.facts, self.layout));
        }
        if settings.expandable_segments {
            advice.insert(0, Advice::AlreadyExpandable);
        }
        advice
    }

    /// What simulations of the history show about other settings.
    fn simulated(&self) -> Vec<Advice> {
        let Facts { track: Track { snapshot, history }, request, device_free, figures, entry, .. } = *self.facts;
        let expected = self.cause == Cause::Fragmentation;
        // Only a history that follows the modeled rules can be simulated.
        let settings = &snapshot.settings;
        let is_limited = settings.memory_fraction.is_some_and(|fraction| fraction < 1.0);
        let contradicts = history.anomalies.total() > 0 || history.completeness.truncated;
        let Some(simulate) = self.simulate.filter(|_| !is_limited && !contradicts) else { return Vec::new() };
        let capacity = figures.reserved.saturating_add(device_free);
        // Segments from before the recording are fixed, so a failure does not show what the settings would do from the start.
        let is_told = history.completeness.is_complete() && expected;
        let mut advice = Vec::new();
        if !request.expandable && !settings.expandable_segments && settings.max_split_size.is_none() {
            let expandable = AllocatorSettings { expandable_segments: true, ..settings.clone() };
            match simulate.replay(&expandable, entry, capacity) {
                Some(replayed) if replayed.fails_at.is_none() && simulate.may_trust(entry, capacity) => {
                    let conflicts =
                        conflicts(self.facts.track, self.facts.sites).into_iter().map(Advice::ExpandableConflict);
                    return [Advice::ExpandableSegments(replayed)].into_iter().chain(conflicts).collect();
                }
                Some(replayed) if replayed.fails_at.is_some() && is_told => {
                    advice.push(Advice::ExpandableSegments(replayed));
                }
                _ => {}
            }
        }
        match simulate.best(entry, capacity, !advice.is_empty()) {
            (_, Some((alloc_conf, replayed))) => advice.push(Advice::Settings { alloc_conf, replayed }),
            (tried, None) if tried > 0 && is_told => advice.push(Advice::NoSettings { tried }),
            _ => {}
        }
        advice
    }
}

/// How the request would be served in a layout, if at all.
fn fit(facts: &Facts<'_>, layout: &Layout) -> Option<Fit> {
    let Facts { track, request, device_free, .. } = facts;
    let usable = layout.segments.iter().filter(|segment| request.may_use(segment));
    let free = usable.flat_map(|segment| layout.pieces_of(segment)).filter(|piece| piece.state == BlockState::Inactive);
    let block = free.map(|piece| piece.size).filter(|&size| request.takes(track.snapshot, size)).min();
    if let Some(block) = block {
        return Some(Fit::Block(block));
    }
    // Private pools keep their segments.
    let shared = layout.segments.iter().filter(|segment| segment.pool.is_none_or(|pool| pool == DEFAULT_POOL));
    let released: u64 = shared.map(|segment| Figures::of_segment(track.history, layout, segment).releasable).sum();
    let supply = device_free.saturating_add(released);
    (supply >= request.driver_bytes).then_some(Fit::Driver(supply))
}

/// The largest temporary site without which the request would have been served; if no single one is enough, the
/// smallest number of the largest sites together.
fn free_sites(facts: &Facts<'_>, layout: &Layout, turnover: &Turnover<'_>, sites: &Sites<'_>) -> Option<Advice> {
    let track = facts.track;
    let mut transient: IndexMap<String, (u64, Vec<usize>)> = IndexMap::new();
    let mut lasting: HashSet<StackId> = HashSet::new();
    for index in layout.pieces.iter().filter_map(|piece| piece.allocation) {
        let stack = track.stack_of(index);
        // Nobody could act on blocks without a stack.
        if stack != StackId::EMPTY && turnover.is_transient(stack) {
            let (bytes, blocks) = transient.entry(sites.site(stack)).or_default();
            *bytes += track.history.allocations[index].size;
            blocks.push(index);
        } else {
            lasting.insert(stack);
        }
    }
    let lasting: HashSet<String> = lasting.into_iter().map(|stack| sites.site(stack)).collect();
    transient.sort_by(|label, (bytes, _), other, (more, _)| more.cmp(bytes).then_with(|| label.cmp(other)));
    let tried: Vec<(String, (u64, Vec<usize>))> = transient.into_iter().take(SITES_TRIED).collect();
    let each = tried.chunks(1);
    let together = (2..=tried.len()).map(|count| &tried[..count]);
    each.chain(together).find_map(|gone| {
        let blocks: HashSet<usize> = gone.iter().flat_map(|(_, (_, blocks))| blocks).copied().collect();
        let fit = fit(facts, &layout.without(|index| blocks.contains(&index)))?;
        let named = gone.iter().map(|(label, (bytes, blocks))| (label.clone(), *bytes, blocks.len() as u64));
        let some_stacks = gone.iter().any(|(label, _)| lasting.contains(label));
        Some(Advice::FreeSites { sites: named.collect(), some_stacks, fit })
    })
}

/// Inactive bytes of the shared pools in whole pages, with the current layout of blocks.
fn whole_pages(facts: &Facts<'_>, layout: &Layout) -> Advice {
    let rules = SizeRules::device(&facts.track.snapshot.settings);
    let shared = layout.segments.iter().filter(|segment| segment.pool.is_none_or(|pool| pool == DEFAULT_POOL));
    let whole_pages = shared.map(|segment| {
        let page = rules.page_size(segment.segment_type);
        let free = layout.pieces_of(segment).iter().filter(|piece| piece.state == BlockState::Inactive);
        let pages = free.map(|piece| {
            let (from, to) = (piece.addr - segment.addr, piece.addr - segment.addr + piece.size);
            (to / page).saturating_sub(from.div_ceil(page)) * page
        });
        pages.sum::<u64>()
    });
    let whole_pages = whole_pages.sum();
    let needed = rules.driver_request(facts.request.bytes, true);
    let together = facts.device_free.saturating_add(whole_pages);
    let page = rules.page_size(SegmentType::Large);
    Advice::WholePages { whole_pages, page, together, needed }
}

/// The other stream or private pool with the most memory, if it has as much as the driver lacked.
fn other_pool(facts: &Facts<'_>, serving: &Serving, layout: &Layout) -> Option<Advice> {
    let Request { stream, pool, driver_bytes, .. } = *facts.request;
    let pool = pool.unwrap_or_default();
    let missing = driver_bytes.saturating_sub(facts.device_free).saturating_sub(serving.figures.releasable);
    let mut others: IndexMap<(bool, Option<u64>, Option<PoolId>), Figures> = IndexMap::new();
    for segment in &layout.segments {
        let elsewhere =
            segment.stream.is_some_and(|other| other != stream) || segment.pool.is_some_and(|it| it != pool);
        if elsewhere {
            let key = (segment.segment_type == SegmentType::Large, segment.stream, segment.pool);
            let figures = others.entry(key).or_default();
            *figures = figures.plus(&Figures::of_segment(facts.track.history, layout, segment));
        }
    }
    let (&(large, stream, pool), figures) =
        others.iter().min_by_key(|&(key, other)| (Reverse(other.inactive), *key))?;
    let private = PrivatePools::of(facts.track, facts.sites);
    (figures.inactive >= missing).then(|| Advice::OtherPool {
        segment_type: if large { SegmentType::Large } else { SegmentType::Small },
        stream,
        pool,
        kind: pool.and_then(|id| private.get(id)).map(|pool| pool.kind),
        inactive: figures.inactive,
        largest: figures.largest_free_block,
    })
}

/// Pending frees and rounding, if they exceed the missing bytes.
fn smaller_causes(facts: &Facts<'_>) -> Vec<Advice> {
    let Facts { track, request, figures, .. } = facts;
    let missing = request.driver_bytes.saturating_sub(facts.together());
    let mut advice = Vec::new();
    if figures.pending_free > 0 && figures.pending_free >= missing {
        advice.push(Advice::PendingFree { bytes: figures.pending_free });
    }
    let rounds = track.snapshot.settings.roundup_power2_divisions.iter().any(|&divisions| divisions > 1);
    let lost = u64::try_from(figures.rounding()).unwrap_or(0);
    if rounds && lost > 0 && lost >= missing {
        advice.push(Advice::Rounding { bytes: lost, missing });
    }
    advice
}

/// Blocks from before the recording are reported from 1/N of the bytes in use on: fewer would not have changed the answer.
const NAMELESS_PART: u64 = 10;

/// Blocks from before the recording without a stack, if they are at least a tenth of the allocated memory.
fn record_earlier(facts: &Facts<'_>, layout: &Layout) -> Option<Advice> {
    let &Facts { track, figures, .. } = facts;
    let history = track.history;
    let nameless = layout
        .pieces
        .iter()
        .filter_map(|piece| piece.allocation)
        .filter(|&index| history.allocations[index].is_baseline() && track.stack_of(index) == StackId::EMPTY);
    let bytes: u64 = nameless.map(|index| history.allocations[index].size).sum();
    (bytes > 0 && bytes >= figures.active() / NAMELESS_PART).then_some(Advice::RecordEarlier { bytes })
}

/// The history up to an entry: how many blocks each stack allocated and freed.
pub(super) struct Turnover<'a> {
    track: Track<'a>,
    sites: &'a Sites<'a>,
    next: u32,
    /// By stack, like the fields below.
    made: Vec<u64>,
    freed: Vec<u64>,
    has_python: Vec<Option<bool>>,
    /// The last request with Python frames, by entry.
    pub last_with_python: Option<u32>,
}

impl<'a> Turnover<'a> {
    pub fn new(track: Track<'a>, sites: &'a Sites<'a>) -> Self {
        let stacks = track.snapshot.stacks.len();
        Self {
            track,
            sites,
            next: 0,
            made: vec![0; stacks],
            freed: vec![0; stacks],
            has_python: vec![None; stacks],
            last_with_python: None,
        }
    }

    /// Counts the entries before this one that are not counted yet.
    pub fn advance(&mut self, entry: u32) {
        for now in self.next..entry {
            let (Some(action), Some(&link)) = (self.track.action(now), self.track.history.links.get(now as usize))
            else {
                break;
            };
            let Some(allocation) = self.track.allocation(link as usize) else { continue };
            let stack = self.track.stack_of(link as usize);
            match action {
                Action::Alloc => {
                    self.made[stack.index()] += 1;
                    let has_python = &mut self.has_python[stack.index()];
                    if *has_python.get_or_insert_with(|| self.sites.has_python(stack)) {
                        self.last_with_python = Some(now);
                    }
                }
                // Without a free_requested entry, both happen at free_completed.
                Action::FreeRequested | Action::FreeCompleted if allocation.freed == now + 1 => {
                    self.freed[stack.index()] += 1;
                }
                _ => {}
            }
        }
        self.next = self.next.max(entry);
    }

    /// Whether at least half of the blocks that a stack allocated were freed again.
    fn is_transient(&self, stack: StackId) -> bool {
        let (made, freed) = (self.made[stack.index()], self.freed[stack.index()]);
        freed > 0 && freed >= made.div_ceil(2)
    }
}
