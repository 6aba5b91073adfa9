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
        Self { change: change.into(), code, edit: edit.into(), most: None }
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
