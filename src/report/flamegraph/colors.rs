//! The colors of frames: by the use of most of their memory, or otherwise by the owner of their code.

use crate::analysis::flame::{FlameNode, Owner};
use crate::facts::training::Category;
use crate::report::common::palette::{self, Color, Member};
use crate::report::common::words::category;
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Frames whose memory has several uses.
const SEVERAL: Color = palette::FIGURE;

/// The colors of the frames of a picture, the same on all devices.
pub(crate) enum Colors<'a> {
    Categories,
    /// By package, if no category is known.
    Packages(HashMap<&'a str, Color>),
}

impl<'a> Colors<'a> {
    pub(crate) fn of(nodes: impl Iterator<Item = &'a FlameNode> + Clone) -> Self {
        if nodes.clone().any(|node| node.category.is_some_and(Category::is_known)) {
            return Self::Categories;
        }
        let packages = packages(nodes);
        let member = |&(label, bytes): &(&'a str, u64)| Member { label, category: None, own: None, bytes };
        let colors = palette::together(&packages.iter().map(member).collect::<Vec<_>>());
        Self::Packages(packages.iter().map(|&(package, _)| package).zip(colors).collect())
    }

    pub(crate) fn of_node(&self, node: &FlameNode) -> Color {
        match (self, &node.owner) {
            (_, Owner::Group) => named(&node.label).unwrap_or(SEVERAL),
            (Self::Categories, _) => node.category.map_or(SEVERAL, palette::of_category),
            (Self::Packages(colors), Owner::Package(package)) => {
                colors.get(&**package).copied().unwrap_or(palette::OTHER)
            }
            (Self::Packages(..), Owner::Native) => palette::OTHER,
            (Self::Packages(..), Owner::Nobody) => palette::of_special(&node.label).unwrap_or(palette::OTHER),
        }
    }

    pub(crate) fn legend(&self, nodes: &[FlameNode]) -> Vec<(String, Color)> {
        match self {
            Self::Categories => {
                let categories = largest_first(nodes.iter().filter_map(|node| Some((node.category?, node.own_bytes))));
                let known =
                    categories.iter().map(|(it, _)| (category(it.name()).to_owned(), palette::of_category(*it)));
                let mixed = nodes.iter().any(|node| node.category.is_none());
                known.chain(mixed.then(|| ("several categories".to_owned(), SEVERAL))).collect()
            }
            Self::Packages(colors) => {
                let packages = packages(nodes.iter());
                let named =
                    packages.iter().filter_map(|(package, _)| Some(((*package).to_owned(), *colors.get(package)?)));
                let native = nodes.iter().any(|node| node.owner == Owner::Native);
                named.chain(native.then(|| ("C++".to_owned(), palette::OTHER))).collect()
            }
        }
    }
}

fn packages<'n>(nodes: impl Iterator<Item = &'n FlameNode>) -> Vec<(&'n str, u64)> {
    largest_first(nodes.filter_map(|node| match &node.owner {
        Owner::Package(package) => Some((&**package, node.own_bytes)),
        _ => None,
    }))
}

fn named(label: &str) -> Option<Color> {
    Category::ALL.into_iter().find(|category| category.name() == label).map(palette::of_category)
}

fn largest_first<T: Ord + Copy>(parts: impl Iterator<Item = (T, u64)>) -> Vec<(T, u64)> {
    let mut sums: BTreeMap<T, u64> = BTreeMap::new();
    for (part, bytes) in parts {
        let sum = sums.entry(part).or_default();
        *sum = sum.wrapping_add(bytes);
    }
    let mut sums: Vec<(T, u64)> = sums.into_iter().collect();
    sums.sort_rows_by_key(|&(part, bytes)| (Reverse(bytes), part));
    sums
}
