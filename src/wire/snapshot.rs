//! A snapshot in the format of PyTorch's `_dump_snapshot`: the keys of PyTorch 2.15, if there are values for them.
//!
//! Data that memviz does not keep, such as keys that it does not need, is not written.

use super::pickle::{Pickle, Slot};
use crate::model::rehearsal::Rehearsal;
use crate::model::trace_entry::TraceEntry;
use crate::model::{
    Action, Annotation, Block, BlockState, DeviceId, Frame, HOST_DEVICE, PoolId, Segment, SegmentType, Snapshot,
    StackId, Stage, StrId,
};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::io::{self, Write};

const BATCH: usize = 1000;

/// Writes a snapshot. Reading it gives the same snapshot, except for what the reader noticed.
pub fn write(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let pickle = Pickle::new(out)?;
    let stacks = snapshot.stacks.len();
    let mut writer = Writer {
        snapshot,
        pickle,
        keys: HashMap::default(),
        strings: vec![None; snapshot.strings.len()],
        frames: vec![None; snapshot.stacks.frame_count()],
        stacks: vec![None; stacks],
        forward: vec![None; stacks],
        pools: HashMap::default(),
    };
    writer.root()?;
    writer.pickle.finish()
}

/// The snapshot being written, and the memo slots of what was written before.
struct Writer<'s, 'w> {
    snapshot: &'s Snapshot,
    pickle: Pickle<'w>,
    keys: HashMap<&'static str, Slot, RandomState>,
    strings: Vec<Option<Slot>>,
    frames: Vec<Option<Slot>>,
    stacks: Vec<Option<Slot>>,
    forward: Vec<Option<Slot>>,
    pools: HashMap<PoolId, Slot, RandomState>,
}

impl Writer<'_, '_> {
    fn root(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        let has_host = snapshot.traces.iter().any(|trace| trace.device == HOST_DEVICE);
        let last = snapshot.traces.iter().map(|trace| trace.device).max().unwrap_or(HOST_DEVICE);
        self.record(|writer| {
            writer.key("segments")?;
            writer.segments(|segment| segment.device != HOST_DEVICE)?;
            writer.key("device_traces")?;
            // A list for each device up to the last one, even if it is empty.
            writer.list(0..=last, Self::trace)?;
            if snapshot.settings.recorded {
                writer.key("allocator_settings")?;
                writer.settings()?;
            }
            if !snapshot.annotations.is_empty() {
                writer.key("external_annotations")?;
                writer.list(&snapshot.annotations, Self::annotation)?;
            }
            if has_host {
                writer.key("host_segments")?;
                writer.segments(|segment| segment.device == HOST_DEVICE)?;
                writer.key("host_traces")?;
                writer.trace(HOST_DEVICE)?;
            }
            if let Some(overflowed) = snapshot.notes.trace_overflowed {
                writer.key("trace_alloc_overflowed")?;
                writer.pickle.boolean(overflowed)?;
            }
            if let Some(rehearsal) = &snapshot.notes.rehearsal {
                writer.key(Rehearsal::KEY)?;
                writer.pickle.text(&serde_json::to_string(rehearsal)?)?;
            }
            match snapshot.notes.ring_capacity {
                Some(capacity) => writer.integer("trace_alloc_max_entries", capacity),
                None => Ok(()),
            }
        })
    }

    fn segments(&mut self, wanted: fn(&Segment) -> bool) -> io::Result<Slot> {
        self.list(self.snapshot.segments.iter().filter(|segment| wanted(segment)), Self::segment)
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        self.record(|writer| {
            writer.integer("device", segment.device)?;
            writer.integer("address", segment.address)?;
            writer.integer("total_size", segment.total_size)?;
            writer.integer("allocated_size", segment.allocated_size)?;
            writer.integer("active_size", segment.active_size)?;
            if let Some(requested) = segment.requested_size {
                writer.integer("requested_size", requested)?;
            }
            writer.integer("stream", segment.stream)?;
            let segment_type = match segment.segment_type {
                SegmentType::Small => "small",
                SegmentType::Large => "large",
            };
            writer.known("segment_type", segment_type)?;
            writer.pool("segment_pool_id", segment.pool)?;
            writer.key("is_expandable")?;
            writer.pickle.boolean(segment.is_expandable)?;
            writer.frames(segment.stack)?;
            writer.key("blocks")?;
            writer.list(&segment.blocks, Self::block)?;
            Ok(())
        })
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        self.record(|writer| {
            writer.integer("address", block.address)?;
            writer.integer("size", block.size)?;
            writer.integer("requested_size", block.requested_size)?;
            let state = match block.state {
                BlockState::ActiveAllocated => "active_allocated",
                BlockState::ActivePendingFree => "active_pending_free",
                BlockState::Inactive => "inactive",
            };
            writer.known("state", state)?;
            writer.frames(block.stack)?;
            writer.forward(block.forward)
        })
    }

    /// The entries of a device; none if there is no such device.
    fn trace(&mut self, device: DeviceId) -> io::Result<()> {
        let snapshot = self.snapshot;
        let rows = snapshot.trace(device).map_or(0..0, |trace| trace.rows.clone());
        self.list(snapshot.entries.rows(rows), Self::entry)?;
        Ok(())
    }

    fn entry(&mut self, entry: TraceEntry) -> io::Result<()> {
        let context = self.snapshot.contexts.get(entry.context);
        self.record(|writer| {
            writer.known("action", entry.action.name())?;
            writer.integer(if entry.action == Action::Oom { "device_free" } else { "addr" }, entry.addr)?;
            writer.integer("size", entry.size)?;
            writer.integer("stream", context.stream)?;
            if writer.snapshot.notes.has_times {
                writer.integer("time_us", entry.time_us)?;
            }
            writer.pool("pool_id", context.pool)?;
            writer.string("compile_context", context.compile_context)?;
            writer.string("user_metadata", context.user_metadata)?;
            writer.string("internal_metadata", context.internal_metadata)?;
            writer.frames(entry.stack)?;
            writer.forward(context.forward)
        })
    }

    fn annotation(&mut self, annotation: &Annotation) -> io::Result<()> {
        self.record(|writer| {
            let stage = match annotation.stage {
                Stage::Start => "START",
                Stage::End => "END",
            };
            writer.known("stage", stage)?;
            writer.integer("device", annotation.device)?;
            writer.integer("time_us", annotation.time_us)?;
            writer.key("name")?;
            writer.text(annotation.name)
        })
    }

    fn settings(&mut self) -> io::Result<()> {
        let settings = &self.snapshot.settings;
        self.record(|writer| {
            writer.key("PYTORCH_CUDA_ALLOC_CONF")?;
            writer.pickle.text(&settings.alloc_conf)?;
            writer.integer("max_split_size", settings.max_split_size.map_or(-1, i128::from))?;
            writer.key("garbage_collection_threshold")?;
            writer.pickle.float(settings.garbage_collection_threshold)?;
            writer.key("expandable_segments")?;
            writer.pickle.boolean(settings.expandable_segments)?;
            writer.key("roundup_power2_divisions")?;
            writer.record(|writer| {
                for (power, &divisions) in settings.roundup_power2_divisions.iter().enumerate() {
                    writer.pickle.text(&(1u64 << power).to_string())?;
                    writer.pickle.integer(divisions)?;
                }
                Ok(())
            })?;
            for (name, value) in &settings.other {
                writer.pickle.text(name)?;
                writer.pickle.text(value)?;
            }
            Ok(())
        })
    }

    fn frames(&mut self, stack: StackId) -> io::Result<()> {
        if stack == StackId::EMPTY {
            return Ok(());
        }
        self.key("frames")?;
        if let Some(&Some(slot)) = self.stacks.get(stack.index()) {
            return self.pickle.again(slot);
        }
        let snapshot = self.snapshot;
        let slot = self.list(snapshot.stacks.frame_ids(stack), |writer, &id| {
            if let Some(&Some(slot)) = writer.frames.get(id.index()) {
                return writer.pickle.again(slot);
            }
            let Some(frame) = snapshot.stacks.frame(id) else { return Ok(()) };
            let slot = writer.frame(frame)?;
            keep(&mut writer.frames, id.index(), slot);
            Ok(())
        })?;
        keep(&mut self.stacks, stack.index(), slot);
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> io::Result<Slot> {
        self.dictionary(|writer| {
            writer.key("name")?;
            writer.text(frame.name)?;
            writer.key("filename")?;
            writer.text(frame.filename)?;
            writer.integer("line", frame.line)?;
            let Some(fx) = frame.fx else { return Ok(()) };
            writer.string("fx_node_op", fx.op)?;
            writer.string("fx_node_name", fx.name)?;
            writer.string("fx_node_target", fx.target)?;
            writer.string("fx_original_trace", fx.original_trace)
        })
    }

    /// A forward stack, as lines of a traceback, outermost first.
    fn forward(&mut self, stack: StackId) -> io::Result<()> {
        if stack == StackId::EMPTY {
            return Ok(());
        }
        self.key("forward_frames")?;
        if let Some(&Some(slot)) = self.forward.get(stack.index()) {
            return self.pickle.again(slot);
        }
        let snapshot = self.snapshot;
        let slot = self.list(snapshot.stacks.frames(stack).rev(), |writer, frame| {
            let [file, name] = [frame.filename, frame.name].map(|id| snapshot.strings.get(id));
            writer.pickle.text(&format!("  File \"{file}\", line {}, in {name}\n", frame.line))
        })?;
        keep(&mut self.forward, stack.index(), slot);
        Ok(())
    }

    fn pool(&mut self, key: &'static str, pool: Option<PoolId>) -> io::Result<()> {
        let Some(pool) = pool else { return Ok(()) };
        self.key(key)?;
        if let Some(&slot) = self.pools.get(&pool) {
            return self.pickle.again(slot);
        }
        self.pickle.pair(pool)?;
        let slot = self.pickle.remember()?;
        self.pools.insert(pool, slot);
        Ok(())
    }

    fn integer(&mut self, key: &'static str, value: impl Into<i128>) -> io::Result<()> {
        self.key(key)?;
        self.pickle.integer(value)
    }

    /// A key and a text of the format itself.
    fn known(&mut self, key: &'static str, value: &'static str) -> io::Result<()> {
        self.key(key)?;
        self.key(value)
    }

    /// A key and a text of the recording, if it is not empty.
    fn string(&mut self, key: &'static str, text: StrId) -> io::Result<()> {
        if text == StrId::EMPTY {
            return Ok(());
        }
        self.key(key)?;
        self.text(text)
    }

    fn text(&mut self, text: StrId) -> io::Result<()> {
        if let Some(&Some(slot)) = self.strings.get(text.index()) {
            return self.pickle.again(slot);
        }
        self.pickle.text(self.snapshot.strings.get(text))?;
        let slot = self.pickle.remember()?;
        keep(&mut self.strings, text.index(), slot);
        Ok(())
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        if let Some(&slot) = self.keys.get(key) {
            return self.pickle.again(slot);
        }
        self.pickle.text(key)?;
        let slot = self.pickle.remember()?;
        self.keys.insert(key, slot);
        Ok(())
    }

    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<Slot> {
        self.pickle.list()?;
        let slot = self.pickle.remember()?;
        self.pickle.begin()?;
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(BATCH) {
                self.pickle.append()?;
                self.pickle.begin()?;
            }
            write(self, item)?;
        }
        self.pickle.append()?;
        Ok(slot)
    }

    fn dictionary(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<Slot> {
        self.pickle.dictionary()?;
        let slot = self.pickle.remember()?;
        self.fill(write)?;
        Ok(slot)
    }

    fn record(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.pickle.dictionary()?;
        self.fill(write)
    }

    fn fill(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.pickle.begin()?;
        write(self)?;
        self.pickle.set()
    }
}

/// Stores the slot of an object.
fn keep(slots: &mut [Option<Slot>], index: usize, slot: Slot) {
    if let Some(known) = slots.get_mut(index) {
        *known = Some(slot);
    }
}
