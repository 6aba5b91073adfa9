//! Names in a trace as frames, and what encloses an event as a stack.

use crate::model::profile::SpanKind;
use crate::model::stacks::special;
use crate::model::{Frame, FrameId, StackId, Stacks, StrId, Strings};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Nested frames: the innermost frame, and the node around it. Equal nestings are the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(u32);

impl Node {
    /// Nothing encloses the event.
    pub const NONE: Self = Self(0);
}

/// The forward operator of a backward operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// The forward operator and what is around it.
    pub node: Node,
    /// Number of frames, counted from the innermost, up to the backward operator. The frames around it only show who called
    /// `backward`.
    pub inner_frames: usize,
}

#[derive(Debug)]
pub struct Frames {
    stacks: Stacks,
    by_name: HashMap<(StrId, bool), FrameId, RandomState>,
    nodes: Vec<(Node, FrameId)>,
    known: HashMap<(Node, FrameId), Node, RandomState>,
    as_stacks: HashMap<(Node, Option<Forward>), StackId, RandomState>,
    /// Frames of the `TorchScript` modules that a span adds to those around it.
    modules: HashMap<(StrId, StrId), Vec<FrameId>, RandomState>,
    backward: FrameId,
}

impl Frames {
    pub fn new(strings: &mut Strings) -> Self {
        let mut stacks = Stacks::default();
        let marker = Frame { filename: strings.intern(special::BACKWARD), name: StrId::EMPTY, line: 0, fx: None };
        let backward = stacks.intern_frame(marker);
        Self {
            stacks,
            by_name: HashMap::default(),
            // The first one is `Node::NONE`; its frame is never used.
            nodes: vec![(Node::NONE, backward)],
            known: HashMap::default(),
            as_stacks: HashMap::default(),
            modules: HashMap::default(),
            backward,
        }
    }

    pub fn frame(&mut self, strings: &mut Strings, name: StrId, kind: SpanKind) -> FrameId {
        let is_operator = kind == SpanKind::Operator;
        if let Some(&known) = self.by_name.get(&(name, is_operator)) {
            return known;
        }
        let frame = if is_operator {
            Frame { filename: strings.intern(special::OPERATOR), name, line: 0, fx: None }
        } else {
            python_frame(strings, name)
        };
        let id = self.stacks.intern_frame(frame);
        self.by_name.insert((name, is_operator), id);
        id
    }

    /// The frames of the modules that a span names in addition to those of the span around it, outermost first.
    pub fn modules(&mut self, strings: &mut Strings, around: StrId, inside: StrId) -> &[FrameId] {
        let stacks = &mut self.stacks;
        self.modules.entry((around, inside)).or_insert_with(|| {
            let [around, inside] = [around, inside].map(|hierarchy| modules(strings.get(hierarchy)));
            let new = inside.strip_prefix(&around[..]).unwrap_or(&inside);
            let filename = strings.intern(special::MODULE);
            let frame = |name: &String| Frame { filename, name: strings.intern(name), line: 0, fx: None };
            new.iter().map(frame).map(|frame| stacks.intern_frame(frame)).collect()
        })
    }

    pub fn node(&mut self, around: Node, frame: FrameId) -> Node {
        *self.known.entry((around, frame)).or_insert_with(|| {
            self.nodes.push((around, frame));
            Node((self.nodes.len() - 1) as u32)
        })
    }

    /// The frames of `node` as a stack, innermost first. If `forward` is given, the frames of the forward operator replace
    /// those around the backward operator.
    pub fn stack(&mut self, node: Node, forward: Option<Forward>) -> StackId {
        if let Some(&known) = self.as_stacks.get(&(node, forward)) {
            return known;
        }
        let mut frames = self.frames_of(node);
        if let Some(forward) = forward {
            frames.truncate(forward.inner_frames);
            frames.push(self.backward);
            frames.extend(self.frames_of(forward.node));
        }
        let stack = self.stacks.intern_stack(&frames);
        self.as_stacks.insert((node, forward), stack);
        stack
    }

    fn frames_of(&self, mut node: Node) -> Vec<FrameId> {
        let mut frames = Vec::new();
        while node != Node::NONE {
            let (around, frame) = self.nodes[node.0 as usize];
            frames.push(frame);
            node = around;
        }
        frames
    }

    pub fn single(&mut self, frame: Frame) -> StackId {
        let frame = self.stacks.intern_frame(frame);
        self.stacks.intern_stack(&[frame])
    }

    /// The table, after all stacks were added.
    pub fn into_stacks(self) -> Stacks {
        self.stacks
    }
}

/// The modules in a hierarchy such as `TOP(Net)::forward.a(Block)::forward.SELF(Block)::inner.fc(Linear)::forward.`: `Net`,
/// `a(Block)` and `fc(Linear)`.
fn modules(hierarchy: &str) -> Vec<String> {
    let (mut modules, mut rest) = (Vec::new(), hierarchy);
    // Attribute names may contain dots; function names do not.
    while let Some((module, behind)) = rest.split_once("::") {
        rest = behind.split_once('.').map_or("", |(_, behind)| behind);
        let (name, class) = module.strip_suffix(')').and_then(|it| it.split_once('(')).unwrap_or((module, ""));
        match name {
            "TOP" if class.is_empty() => {}
            "TOP" => modules.push(class.to_owned()),
            // The same module, in another of its functions.
            "SELF" | "UNKNOWN_INSTANCE" | "" => {}
            _ => modules.push(module.to_owned()),
        }
    }
    modules
}

/// `train.py(41): forward`, or `nn.Module: Linear_0`.
fn python_frame(strings: &mut Strings, name: StrId) -> Frame {
    let text = strings.get(name).to_owned();
    if let Some(module) = text.strip_prefix("nn.Module: ") {
        return Frame { filename: strings.intern(special::MODULE), name: strings.intern(module), line: 0, fx: None };
    }
    let parts = || {
        let (place, function) = text.split_once("): ")?;
        let (file, line) = place.rsplit_once('(')?;
        Some((file, line.parse().ok()?, function))
    };
    match parts() {
        Some((file, line, function)) => {
            Frame { filename: strings.intern(file), name: strings.intern(function), line, fx: None }
        }
        None => Frame { filename: strings.intern("<unknown>"), name, line: 0, fx: None },
    }
}

#[cfg(test)]
mod tests {
    use super::modules;

    #[test]
    fn hierarchies_of_torchscript_name_modules() {
        assert_eq!(modules("TOP(Net)::forward."), ["Net"]);
        assert_eq!(modules("TOP()::<forward op>.a(Block)::forward.fc(Linear)::forward."), ["a(Block)", "fc(Linear)"]);
        assert_eq!(modules("TOP(Net)::forward.SELF(Net)::inner.layers.0(Block)::forward."), ["Net", "layers.0(Block)"]);
        assert_eq!(modules("TOP()::<backward op>."), Vec::<String>::new());
        assert_eq!(modules("forward"), Vec::<String>::new());
    }
}
