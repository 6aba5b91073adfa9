//! Keys that identify groups.

use super::labels::{BASELINE, FILTERED, NOT_RECORDED};
use crate::facts::code::sites::{CodeOrigin, NO_STACK};
use crate::model::StrId;

/// The key of a group. Labels are created at the end: two files may share a name and a line, but not a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A special group, such as [`BASELINE`].
    Special(&'static str),
    /// A line of code, by the frame that represents it.
    Line {
        file: StrId,
        line: u64,
        name: StrId,
    },
    Function {
        file: StrId,
        name: StrId,
    },
    /// A whole stack.
    Stack(CodeOrigin),
    /// Anything identified by text.
    Text(String),
    /// Open annotations or modules, outermost first.
    Nested(Vec<StrId>),
    /// The forward operator of a backward operator.
    Backward(Box<Key>),
    /// The same if it is inferred.
    InferredBackward(Box<Key>),
}

impl Key {
    /// Groups of memory that cannot be attributed. They always have their own band.
    pub(crate) const APART: [Self; 4] =
        [Self::Special(NO_STACK), Self::Special(FILTERED), Self::Special(BASELINE), Self::Special(NOT_RECORDED)];

    /// Whether the group is one of [`Key::APART`].
    pub(crate) fn stands_apart(&self) -> bool {
        Self::APART.contains(self)
    }

    /// Whether it is memory without a stack from before the first entry.
    pub(crate) fn is_before(&self) -> bool {
        matches!(self, Self::Special(BASELINE | NOT_RECORDED))
    }

    /// Whether the group is inferred rather than recorded.
    pub(crate) fn is_inferred(&self) -> bool {
        matches!(self, Self::InferredBackward(_) | Self::Stack(CodeOrigin { forward: Some(_), is_recorded: false, .. }))
    }
}
