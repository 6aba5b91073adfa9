//! The colors of pictures, in a light and a dark theme.
//!
//! An element has its light color as a plain attribute, which every renderer supports. One style sheet maps the light colors
//! of a picture to their dark partners if the reader prefers a dark theme. So there is one mechanism for our own elements and
//! for those that plotters writes, and every light color must have exactly one dark partner.

use super::hues::{self, Hue, PLAIN, STEPS};
use super::{Color, Rgb, contrast};
use crate::analysis::timeline;
use crate::facts::code::sites;
use crate::facts::grouping::{self, GroupBy, attribution, attribution::Row};
use crate::facts::training::{Category, Phase};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Behind everything.
pub(crate) const BACKGROUND: Color = Color::of("#FFFFFF", "#0D1117");
/// Text, the reserved line, and curves that are compared with others.
pub(crate) const TEXT: Color = Color::of("#1F2328", "#E6EDF3");
/// Text that matters less, and axes.
pub(crate) const MUTED: Color = Color::of("#59636E", "#9DA7B3");
/// Lines in the background.
pub(crate) const GRID: Color = Color::of("#D1D9E0", "#3D444D");
/// Failed requests, and the limit of the device.
pub(crate) const ALARM: Color = Color::of("#CF222E", "#FF7B72");
/// Leaks: darker than anything else in the light theme, and lighter than anything else in the dark theme.
pub(crate) const LEAK: Color = Color::of("#0B0E12", "#FCFDFF");
/// Ranges of annotations, in turn.
pub(crate) const RIBBONS: [Color; 2] = [Color::of("#DDE4EB", "#2B323B"), Color::of("#C8D1DA", "#424A54")];
/// Everything without its own color.
pub(crate) const OTHER: Color = Color::of("#8B949E", "#6E7783");
/// Blocks without a stack.
pub(crate) const NO_STACK: Color = Color::of("#57606A", "#B1BAC4");
/// Memory that is reserved and free.
pub(crate) const FREE: Color = Color::of("#F6F8FA", "#161B22");
/// Shapes without a category: a counter, a package, a bar.
pub(crate) const FIGURE: Color = PLAIN.base;

/// Text on a band: white or black, in the light theme by the first value, and in the dark theme by the second. Each
/// combination has a different light color, since a light color has one dark partner.
pub(super) const INKS: [[Color; 2]; 2] = [
    [Color::of("#FEFEFE", "#FFFFFF"), Color::of("#FDFDFD", "#000000")],
    [Color::of("#010101", "#FFFFFF"), Color::of("#000000", "#000000")],
];

const FIXED: [Color; 11] = [BACKGROUND, TEXT, MUTED, GRID, ALARM, LEAK, RIBBONS[0], RIBBONS[1], OTHER, NO_STACK, FREE];

impl Hue {
    /// A step between the strongest and the faintest color, of [`STEPS`].
    fn step(&self, step: usize) -> Color {
        self.strongest.towards(self.faintest, step, STEPS - 1)
    }

    /// The color of one of several members of a category, the largest first.
    fn member(&self, place: usize, members: usize) -> Color {
        match members {
            0 | 1 => self.base,
            // More members than steps share the last ones: a picture has no more bands than that.
            _ => self.step(place * (STEPS - 1) / (members - 1).max(1)),
        }
    }

    fn all(self) -> impl Iterator<Item = Color> {
        (0..STEPS).map(move |step| self.step(step)).chain([self.base])
    }
}

impl From<Rgb> for svg::node::Value {
    fn from(rgb: Rgb) -> Self {
        rgb.to_string().into()
    }
}

pub(super) fn all() -> impl Iterator<Item = Color> {
    let hues = Category::ALL.into_iter().map(hues::of_category).chain([PLAIN]);
    FIXED.into_iter().chain(INKS.into_iter().flatten()).chain(hues.flat_map(Hue::all))
}

/// The style sheet that turns the light colors of a drawing into dark ones.
pub(crate) fn style_sheet(drawing: &str) -> String {
    let dark: HashMap<String, Rgb> = all().map(|color| (color.light.to_string(), color.dark)).collect();
    let quoted = drawing.split('"').filter(|part| part.len() == 7 && part.starts_with('#'));
    let mut used: Vec<&str> = quoted.collect();
    used.sort_unstable();
    used.dedup();
    let mut rules = String::from("@media (prefers-color-scheme:dark){");
    for light in used {
        if let Some(dark) = dark.get(light) {
            rules += &format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
        }
    }
    rules + "}"
}

/// The color of text on another one, whichever reads better in each theme.
pub(crate) fn on(band: Color) -> Color {
    let is_black = |shade| contrast(shade, Rgb([0; 3])) > contrast(shade, Rgb([255; 3]));
    INKS[usize::from(is_black(band.light))][usize::from(is_black(band.dark))]
}

pub(crate) fn of_category(category: Category) -> Color {
    hues::of_category(category).base
}

/// The color of a group that has its own in every picture: of a category or a phase.
pub(crate) fn of_kind(by: GroupBy, label: &str, category: Option<Category>) -> Option<Color> {
    match by {
        GroupBy::Category => category.map(of_category),
        GroupBy::Phase => {
            let phase = Phase::ALL.into_iter().find(|phase| phase.name() == label);
            phase.map(|phase| hues::of_phase(phase).base)
        }
        _ => None,
    }
}

pub(crate) fn of_special(label: &str) -> Option<Color> {
    match label {
        sites::NO_STACK => Some(NO_STACK),
        grouping::BASELINE | grouping::NOT_RECORDED => Some(of_category(Category::BeforeRecording)),
        grouping::FILTERED | attribution::OTHER => Some(OTHER),
        timeline::INACTIVE => Some(GRID),
        timeline::LEAKS => Some(LEAK),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub label: &'a str,
    pub category: Option<Category>,
    /// The color that it has in every picture.
    pub own: Option<Color>,
    pub bytes: u64,
}

impl<'a> Member<'a> {
    pub(crate) fn of_row(row: &'a Row, by: GroupBy) -> Self {
        let own = of_kind(by, &row.label, row.category);
        Self { label: &row.label, category: row.category, own, bytes: row.bytes }
    }
}

/// The colors of all groups of a picture: shades of their category's hue by size, and the rest of a category last. If no
/// category is known, or groups have none, shades of the hue of groups without a category.
pub(crate) fn together(members: &[Member<'_>]) -> Vec<Color> {
    let is_by_category = members.iter().any(|member| member.category.is_some_and(Category::is_known));
    let category = |member: &Member<'_>| member.category.filter(|_| is_by_category);
    let fixed = |member: &Member<'_>| match (member.own, category(member)) {
        (None, None) => of_special(member.label),
        (own, _) => own,
    };
    let mut by_size: Vec<usize> = (0..members.len()).collect();
    let is_rest = |index: usize| members[index].label == attribution::OTHER;
    by_size.sort_rows_by_key(|&index| (is_rest(index), Reverse(members[index].bytes), members[index].label, index));
    let mut colors: Vec<Color> = members.iter().map(|member| fixed(member).unwrap_or(OTHER)).collect();
    let free = |&index: &usize| fixed(&members[index]).is_none();
    let mut families: Vec<(Option<Category>, Vec<usize>)> = Vec::new();
    for index in by_size.into_iter().filter(free) {
        let own = category(&members[index]);
        match families.iter_mut().find(|(category, _)| *category == own) {
            Some((_, indexes)) => indexes.push(index),
            None => families.push((own, vec![index])),
        }
    }
    for (category, indexes) in families {
        for (place, &index) in indexes.iter().enumerate() {
            colors[index] = of_place(category, place, indexes.len());
        }
    }
    colors
}

/// The color of the group with index `place` in its category, by size; without a category, in the hue of groups without one.
pub(crate) fn of_place(category: Option<Category>, place: usize, members: usize) -> Color {
    category.map_or(PLAIN, hues::of_category).member(place, members)
}
