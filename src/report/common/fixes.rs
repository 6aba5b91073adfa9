//! Changes to a program, in the same words in every answer.

use super::document::{Document, Tone};
use crate::analysis::advice::{Advice, Alternative, CodeLine, Lowered, RuleKind, Saving};
use crate::model::bytes::Bytes;
use crate::report::common::json::keys;
use crate::simulation::Trust;

/// Number of changes on a first screen.
pub(crate) const MOST: usize = 3;

/// What the bytes mean if a request failed: the memory needed if it had been served.
pub(crate) const INCLUDES: &str = "savings and totals assume that every request succeeds";

keys! { schema
    /// Something to change in the program.
    pub struct AdviceRow(advice: &Advice) {
        let Figures { allocated, reserved, trust, reserved_trust, because, at_least } = Figures::of(&advice.saving);
        /// The mistake.
        pub kind: &'static str = advice.kind.name(),
        /// What to change, as a request.
        pub change: String = advice.change.clone(),
        /// The line with the mistake; empty if no stack contains it.
        #[serde(rename = "where")]
        pub place: Vec<AdviceLine> = advice.line.iter().map(AdviceLine::of).collect(),
        /// The evidence for the mistake, in a sentence.
        pub evidence: String = advice.evidence.clone(),
        /// Bytes that the change saves at the peak of allocated bytes, in a simulation: negative if it raises the peak;
        /// null if nothing was simulated.
        pub saves_allocated_bytes: Option<i64> = allocated,
        /// The same for reserved bytes.
        pub saves_reserved_bytes: Option<i64> = reserved,
        /// The cost of the change.
        pub cost: AdviceCost = AdviceCost::of(advice),
        /// How far you can trust the allocated bytes.
        pub trust: Trust = trust,
        /// How far you can trust the reserved bytes: less if the recording starts with free segments, which no change to
        /// the recorded program removes.
        pub reserved_trust: Trust = reserved_trust,
        /// Why the allocated bytes are less certain; empty if they are exact.
        pub because: String = because,
        /// Whether the allocated bytes are a lower bound: the change may save more.
        pub at_least: bool = at_least,
        /// The lines of Python that make the change; empty if they depend on the program.
        pub code: String = advice.code.join("\n"),
        /// Other changes that cure the same mistake, each in place of this one.
        pub alternatives: Vec<AlternativeRow> = advice.alternatives.iter().map(AlternativeRow::of).collect(),
    }
}

keys! { schema
    /// Another change that cures a mistake.
    pub struct AlternativeRow(other: &Alternative) {
        let Figures { allocated, reserved, trust, reserved_trust, because, at_least } = Figures::of(&other.saving);
        /// What to change, as a request.
        pub change: String = other.change.clone(),
        /// Bytes that the change saves at the peak of allocated bytes, in a simulation: negative if it raises the peak;
        /// null if nothing was simulated.
        pub saves_allocated_bytes: Option<i64> = allocated,
        /// The same for reserved bytes.
        pub saves_reserved_bytes: Option<i64> = reserved,
        /// How far you can trust the allocated bytes.
        pub trust: Trust = trust,
        /// How far you can trust the reserved bytes.
        pub reserved_trust: Trust = reserved_trust,
        /// Why the allocated bytes are less certain; empty if they are exact.
        pub because: String = because,
        /// Whether the allocated bytes are a lower bound: the change may save more.
        pub at_least: bool = at_least,
        /// The lines of Python that make the change.
        pub code: String = other.code.join("\n"),
    }
}

keys! { schema
    /// A line of code.
    pub struct AdviceLine(line: &CodeLine) {
        /// The file, as recorded.
        pub file: String = line.file.clone(),
        /// The line.
        pub line: u64 = line.line,
        /// The function.
        pub function: String = line.function.clone(),
    }
}

keys! { schema
    /// The cost of a change.
    pub struct AdviceCost(advice: &Advice) {
        /// The cost in words; null if there is none.
        pub words: Option<String> = advice.cost.clone(),
        /// Total bytes that the changed program copies to the CPU; null if it copies none.
        pub copies_bytes: Option<u64> = advice.copies,
    }
}

/// The saving of a change, as in JSON.
struct Figures {
    allocated: Option<i64>,
    reserved: Option<i64>,
    trust: Trust,
    reserved_trust: Trust,
    because: String,
    at_least: bool,
}

impl Figures {
    fn of(saving: &Saving) -> Self {
        match saving {
            Saving::Simulated { allocated, reserved, trust, reserved_trust, because, at_least, .. } => Self {
                allocated: Some(saved(*allocated)),
                reserved: Some(saved(*reserved)),
                trust: *trust,
                reserved_trust: *reserved_trust,
                because: because.clone(),
                at_least: *at_least,
            },
            Saving::NotSimulated { because, .. } => Self {
                allocated: None,
                reserved: None,
                trust: Trust::Refused,
                reserved_trust: Trust::Refused,
                because: because.clone(),
                at_least: false,
            },
        }
    }
}

/// Bytes by which a change lowers a peak; negative if it raises the peak.
fn saved(Lowered { before, after }: Lowered) -> i64 {
    i64::try_from(before).unwrap_or(i64::MAX).saturating_sub(i64::try_from(after).unwrap_or(i64::MAX))
}

/// The change, and its line.
pub(crate) fn change(advice: &Advice) -> String {
    match &advice.line {
        // A setting is not set where the memory is requested.
        Some(line) if advice.kind == RuleKind::FragmentationVarlen => {
            format!("{}; sizes vary at {}", advice.change, line.label)
        }
        Some(line) => format!("{}, at {}", advice.change, line.label),
        None => advice.change.clone(),
    }
}

pub(crate) fn effect(advice: &Advice) -> String {
    let saves = saves(&advice.saving);
    match &advice.cost {
        Some(cost) => format!("{saves}; {cost}"),
        None => saves,
    }
}

pub(crate) fn saves(saving: &Saving) -> String {
    match saving {
        Saving::Simulated { allocated, reserved, trust, reserved_trust, because, at_least, .. } => {
            let trust = match (*trust, *reserved_trust) {
                (Trust::Exact, Trust::Exact) => String::new(),
                (trust, _) if *at_least || trust == Trust::Uncertain && !because.is_empty() => {
                    format!(" ({}: {because})", trust.name())
                }
                (trust, reserved) if trust == reserved => format!(" ({})", trust.name()),
                (trust, reserved) => format!(" ({}; reserved {})", trust.name(), reserved.name()),
            };
            let of = |(lowered, what): (&Lowered, _)| match lowered.by() {
                0 => format!("none of {} {what}", Bytes(lowered.before)),
                bytes => format!("{} of {} {what}", Bytes(bytes), Bytes(lowered.before)),
            };
            let both = [(allocated, "allocated"), (reserved, "reserved")];
            let (rise, rest): (Vec<_>, Vec<_>) = both.into_iter().partition(|(lowered, _)| lowered.adds() > 0);
            let least = if *at_least { "at least " } else { "" };
            let mut told = if rest.is_empty() {
                "saves nothing".to_owned()
            } else {
                format!("saves {least}{}", rest.into_iter().map(of).collect::<Vec<_>>().join(", "))
            };
            for (lowered, what) in rise {
                told += &format!("; {what} memory rises from {} by {}", Bytes(lowered.before), Bytes(lowered.adds()));
            }
            told + &trust
        }
        Saving::NotSimulated { because, .. } => format!("savings not simulated: {because}"),
    }
}

pub(crate) fn instead(other: &Alternative) -> String {
    format!("or {}: {}", other.change, saves(&other.saving))
}

pub(crate) fn sentence(advice: &Advice) -> String {
    format!("{}: {}; {}", change(advice), effect(advice), advice.evidence)
}

impl Document {
    /// The first few changes, each with its saving, its evidence and its lines of Python; `failed` if a request failed.
    pub(crate) fn cures(&mut self, advice: &[Advice], failed: bool) {
        if advice.is_empty() {
            return;
        }
        self.section("What to change");
        let has_savings = |advice: &Advice| matches!(advice.saving, Saving::Simulated { .. });
        if failed && advice.iter().take(MOST).any(has_savings) {
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
            for other in &advice.alternatives {
                self.detail(5, instead(other));
                self.code(7, &other.code);
            }
        }
    }
}
