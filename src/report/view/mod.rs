//! The parts of `memviz view` besides curves: answers to a program that draws, as JSON.
//!
//! These are for the page that is part of memviz, which always has the same version: unlike the answers of commands, they
//! have no schema, and change with the page.

mod allocation;
mod difference;
mod events;
mod figures;
mod findings;
mod flame;
mod frames;
mod matched;
#[cfg(feature = "view")]
pub(crate) mod page;
mod reading;
mod segments;
mod times;
mod tried;

pub use allocation::allocation;
pub use difference::{difference, flow};
pub use events::{events, request, stack};
pub use figures::figures;
#[cfg(feature = "view")]
pub(crate) use findings::all_findings;
pub use findings::findings;
pub use flame::flame;
pub use frames::frames;
pub use matched::matched;
pub use reading::Reading;
pub use segments::segments;
pub use times::{annotations, phases, samples, steps};
pub use tried::{choices, gpus, tried};

use super::common::palette::{self, Color};
use super::common::words;
use crate::analysis::scene::{Place, SceneGroup};
use crate::facts::grouping::GroupBy;
use crate::facts::training::Category;
use serde::Serialize;

/// A group with its colors, which are those of the pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    pub label: String,
    /// The category of most of its memory, if it is known, by name and in words.
    pub category: Option<&'static str>,
    pub purpose: Option<&'static str>,
    pub light: String,
    pub dark: String,
    pub inferred: bool,
}

impl From<&SceneGroup> for Group {
    fn from(group: &SceneGroup) -> Self {
        let color = color(group.by, &group.label, group.category, group.place);
        let category = group.category.or(group.place.category);
        Self {
            label: group.label.clone(),
            category: category.map(Category::name),
            purpose: category.map(|category| words::category(category.name())),
            light: color.light.to_string(),
            dark: color.dark.to_string(),
            inferred: group.inferred,
        }
    }
}

/// Number of steps of a hue for the sites of the page: more of them could not be distinguished.
const STEPS: usize = 16;

/// The color of a group: its own if groups are categories or phases, otherwise by its position.
fn color(by: GroupBy, label: &str, category: Option<Category>, place: Place) -> Color {
    match (palette::of_kind(by, label, category), place.category) {
        (Some(own), _) => own,
        (None, Some(category)) => palette::of_place(Some(category), place.index % STEPS, place.members.min(STEPS)),
        (None, None) => {
            palette::of_special(label).unwrap_or_else(|| palette::of_place(None, place.index, place.members))
        }
    }
}

/// A value as JSON. Values here contain no maps with keys that are not text, so this always succeeds.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
