//! What encloses each memory event on its thread: operators, modules and Python functions.
//!
//! Spans nest, so one pass over a thread in chronological order, with a stack of open spans, finds the enclosing spans of all
//! events. PyTorch's own tables use the same rule.

use super::frames::{self, Frames, Node};
use super::operators::Operators;
use crate::model::profile::{MemoryEvent, MemoryKind, Profile, Sequence, Span, SpanKind};
use crate::model::{StackId, StrId, Strings};
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Spans nested deeper than this are left out. No program nests as deep, and this bounds the cost of a malicious file.
const MAX_DEPTH: usize = 256;
/// The most threads that may share a sequence number. With more, the thread is not determined.
const MAX_CANDIDATES: usize = 64;

/// A backward operator's link: the profiler's number of the forward thread, and the sequence number.
type Link = (u64, u64);

/// What is known about the place of an event.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: Node,
    backward: Option<Backward>,
}

/// The innermost backward operator around an event.
#[derive(Clone, Copy, Debug)]
struct Backward {
    link: Link,
    start_ns: i64,
    /// See [`frames::Forward::inner_frames`].
    inner_frames: usize,
}

#[derive(Clone, Copy, Debug)]
struct ForwardOperator {
    thread: u32,
    start_ns: i64,
    node: Node,
}

/// The stacks of all memory events, and what operators used.
#[derive(Debug)]
pub struct Enclosures {
    /// Stack of each event, in the order of [`Profile::memory`].
    pub stacks: Vec<StackId>,
    pub operators: Operators,
}

impl Enclosures {
    pub fn of(profile: &mut Profile, frames: &mut Frames) -> Self {
        let mut by_thread: Vec<Vec<u32>> = vec![Vec::new(); profile.threads.len()];
        for (index, event) in profile.memory.iter().enumerate() {
            by_thread[event.thread as usize].push(index as u32);
        }
        let mut sweep = Sweep {
            strings: &mut profile.strings,
            frames,
            sequences: &profile.sequences,
            memory: &profile.memory,
            places: vec![Place { node: Node::NONE, backward: None }; profile.memory.len()],
            forwards: HashMap::default(),
            operators: Operators::default(),
            open: Vec::new(),
            too_deep: 0,
        };
        for (thread, events) in profile.threads.iter_mut().zip(&mut by_thread) {
            // An enclosing span comes before the spans in it; Python calls operators, not the reverse. The sorts are stable,
            // so events at the same time stay in the order of the file.
            thread.spans.sort_by_key(|span| (span.start_ns, Reverse(span.end_ns), span.kind == SpanKind::Operator));
            events.sort_by_key(|&event| sweep.memory[event as usize].time_ns);
        }
        for (index, (thread, events)) in profile.threads.iter().zip(&by_thread).enumerate() {
            sweep.thread(index as u32, &thread.spans, events);
        }
        let (places, forwards, operators) = (sweep.places, sweep.forwards, sweep.operators);
        if sweep.too_deep > 0 {
            let reason = format!("events nested more than {MAX_DEPTH} deep");
            profile.notes.left_out.insert(reason, sweep.too_deep);
        }
        let threads = ForwardThreads::learn(&places, &forwards);
        let mut stack = |place: &Place| {
            frames.stack(place.node, place.backward.and_then(|backward| threads.find(&forwards, backward)))
        };
        Self { stacks: places.iter().map(&mut stack).collect(), operators }
    }
}

type Forwards = HashMap<u64, Vec<ForwardOperator>, RandomState>;

struct Open {
    end_ns: i64,
    span: Span,
    /// Computed on first use.
    node: Option<Node>,
    /// Number of module frames that it adds around its own frame; computed at the same time.
    modules: usize,
}

struct Sweep<'a> {
    strings: &'a mut Strings,
    frames: &'a mut Frames,
    sequences: &'a [Sequence],
    memory: &'a [MemoryEvent],
    places: Vec<Place>,
    /// Forward operators by sequence number, at most one per thread, in the order of threads: the last one to start, since it
    /// created the node.
    forwards: Forwards,
    operators: Operators,
    open: Vec<Open>,
    /// Spans left out.
    too_deep: u64,
}

impl Sweep<'_> {
    fn thread(&mut self, thread: u32, spans: &[Span], events: &[u32]) {
        self.open.clear();
        let mut events = events.iter().copied().peekable();
        for span in spans.iter().filter(|span| span.kind != SpanKind::Annotation) {
            while let Some(event) = events.next_if(|&event| self.memory[event as usize].time_ns < span.start_ns) {
                self.event(event);
            }
            while self.open.last().is_some_and(|open| open.end_ns <= span.start_ns) {
                self.open.pop();
            }
            if self.open.len() >= MAX_DEPTH {
                self.too_deep += 1;
                continue;
            }
            self.open.push(Open { end_ns: span.end_ns, span: *span, node: None, modules: 0 });
            if span.kind == SpanKind::Operator {
                self.operators.call(span.name);
                self.forward(thread, span);
            }
        }
        events.for_each(|event| self.event(event));
    }

    /// Records a forward operator by the sequence number that its backward operators will have.
    fn forward(&mut self, thread: u32, span: &Span) {
        let Some(sequence) = self.sequences.get(span.sequence as usize).filter(|it| it.forward_thread == 0) else {
            return;
        };
        let forward = ForwardOperator { thread, start_ns: span.start_ns, node: self.node() };
        let forwards = self.forwards.entry(sequence.number).or_default();
        // Threads are processed one after the other, so if the thread is known, it is the last.
        match forwards.last_mut() {
            Some(known) if known.thread == thread => *known = forward,
            _ => forwards.push(forward),
        }
    }

    fn event(&mut self, index: u32) {
        let event = self.memory[index as usize];
        while self.open.last().is_some_and(|open| open.end_ns < event.time_ns) {
            self.open.pop();
        }
        if event.kind == MemoryKind::Change {
            let mut is_innermost = true;
            for open in self.open.iter().rev().filter(|open| open.span.kind == SpanKind::Operator) {
                self.operators.usage(event.device, open.span.name).add(event.bytes, is_innermost);
                is_innermost = false;
            }
            if is_innermost {
                self.operators.outside(event.device).add(event.bytes, true);
            }
        }
        // Only allocations need a stack.
        if event.kind == MemoryKind::Change && event.bytes <= 0 {
            return;
        }
        self.places[index as usize] = Place { node: self.node(), backward: self.backward() };
    }

    /// The innermost backward operator that is open.
    fn backward(&self) -> Option<Backward> {
        let link_of = |open: &Open| {
            let sequence = self.sequences.get(open.span.sequence as usize).filter(|it| it.forward_thread != 0)?;
            Some((sequence.forward_thread, sequence.number))
        };
        let index = self.open.iter().rposition(|open| link_of(open).is_some())?;
        let link = link_of(&self.open[index])?;
        // The autograd engine wraps every node in its own operator with the same link.
        let outer = self.open[..index].iter().rev().take_while(|open| link_of(open) == Some(link)).count();
        let inner_frames = self.open[index - outer..].iter().map(|open| 1 + open.modules).sum();
        Some(Backward { link, start_ns: self.open[index].span.start_ns, inner_frames })
    }

    /// The node of the open spans.
    fn node(&mut self) -> Node {
        let known = self.open.iter().rposition(|open| open.node.is_some());
        let mut node = known.and_then(|index| self.open[index].node).unwrap_or(Node::NONE);
        let (known, new) = self.open.split_at_mut(known.map_or(0, |index| index + 1));
        let names_modules = |open: &&Open| open.span.modules != StrId::EMPTY;
        let mut around = known.iter().rfind(names_modules).map_or(StrId::EMPTY, |open| open.span.modules);
        for open in new {
            if open.span.modules != StrId::EMPTY {
                let modules = self.frames.modules(self.strings, around, open.span.modules).to_vec();
                open.modules = modules.len();
                node = modules.into_iter().fold(node, |node, module| self.frames.node(node, module));
                around = open.span.modules;
            }
            let frame = self.frames.frame(self.strings, open.span.name, open.span.kind);
            node = self.frames.node(node, frame);
            open.node = Some(node);
        }
        node
    }
}

/// Maps the profiler's own thread numbers to recorded threads.
///
/// The file does not contain this mapping, but sequence numbers show it: if only one thread ran a forward operator with a
/// number, the number means this thread. Numbers that several threads used are resolved with the mapping.
#[derive(Debug, Default)]
struct ForwardThreads {
    threads: HashMap<u64, Option<u32>, RandomState>,
}

impl ForwardThreads {
    fn learn(places: &[Place], forwards: &Forwards) -> Self {
        let mut threads: HashMap<u64, Option<u32>, RandomState> = HashMap::default();
        for backward in places.iter().filter_map(|place| place.backward) {
            let (number, sequence) = backward.link;
            let earlier = |forward: &&ForwardOperator| forward.start_ns < backward.start_ns;
            let candidates = forwards.get(&sequence).filter(|candidates| candidates.len() <= MAX_CANDIDATES);
            let mut candidates = candidates.into_iter().flatten().filter(earlier);
            if let (Some(only), None) = (candidates.next(), candidates.next()) {
                let thread = threads.entry(number).or_insert(Some(only.thread));
                // One number cannot mean two threads: such a file allows no conclusions.
                if *thread != Some(only.thread) {
                    *thread = None;
                }
            }
        }
        Self { threads }
    }

    /// The forward operator of a backward operator; `None` if it was not recorded or is not certain.
    fn find(&self, forwards: &Forwards, backward: Backward) -> Option<frames::Forward> {
        let (number, sequence) = backward.link;
        let thread = (*self.threads.get(&number)?)?;
        let candidates = forwards.get(&sequence)?;
        let found = candidates.get(candidates.binary_search_by_key(&thread, |forward| forward.thread).ok()?)?;
        let forward = frames::Forward { node: found.node, inner_frames: backward.inner_frames };
        (found.start_ns < backward.start_ns).then_some(forward)
    }
}
