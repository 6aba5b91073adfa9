//! What to change in a program, in the same words in every answer.

use super::document::{Document, Tone};
use crate::analysis::advice::{Advice, CodeLine, Lowered, Saving};
use crate::model::bytes::Bytes;
use crate::play::Trust;
use serde::Serialize;

/// Shown on a first screen.
pub(crate) const MOST: usize = 3;

/// What the bytes represent where a request failed: what would be needed had it been served.
const INCLUDES: &str = "savings and totals include the request that failed";

/// Something to change in the program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AdviceRow {
    /// The mistake.
    pub kind: &'static str,
    /// What to change, as a request.
    pub change: String,
    /// The line that makes the mistake; none where no stack has it.
    #[serde(rename = "where")]
    pub place: Vec<AdviceLine>,
    /// What shows the mistake, in a sentence.
    pub evidence: String,
    /// What the change takes off the peak of allocated bytes, played; null where nothing was played.
    pub saves_allocated_bytes: Option<u64>,
    /// The same of reserved bytes.
    pub saves_reserved_bytes: Option<u64>,
    /// What it costs.
    pub cost: AdviceCost,
    /// How far to trust the allocated bytes.
    pub trust: Trust,
    /// How far to trust the reserved bytes: less where the recording starts with free segments, which no change of what was
    /// recorded takes away.
    pub reserved_trust: Trust,
    /// Why the allocated bytes are not trusted further; empty where they are exact.
    pub because: String,
    /// The lines of Python that make the change; empty where the program decides them.
    pub code: String,
}

/// A line of code.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AdviceLine {
    /// The file, as the recording has it.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function.
    pub function: String,
}

/// What a change costs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AdviceCost {
    /// In words; null where it costs nothing.
    pub words: Option<String>,
    /// Microseconds of what runs again; null where nothing does, and where it is not known.
    pub recompute_us: Option<u64>,
    /// Bytes that are copied; null where nothing is, and where it is not known.
    pub copies_bytes: Option<u64>,
}

impl From<&Advice> for AdviceRow {
    fn from(advice: &Advice) -> Self {
        let line =
            |line: &CodeLine| AdviceLine { file: line.file.clone(), line: line.line, function: line.function.clone() };
        let (bytes, trust, reserved_trust, because) = match &advice.saving {
            Saving::Played { allocated, reserved, trust, reserved_trust, because, .. } => {
                (Some((allocated.by(), reserved.by())), *trust, *reserved_trust, because.clone())
            }
            Saving::NotPlayed { because, .. } => (None, Trust::Refused, Trust::Refused, because.clone()),
        };
        Self {
            kind: advice.story.name(),
            change: advice.cure.clone(),
            place: advice.line.iter().map(line).collect(),
            evidence: advice.evidence.clone(),
            saves_allocated_bytes: bytes.map(|(allocated, _)| allocated),
            saves_reserved_bytes: bytes.map(|(_, reserved)| reserved),
            cost: AdviceCost { words: advice.cost.clone(), recompute_us: None, copies_bytes: None },
            trust,
            reserved_trust,
            because,
            code: advice.code.join("\n"),
        }
    }
}

/// What to change, and at which line.
pub(crate) fn change(advice: &Advice) -> String {
    match &advice.line {
        Some(line) => format!("{}, at {}", advice.cure, line.label),
        None => advice.cure.clone(),
    }
}

/// What it saves, how far that is to be trusted, and what it costs.
pub(crate) fn effect(advice: &Advice) -> String {
    let saves = match &advice.saving {
        Saving::Played { allocated, reserved, trust, reserved_trust, .. } => {
            let trust = match (*trust, *reserved_trust) {
                (Trust::Exact, Trust::Exact) => String::new(),
                (trust, reserved) if trust == reserved => format!(" ({})", trust.name()),
                (trust, reserved) => format!(" ({}; reserved {})", trust.name(), reserved.name()),
            };
            let of = |lowered: &Lowered, what| match lowered.by() {
                0 => format!("none of {} {what}", Bytes(lowered.before)),
                bytes => format!("{} of {} {what}", Bytes(bytes), Bytes(lowered.before)),
            };
            let (allocated, reserved) = (of(allocated, "allocated"), of(reserved, "reserved"));
            format!("saves {allocated}, {reserved}{trust}")
        }
        Saving::NotPlayed { because, .. } => format!("savings not simulated: {because}"),
    };
    match &advice.cost {
        Some(cost) => format!("{saves}; {cost}"),
        None => saves,
    }
}

/// All of it in a sentence.
pub(crate) fn sentence(advice: &Advice) -> String {
    format!("{}: {}; {}", change(advice), effect(advice), advice.evidence)
}

impl Document {
    /// The first few changes, each with what it saves, what shows it and its lines of Python; `failed` where a request failed.
    pub(crate) fn cures(&mut self, advice: &[Advice], failed: bool) {
        if advice.is_empty() {
            return;
        }
        self.section("What to change");
        if failed {
            self.toned(Tone::Plain, 2, INCLUDES);
        }
        for (number, advice) in (1..).zip(advice.iter().take(MOST)) {
            self.number(number, 2, Tone::Bold, change(advice));
            if let Some((line, text)) = advice.line.as_ref().and_then(|line| Some((line.line, line.text.as_ref()?))) {
                self.source(5, format!("{line} | {text}"));
            }
            self.detail(5, effect(advice));
            self.detail(5, &advice.evidence);
            self.code(7, &advice.code);
        }
    }
}
