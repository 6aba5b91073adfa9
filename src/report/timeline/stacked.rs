//! What a plot stacks.

use crate::analysis::timeline::Band;
use crate::facts::grouping::GroupBy;
use crate::facts::grouping::attribution::OTHER;
use crate::report::common::picture::palette::{self, Color};
use std::borrow::Cow;

/// What a plot stacks.
pub(super) struct Stack<'a> {
    pub bands: Cow<'a, [Band]>,
    pub colors: Vec<Color>,
    pub by: GroupBy,
}

impl<'a> Stack<'a> {
    pub(super) fn of(bands: Cow<'a, [Band]>, by: GroupBy) -> Self {
        let colors = bands.iter().map(|band| color(band, by)).collect();
        Self { bands, colors, by }
    }
}

/// The colour of a band. What is left of a category has the category's.
pub(super) fn color(band: &Band, by: GroupBy) -> Color {
    match band.category {
        Some(category) if by == GroupBy::Category => palette::of_category(category),
        Some(category) if band.label == OTHER => palette::of_category(category),
        _ => palette::of_label(&band.label),
    }
}
