//! Segments and their blocks at dump time.

use super::{Assembler, EXPECTED_KEYS, no_device};
use crate::error::{Error, Result};
use crate::input::pickle::findings::{Fields, expected, name, pool_id};
use crate::input::pickle::value::Value;
use crate::model::{
    Block, BlockState, DeviceId, HOST_DEVICE, MAX_DEVICE, Segment, SegmentType, StackId, StrId, Strings,
};

impl Assembler {
    pub(super) fn segments(&mut self, at: u64, key: &str, value: Value) -> Result<()> {
        self.snapshot.notes.segments_truncated |=
            matches!(value, Value::List(index) if self.open_lists.contains(&index));
        for item in self.items(at, key, value)? {
            self.record(at)?;
            let Value::Dict(index) = item else { return Err(expected(at, "a segment in", key, item)) };
            let segment = self.segment(index)?;
            self.snapshot.segments.push(segment);
        }
        Ok(())
    }

    fn segment(&mut self, index: u32) -> Result<Segment> {
        let key = Keys::intern(&mut self.findings.strings);
        let fields = Fields::of(&self.heap, index, "segment")?;
        let at = fields.at;
        let keys = (fields.pairs.len() / EXPECTED_KEYS) as u64;
        self.records(at, keys)?;
        let fields = Fields::of(&self.heap, index, "segment")?;
        let device = fields.required(key.device, "device")?;
        let number = fields.signed(device, "device")?;
        let device = DeviceId::try_from(number).ok().filter(|device| (HOST_DEVICE..=MAX_DEVICE).contains(device));
        let device = device.ok_or_else(|| no_device(at, number))?;
        let segment_type = fields.string(key.segment_type, "segment_type")?;
        let mut segment = Segment {
            device,
            address: fields.unsigned(key.address, "address")?,
            total_size: fields.unsigned(key.total_size, "total_size")?,
            allocated_size: fields.unsigned_or(key.allocated_size, "allocated_size", 0)?,
            active_size: fields.unsigned_or(key.active_size, "active_size", 0)?,
            requested_size: match fields.optional(key.requested_size) {
                Some(_) => Some(fields.unsigned(key.requested_size, "requested_size")?),
                None => None,
            },
            stream: fields.unsigned_or(name::STREAM, "stream", 0)?,
            segment_type: match self.text(segment_type) {
                "small" => SegmentType::Small,
                "large" => SegmentType::Large,
                other => {
                    let message = format!("expected \"small\" or \"large\" for \"segment_type\", found {other:?}");
                    return Err(Error::malformed(at, message));
                }
            },
            pool: fields.optional(name::SEGMENT_POOL_ID).map(|value| pool_id(&self.heap, at, value)).transpose()?,
            is_expandable: match fields.optional(key.is_expandable) {
                None => false,
                Some(Value::Bool(expandable)) => expandable,
                Some(other) => return Err(expected(at, "a boolean for", "is_expandable", other)),
            },
            stack: StackId::EMPTY,
            blocks: Vec::new(),
        };
        if segment.address.checked_add(segment.total_size).is_none() {
            return Err(Error::malformed(at, "expected a segment that ends below 2^64"));
        }
        let frames = fields.optional(name::FRAMES);
        let blocks = fields.required(key.blocks, "blocks")?;
        let names: Vec<Value> = fields.pairs.iter().map(|&(name, _)| name).collect();
        for name in names {
            if !matches!(name, Value::Str(id) if key.segment_keys().contains(&id)) {
                self.unknown("segment", name);
            }
        }
        if let Some(frames) = frames {
            segment.stack = self.findings.stack(&self.heap, at, frames)?;
        }
        let mut next = segment.address;
        for item in self.items(at, "blocks", blocks)? {
            self.record(at)?;
            let Value::Dict(index) = item else { return Err(expected(at, "a block in", "blocks", item)) };
            let block = self.block(index, &key, next)?;
            next = block
                .address
                .checked_add(block.size)
                .ok_or_else(|| Error::malformed(at, "expected blocks that end below 2^64"))?;
            segment.blocks.push(block);
        }
        Ok(segment)
    }

    fn block(&mut self, index: u32, key: &Keys, next: u64) -> Result<Block> {
        let fields = Fields::of(&self.heap, index, "block")?;
        let at = fields.at;
        let keys = (fields.pairs.len() / EXPECTED_KEYS) as u64;
        self.records(at, keys)?;
        let fields = Fields::of(&self.heap, index, "block")?;
        let state = fields.string(key.state, "state")?;
        let mut block = Block {
            address: fields.unsigned_or(key.address, "address", next)?,
            size: fields.unsigned(name::SIZE, "size")?,
            requested_size: fields.unsigned_or(key.requested_size, "requested_size", 0)?,
            state: match self.text(state) {
                "active_allocated" => BlockState::ActiveAllocated,
                "active_pending_free" | "active_awaiting_free" => BlockState::ActivePendingFree,
                "inactive" => BlockState::Inactive,
                other => {
                    return Err(Error::malformed(at, format!("expected a block state for \"state\", found {other:?}")));
                }
            },
            stack: StackId::EMPTY,
            forward: StackId::EMPTY,
        };
        let forward = fields.optional(name::FORWARD_FRAMES);
        let frames = match fields.optional(name::FRAMES) {
            Some(frames) => Some(frames),
            None => self.history_frames(&fields, key)?,
        };
        let names: Vec<Value> = fields.pairs.iter().map(|&(name, _)| name).collect();
        for name in names {
            if !matches!(name, Value::Str(id) if key.block_keys().contains(&id)) {
                self.unknown("block", name);
            }
        }
        if let Some(frames) = frames {
            block.stack = self.findings.stack(&self.heap, at, frames)?;
        }
        if let Some(forward) = forward {
            block.forward = self.findings.forward_stack(&self.heap, forward);
        }
        Ok(block)
    }

    /// PyTorch 2.0 stores a block's frames in its `history`, newest first.
    fn history_frames(&self, fields: &Fields<'_>, key: &Keys) -> Result<Option<Value>> {
        let Some(history) = fields.optional(key.history) else { return Ok(None) };
        let newest = self.items(fields.at, "history", history)?.first().copied();
        let Some(Value::Dict(index)) = newest else { return Ok(None) };
        Ok(Fields::of(&self.heap, index, "block history")?.optional(name::FRAMES))
    }
}

struct Keys {
    device: StrId,
    address: StrId,
    total_size: StrId,
    allocated_size: StrId,
    active_size: StrId,
    requested_size: StrId,
    segment_type: StrId,
    is_expandable: StrId,
    /// For NCCL; not needed.
    registration_counter: StrId,
    blocks: StrId,
    state: StrId,
    history: StrId,
}

impl Keys {
    fn intern(strings: &mut Strings) -> Self {
        Self {
            device: strings.intern("device"),
            address: strings.intern("address"),
            total_size: strings.intern("total_size"),
            allocated_size: strings.intern("allocated_size"),
            active_size: strings.intern("active_size"),
            requested_size: strings.intern("requested_size"),
            segment_type: strings.intern("segment_type"),
            registration_counter: strings.intern("registration_counter"),
            is_expandable: strings.intern("is_expandable"),
            blocks: strings.intern("blocks"),
            state: strings.intern("state"),
            history: strings.intern("history"),
        }
    }

    fn segment_keys(&self) -> [StrId; 14] {
        [
            self.device,
            self.address,
            self.total_size,
            self.allocated_size,
            self.active_size,
            self.requested_size,
            self.segment_type,
            name::SEGMENT_POOL_ID,
            self.registration_counter,
            self.is_expandable,
            self.blocks,
            name::STREAM,
            name::FRAMES,
            // From the request that created it; its `segment_alloc` entry has them, too.
            name::FORWARD_FRAMES,
        ]
    }

    fn block_keys(&self) -> [StrId; 7] {
        let frames = [name::FRAMES, name::FORWARD_FRAMES];
        [self.address, self.requested_size, self.state, self.history, name::SIZE, frames[0], frames[1]]
    }
}
