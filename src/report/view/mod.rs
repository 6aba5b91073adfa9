//! What `memviz view` shows beside curves: answers to a program that draws, as JSON.
//!
//! These are for the page that memviz brings along, which is always of the same version: other than the answers of commands
//! they have no schema, and change as the page needs it.

mod allocation;
mod difference;
mod figures;
mod findings;
mod flame;
mod frames;
#[cfg(feature = "view")]
pub mod page;
mod reading;
mod segments;
mod times;

pub use allocation::allocation;
pub use difference::difference;
pub use figures::figures;
pub use findings::findings;
pub use flame::flame;
pub use frames::frames;
pub use reading::Reading;
pub use segments::segments;
pub use times::{annotations, steps};

use super::common::picture::palette;
use crate::analysis::scene::SceneGroup;
use serde::Serialize;

/// A group with its colours, which are those of the pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What it is called.
    pub label: String,
    /// What it is for, where groups are categories.
    pub category: Option<&'static str>,
    /// Its colour on light ground.
    pub light: &'static str,
    /// Its colour on dark ground.
    pub dark: &'static str,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
}

impl From<&SceneGroup> for Group {
    fn from(group: &SceneGroup) -> Self {
        let color = palette::of_label(&group.label);
        Self {
            label: group.label.clone(),
            category: group.category.map(crate::facts::training::Category::name),
            light: color.light,
            dark: color.dark,
            inferred: group.inferred,
        }
    }
}

/// A value as JSON. What is written here has no maps with keys that are no text, so it always can be.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
