//! The callers of allocations: the function of the CUDA API, and its call chain.

use crate::error::Result;
use crate::input::sqlite::Database;
use crate::model::nsys::{Caller, ChainFrame, MemoryEvent, Process};
use crate::sorting::SortRows;
use indexmap::IndexSet;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek};

/// Texts of the table `StringIds`, limited to those that are referred to.
#[derive(Debug, Default)]
pub(super) struct Texts(HashMap<i64, String>);

impl Texts {
    pub(super) fn want(&mut self, id: i64) {
        self.0.entry(id).or_default();
    }

    pub(super) fn read<R: Read + Seek>(&mut self, database: &mut Database<R>) -> Result<()> {
        database.rows("StringIds", ["id", "value"], |[id, value]| {
            if let Some(text) = id.integer().and_then(|id| self.0.get_mut(&id)) {
                *text = value.text().unwrap_or_default();
            }
            Ok(())
        })
    }

    /// A text; empty if the file does not have it.
    pub(super) fn get(&self, id: i64) -> &str {
        self.0.get(&id).map_or("", String::as_str)
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    name: Option<i64>,
    chain: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    depth: i64,
    symbol: i64,
    module: i64,
}

#[derive(Debug, Default)]
pub(super) struct Callers {
    of_event: Vec<Option<Call>>,
    chains: HashMap<i64, Vec<Frame>>,
}

impl Callers {
    /// Finds the call of each event: the call with its correlation ID, in the same process, around its time. Requests the
    /// texts that name them.
    pub(super) fn of<R: Read + Seek>(
        database: &mut Database<R>,
        events: &[MemoryEvent],
        calls: &[Option<i64>],
        texts: &mut Texts,
    ) -> Result<Self> {
        let mut waiting: HashMap<(Process, i64), Vec<usize>> = HashMap::new();
        for (at, (event, call)) in events.iter().zip(calls).enumerate() {
            if let Some(call) = *call {
                waiting.entry((event.process, call)).or_default().push(at);
            }
        }
        let has_times = events.iter().any(|event| event.start_ns != 0);
        let mut callers = Self { of_event: vec![None; events.len()], chains: HashMap::new() };
        let columns = ["correlationId", "globalTid", "start", "end", "nameId", "callchainId"];
        database.rows("CUPTI_ACTIVITY_KIND_RUNTIME", columns, |[id, thread, start, end, name, chain]| {
            let (Some(id), Some(thread)) = (id.integer(), thread.integer()) else { return Ok(()) };
            let (start, end) = (start.integer().unwrap_or(i64::MIN), end.integer().unwrap_or(i64::MAX));
            let call = Call { name: name.integer(), chain: chain.integer() };
            for &event in waiting.get(&(Process::of(thread), id)).into_iter().flatten() {
                if !has_times || (start..=end).contains(&events[event].start_ns) {
                    callers.of_event[event] = Some(call);
                }
            }
            Ok(())
        })?;
        let found = || callers.of_event.iter().flatten();
        found().filter_map(|call| call.name).for_each(|name| texts.want(name));
        let wanted: HashSet<i64> = found().filter_map(|call| call.chain).collect();
        if !wanted.is_empty() {
            callers.read_chains(database, &wanted, texts)?;
        }
        Ok(callers)
    }

    fn read_chains<R: Read + Seek>(
        &mut self,
        database: &mut Database<R>,
        wanted: &HashSet<i64>,
        texts: &mut Texts,
    ) -> Result<()> {
        let columns = ["id", "stackDepth", "symbol", "module"];
        database.rows("CUDA_CALLCHAINS", columns, |[id, depth, symbol, module]| {
            let Some(id) = id.integer().filter(|id| wanted.contains(id)) else { return Ok(()) };
            if let (Some(depth), Some(symbol), Some(module)) = (depth.integer(), symbol.integer(), module.integer()) {
                self.chains.entry(id).or_default().push(Frame { depth, symbol, module });
                texts.want(symbol);
                texts.want(module);
            }
            Ok(())
        })?;
        self.chains.values_mut().for_each(|frames| frames.sort_rows_by_key(|frame| frame.depth));
        Ok(())
    }

    pub(super) fn has_chains(&self) -> bool {
        !self.chains.is_empty()
    }

    /// Every caller once, and its number in the events, which are still in the order of the file.
    pub(super) fn finish(self, texts: &Texts, events: &mut [MemoryEvent]) -> Vec<Caller> {
        let mut callers = IndexSet::from([Caller::default()]);
        let mut known: HashMap<(Option<i64>, Option<i64>), u32> = HashMap::new();
        for (event, call) in events.iter_mut().zip(&self.of_event) {
            let Some(call) = *call else { continue };
            event.caller = *known.entry((call.name, call.chain)).or_insert_with(|| {
                let frames = call.chain.and_then(|chain| self.chains.get(&chain)).into_iter().flatten();
                let frame = |frame: &Frame| ChainFrame {
                    symbol: texts.get(frame.symbol).to_owned(),
                    module: texts.get(frame.module).to_owned(),
                };
                let name = call.name.map(|name| without_version(texts.get(name)).to_owned());
                let caller = Caller { call: name.filter(|name| !name.is_empty()), chain: frames.map(frame).collect() };
                callers.insert_full(caller).0 as u32
            });
        }
        callers.into_iter().collect()
    }
}

/// `cudaMalloc` for `cudaMalloc_v3020`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((function, version)) if version.chars().all(|next| next.is_ascii_digit()) => function,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_no_versions() {
        assert_eq!(without_version("cudaMalloc_v3020"), "cudaMalloc");
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(without_version("cuMemCreate"), "cuMemCreate");
        assert_eq!(without_version("a_view"), "a_view");
    }
}
