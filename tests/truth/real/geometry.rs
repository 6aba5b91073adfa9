//! A second way from a snapshot to its counters: from the positions of blocks, without free lists.
//!
//! The state at the start is the final one with every entry undone. The size of a block follows from its neighbors: if the
//! allocator takes a block of the large pool from free memory, it leaves more than 1 MiB or nothing, so a narrower gap up to
//! the next active block belongs to the block; everywhere else, a block is as large as its rounded request. And free memory
//! is never split in two pieces, so an allocated address is where the block before it ends.

use super::plain::Object;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// One number for each counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Four {
    pub allocated: i64,
    pub active: i64,
    pub requested: i64,
    pub reserved: i64,
}

/// What a device's trace amounts to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    /// Before the first entry.
    pub start: Four,
    /// As the segments of the file have it.
    pub end: Four,
    pub maxima: Four,
    /// Blocks from before the recording that may be up to 1 MiB larger than counted: nothing shows where they end.
    pub unsettled: i64,
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
struct Block {
    requested: u64,
    /// As the file states it, or as it turned out.
    size: Option<u64>,
    pending: bool,
}

/// A device's memory at one time.
#[derive(Clone, Debug, Default)]
struct Memory {
    blocks: BTreeMap<u64, Block>,
    /// Segments that are created and released as a whole, with their sizes.
    segments: BTreeMap<u64, u64>,
    /// All of them, and what is mapped into expandable ones.
    reserved: i64,
    has_expandable: bool,
    max_split: Option<u64>,
}

/// The segments of a file, which may be their list alone.
pub fn segments(snapshot: &Object) -> Vec<Object> {
    snapshot.get("segments").unwrap_or_else(|| snapshot.clone()).items()
}

/// The trace of a device.
pub fn trace(snapshot: &Object, device: i32) -> Vec<Object> {
    let traces = snapshot.get("device_traces").map(|traces| traces.items()).unwrap_or_default();
    usize::try_from(device).ok().and_then(|device| traces.get(device)).map(Object::items).unwrap_or_default()
}

/// Replays a device's trace, or says what contradicts what.
pub fn play(snapshot: &Object, device: i32) -> Result<Played, String> {
    let trace = trace(snapshot, device);
    let mut memory = Memory::at_the_end(snapshot, device);
    let end = memory.counters();
    let at = |index: usize| move |reason: String| format!("entry {index}: {reason}");
    for (index, entry) in trace.iter().enumerate().rev() {
        memory.undo(entry).map_err(at(index))?;
    }

    let mut first = memory.clone();
    for (index, entry) in trace.iter().enumerate() {
        if let Some((addr, size)) = memory.redo(entry).map_err(at(index))? {
            first.blocks.entry(addr).and_modify(|block| block.size = Some(size));
        }
    }
    let unknown: Vec<u64> =
        first.blocks.iter().filter(|(_, block)| block.size.is_none()).map(|(&addr, _)| addr).collect();
    let mut unsettled = 0;
    for addr in unknown {
        let (size, is_settled) = first.size_of(addr, first.blocks[&addr].requested)?;
        first.blocks.entry(addr).and_modify(|block| block.size = Some(size));
        unsettled += i64::from(!is_settled);
    }

    let mut memory = first;
    let start = memory.counters();
    let (mut now, mut maxima) = (start, start);
    for (index, entry) in trace.iter().enumerate() {
        let before = memory.around(entry);
        memory.redo(entry)?;
        let after = memory.around(entry);
        now = now.plus(after).less(before);
        maxima = maxima.highest(now);
        if &*entry.text("action") == "snapshot" && unsettled == 0 && entry.unsigned("size") as i64 != now.active {
            return Err(format!("entry {index}: {} bytes are active, the snapshot then had others", now.active));
        }
    }
    if now != end {
        return Err(format!("the entries end with {now:?}, the segments with {end:?}"));
    }
    Ok(Played { start, end, maxima, unsettled })
}

impl Memory {
    /// The memory of the segments.
    fn at_the_end(snapshot: &Object, device: i32) -> Self {
        let settings = snapshot.get("allocator_settings");
        let setting = |key: &str| settings.as_ref().and_then(|settings| settings.int(key));
        if let Some(divisions) = settings.as_ref().and_then(|settings| settings.get("roundup_power2_divisions")) {
            let Object::Dict(pairs) = divisions else { panic!("{divisions:?}") };
            let is_zero = pairs.borrow().iter().all(|(_, divisions)| matches!(divisions, Object::Int(0)));
            assert!(is_zero, "rounding to divisions of powers of two is not played here");
        }
        let mut memory = Self {
            has_expandable: settings.as_ref().is_some_and(|settings| settings.is_true("expandable_segments")),
            max_split: setting("max_split_size").and_then(|size| u64::try_from(size).ok()),
            ..Self::default()
        };
        for segment in segments(snapshot).iter().filter(|segment| segment.int("device") == Some(device.into())) {
            let (address, size) = (segment.unsigned("address"), segment.unsigned("total_size"));
            memory.reserved += size as i64;
            if segment.is_true("is_expandable") {
                memory.has_expandable = true;
            } else {
                memory.segments.insert(address, size);
            }
            let mut next = address;
            for block in segment.get("blocks").expect("blocks").items() {
                let (addr, size) = (next, block.unsigned("size"));
                assert!(block.int("address").is_none_or(|address| address == i128::from(addr)), "blocks tile segments");
                next += size;
                let state = block.text("state");
                if &*state != "inactive" {
                    let requested = block.unsigned("requested_size");
                    let pending = &*state != "active_allocated";
                    memory.blocks.insert(addr, Block { requested, size: Some(size), pending });
                }
            }
        }
        memory
    }

    fn counters(&self) -> Four {
        let reserved = Four { reserved: self.reserved, ..Four::default() };
        self.blocks.values().fold(reserved, |sum, block| sum.plus(block.counters()))
    }

    /// What an entry's address contains, and what is reserved.
    fn around(&self, entry: &Object) -> Four {
        let addr = entry.int("addr").and_then(|addr| u64::try_from(addr).ok());
        let block = addr.and_then(|addr| self.blocks.get(&addr)).map(Block::counters).unwrap_or_default();
        block.plus(Four { reserved: self.reserved, ..Four::default() })
    }

    /// Goes back to before an entry.
    fn undo(&mut self, entry: &Object) -> Result<(), String> {
        let size = entry.unsigned("size");
        match &*entry.text("action") {
            "alloc" => {
                let addr = entry.unsigned("addr");
                let block = self.blocks.remove(&addr).ok_or("a block was allocated that is not there later")?;
                (!block.pending && block.requested == size).then_some(()).ok_or("a block changed without an entry")?;
            }
            "free_requested" => {
                let block =
                    self.blocks.get_mut(&entry.unsigned("addr")).ok_or("a block was freed whose free did not end")?;
                block.pending.then(|| block.pending = false).ok_or("a block was freed that is in use later")?;
            }
            "free_completed" => {
                let block = Block { requested: size, size: None, pending: true };
                if self.blocks.insert(entry.unsigned("addr"), block).is_some() {
                    return Err("a block was freed that is in use later".to_owned());
                }
            }
            "segment_alloc" => self.give_back(entry.unsigned("addr"), size)?,
            "segment_free" => self.make(entry.unsigned("addr"), size)?,
            "segment_map" => self.reserved -= size as i64,
            "segment_unmap" => self.reserved += size as i64,
            "oom" | "snapshot" | "annotate" => {}
            other => return Err(format!("what {other} does is not known")),
        }
        Ok(())
    }

    /// Continues after an entry. If the size of the block before it was unknown until now, that block is returned, too.
    fn redo(&mut self, entry: &Object) -> Result<Option<(u64, u64)>, String> {
        let size = entry.unsigned("size");
        match &*entry.text("action") {
            "alloc" => {
                let addr = entry.unsigned("addr");
                let (size_of_block, _) = self.size_of(addr, size)?;
                let settled = self.settle_before(addr)?;
                self.blocks.insert(addr, Block { requested: size, size: Some(size_of_block), pending: false });
                return Ok(settled);
            }
            "free_requested" => {
                self.blocks.entry(entry.unsigned("addr")).and_modify(|block| block.pending = true);
            }
            "free_completed" => {
                self.blocks.remove(&entry.unsigned("addr"));
            }
            "segment_alloc" => self.make(entry.unsigned("addr"), size)?,
            "segment_free" => self.give_back(entry.unsigned("addr"), size)?,
            "segment_map" => self.reserved += size as i64,
            "segment_unmap" => self.reserved -= size as i64,
            _ => {}
        }
        Ok(None)
    }

    fn make(&mut self, addr: u64, size: u64) -> Result<(), String> {
        self.reserved += size as i64;
        self.segments.insert(addr, size).map_or(Ok(()), |_| Err("a segment is made twice".to_owned()))
    }

    fn give_back(&mut self, addr: u64, size: u64) -> Result<(), String> {
        self.reserved -= size as i64;
        let known = self.segments.remove(&addr);
        (known == Some(size))
            .then_some(())
            .ok_or_else(|| format!("a segment of {size} bytes is given back, {known:?} there"))
    }

    /// The segment, created as a whole, that contains an address: its start and end.
    fn segment_at(&self, addr: u64) -> Option<(u64, u64)> {
        let (&start, &size) = self.segments.range(..=addr).next_back()?;
        (addr < start + size).then_some((start, start + size))
    }

    /// The size of a block as its request and the next block have it, and whether that is certain of one whose neighbors
    /// may have changed since it was made.
    fn size_of(&self, addr: u64, requested: u64) -> Result<(u64, bool), String> {
        let rounded = requested.max(1).next_multiple_of(512);
        let Some((_, end)) = self.segment_at(addr) else {
            return if self.has_expandable {
                Ok((rounded, true))
            } else {
                Err(format!("{addr:#x} lies in no segment"))
            };
        };
        let next = self.blocks.range(addr + 1..).next().map_or(end, |(&next, _)| next.min(end));
        let gap = next - addr;
        if gap < rounded {
            return Err(format!("a block of {rounded} bytes does not fit into {gap}"));
        }
        let is_whole = gap - rounded <= MIB || self.max_split.is_some_and(|most| rounded >= most);
        Ok(match rounded > MIB && !self.has_expandable {
            true if is_whole => (gap, true),
            true => (rounded, false),
            false => (rounded, true),
        })
    }

    /// The block before an allocated address ends there.
    fn settle_before(&mut self, addr: u64) -> Result<Option<(u64, u64)>, String> {
        let Some((start, _)) = self.segment_at(addr) else { return Ok(None) };
        let Some((&before, block)) = self.blocks.range_mut(start..addr).next_back() else {
            let is_first = addr == start;
            return is_first.then_some(None).ok_or_else(|| format!("{addr:#x} is in the middle of free memory"));
        };
        let size = addr - before;
        match block.size {
            Some(known) if known == size => Ok(None),
            Some(known) => Err(format!("{addr:#x} is {size} bytes behind the start of a block of {known}")),
            None => {
                block.size = Some(size);
                Ok(Some((before, size)))
            }
        }
    }
}

impl Block {
    fn counters(&self) -> Four {
        let size = self.size.unwrap_or(0) as i64;
        let allocated = if self.pending { 0 } else { size };
        Four { allocated, active: size, requested: self.requested as i64, reserved: 0 }
    }
}

impl Four {
    fn each(self, other: Self, of: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            allocated: of(self.allocated, other.allocated),
            active: of(self.active, other.active),
            requested: of(self.requested, other.requested),
            reserved: of(self.reserved, other.reserved),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    fn less(self, other: Self) -> Self {
        self.each(other, |a, b| a - b)
    }

    fn highest(self, other: Self) -> Self {
        self.each(other, i64::max)
    }
}
