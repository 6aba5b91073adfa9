//! The state of an allocator, to detect that the same requests repeat with the same result.

use super::addresses::Addresses;
use super::blocks::{BlockId, NONE, State};
use super::model::{Allocator, Stats};

/// Everything that determines how an allocator serves future requests. Two allocators with equal states serve the same
/// requests with the same blocks.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct AllocatorState {
    blocks: Vec<StateBlock>,
    addresses: Addresses,
    released: Vec<bool>,
    /// Rows of the active blocks, in address order.
    in_use: Vec<u32>,
    stats: Stats,
}

/// A block, without its position in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateBlock {
    addr: u64,
    size: u64,
    requested: u64,
    state: State,
    pool: u32,
    /// First address of the range of an expandable segment.
    range: Option<u64>,
    is_first: bool,
    is_last: bool,
    /// Searches since it became free, if that matters.
    age: u32,
}

impl PartialEq for AllocatorState {
    /// Whether both serve future requests in the same way; counters do not matter for that.
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks && self.addresses == other.addresses && self.released == other.released
    }
}

impl AllocatorState {
    /// Rows of the active blocks, in address order: [`BlockId::row`].
    pub fn in_use(&self) -> &[u32] {
        &self.in_use
    }

    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The counters at that time.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl BlockId {
    /// The row of the block in its allocator's table. Other blocks may use the row later.
    #[doc(hidden)]
    pub fn row(self) -> u32 {
        self.index
    }
}

impl Allocator {
    #[doc(hidden)]
    pub fn state(&self) -> AllocatorState {
        let rows = (0u32..).zip(&self.blocks).filter(|(_, block)| block.state != State::Gone);
        let mut rows: Vec<u32> = rows.map(|(row, _)| row).collect();
        rows.sort_unstable_by_key(|&row| self.blocks[row as usize].addr);
        let is_in_use = |row: &u32| matches!(self.blocks[*row as usize].state, State::Allocated | State::Pending);
        AllocatorState {
            in_use: rows.iter().copied().filter(is_in_use).collect(),
            blocks: rows.into_iter().map(|row| self.state_block(row)).collect(),
            addresses: self.addresses.clone(),
            released: self.pools.iter().map(|pool| pool.is_released).collect(),
            stats: self.stats,
        }
    }

    fn state_block(&self, row: u32) -> StateBlock {
        let block = &self.blocks[row as usize];
        let is_free = block.state == State::Free;
        let ages = is_free && self.limits.collected.is_some();
        let counts_in = self.pools[block.pool as usize].counts_in;
        let searches = self.pools[counts_in as usize].searches;
        StateBlock {
            addr: block.addr,
            size: block.size,
            requested: if is_free || block.state == State::Unmapped { 0 } else { block.requested },
            state: block.state,
            pool: block.pool,
            range: self.ranges.get(block.range as usize).map(|range| range.addr),
            is_first: block.previous == NONE,
            is_last: block.next == NONE,
            age: if ages { searches.wrapping_sub(block.free_since) } else { 0 },
        }
    }

    /// Adds what was counted since `since`, this many times more.
    #[doc(hidden)]
    pub fn count_again(&mut self, since: &Stats, times: u64) {
        let stats = &mut self.stats;
        stats.retries += (stats.retries - since.retries) * times;
        stats.device_allocs += (stats.device_allocs - since.device_allocs) * times;
        stats.device_frees += (stats.device_frees - since.device_frees) * times;
    }
}
