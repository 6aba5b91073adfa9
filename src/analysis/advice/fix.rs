//! What finders find: a mistake with its fixes, and what each of them changes in the simulated program.

use super::RuleKind;
use crate::model::{AllocatorSettings, FrameId};
use crate::simulation::changes::{Change, Lifetimes};

#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub kind: RuleKind,
    pub line: Option<FrameId>,
    pub evidence: String,
    pub cost: Option<String>,
    /// Any of them is enough; the first is recommended.
    pub fixes: Vec<Fix>,
}

#[derive(Clone, Debug)]
pub(super) struct Fix {
    pub change: String,
    pub code: Vec<String>,
    /// Its effect; the one that saves least if a fact is unknown.
    pub edit: Edit,
    /// The effect that saves most, and the unrecorded fact that decides between the two.
    pub most: Option<(Lifetimes, &'static str)>,
    /// How to edit the line of the finding.
    pub rewrite: Option<Rewrite>,
}

/// An edit of source code that makes a fix, if the code has the form that it expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Run the statement, which calls a model, under `torch.no_grad()`.
    NoGrad,
    /// Move the statement, a call of `zero_grad`, before the one with this line.
    MoveZeroGrad { before: u64 },
    /// Remove `set_to_none=False` from the only `zero_grad` in the file; the statement calls backward, and this line of its function
    /// the model.
    SetToNone { forward: Option<u64> },
    /// Pass an argument to the only optimizer of a class of `torch.optim` in the file; for `Adam`, also of `AdamW`.
    Optimizer { class: String, argument: &'static str },
    /// Pass an argument to the model that the statement calls.
    Argument(&'static str),
    /// Pass `inplace=True` to a function of `torch.nn.functional` whose result replaces its input.
    InPlace { function: String },
    /// Store a copy on the CPU, without its graph: what the statement appends or adds, or what it assigns and another one does.
    StoreOnCpu,
    /// Load a file to the CPU.
    LoadOnCpu,
    /// Delete the variable that the statement assigns after its last use before backward.
    DeleteOutput,
    /// Leave out the copy of an expanded tensor.
    ExpandWithoutCopy,
}

/// What a fix changes in the simulated program.
#[derive(Clone, Debug, Default)]
pub(super) struct Edit {
    /// Changes to single blocks: shorter lives, smaller sizes, or removed.
    pub lives: Lifetimes,
    /// Changes that `memviz simulate` has by name.
    pub changes: Vec<Change>,
    pub settings: Option<AllocatorSettings>,
    /// Why the fix cannot be simulated.
    pub unsimulated: Option<&'static str>,
}

impl Fix {
    pub fn new<S: Into<String>>(
        change: impl Into<String>,
        code: impl IntoIterator<Item = S>,
        edit: impl Into<Edit>,
    ) -> Self {
        let code = code.into_iter().map(Into::into).collect();
        Self { change: change.into(), code, edit: edit.into(), most: None, rewrite: None }
    }

    /// The same, with how to edit the line of the finding, if that is known.
    pub fn by(self, rewrite: impl Into<Option<Rewrite>>) -> Self {
        Self { rewrite: rewrite.into(), ..self }
    }

    /// A fix whose effect depends on an unrecorded fact.
    pub fn up_to<S: Into<String>>(
        change: impl Into<String>,
        code: impl IntoIterator<Item = S>,
        least: Lifetimes,
        most: Lifetimes,
        unknown: &'static str,
    ) -> Self {
        Self { most: (least != most).then_some((most, unknown)), ..Self::new(change, code, least) }
    }
}

impl Edit {
    pub fn unsimulated(because: &'static str) -> Self {
        Self { unsimulated: Some(because), ..Self::default() }
    }

    /// The changes to single blocks, if there are no other ones: only these can be combined with other fixes.
    pub fn only_lives(&self) -> Option<&Lifetimes> {
        let is_only = self.changes.is_empty() && self.settings.is_none() && self.unsimulated.is_none();
        is_only.then_some(&self.lives)
    }
}

impl From<Lifetimes> for Edit {
    fn from(lives: Lifetimes) -> Self {
        Self { lives, ..Self::default() }
    }
}

impl From<Change> for Edit {
    fn from(change: Change) -> Self {
        Self { changes: vec![change], ..Self::default() }
    }
}

impl From<AllocatorSettings> for Edit {
    fn from(settings: AllocatorSettings) -> Self {
        Self { settings: Some(settings), ..Self::default() }
    }
}
