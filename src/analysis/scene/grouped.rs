//! The group of each holder of memory, computed once.

use crate::facts::device::Device;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder, Inference};
use crate::facts::training::Category;
use crate::replay::{Instant, Metric};
use crate::sorting::SortRows;
use std::cmp::Reverse;
use std::collections::HashMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SceneGroup {
    pub label: String,
    pub by: GroupBy,
    pub category: Option<Category>,
    pub inferred: bool,
    /// Its rank among similar groups.
    pub place: Place,
}

/// The rank of a group among those of its category, over the whole history: the same in all pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The category of most of its memory, if it is known for any group.
    pub category: Option<Category>,
    /// Number of larger groups in this category: those that hold more bytes for longer.
    pub index: usize,
    pub members: usize,
}

#[derive(Debug)]
pub(super) struct Grouped {
    pub groups: Vec<SceneGroup>,
    /// The group of each holder, by the index of the holder.
    pub of: Vec<u32>,
}

impl Grouped {
    /// Groups everything that ever counts for a metric. Groups do not overlap.
    pub fn of(device: &Device<'_>, metric: Metric, by: GroupBy) -> Self {
        let filter = Filter::default();
        let grouper = Grouper::new(device, device.deep_sites(), &filter, by).inferring(device, Inference::On, metric);
        let grouper = grouper.splitting_before(device, metric);
        let is_by_site = by == GroupBy::Site && metric != Metric::Reserved;
        let categories = is_by_site.then(|| device.categories());
        let mut groups = Groups::new(&grouper);
        let mut sizes: Vec<Size> = Vec::new();
        // After the last instant, so that blocks of a recording without entries count, too.
        let end = device.track.entries().saturating_add(1);
        let mut of = Vec::new();
        let mut inferred = Vec::new();
        Holder::visit(
            device.track,
            metric,
            |_, _| true,
            |holder| {
                let group = groups.of(holder).first().copied().unwrap_or(0);
                of.push(group as u32);
                if group >= inferred.len() {
                    inferred.resize(group + 1, false);
                }
                inferred[group] = inferred[group] || grouper.is_inferred(holder);
                if group >= sizes.len() {
                    sizes.resize_with(group + 1, Size::default);
                }
                let category = categories.map(|categories| categories.get(holder.index).category);
                sizes[group].add(holder, end, category);
            },
        );
        let places = places(&sizes);
        let heads = groups.heads(|_| std::iter::empty());
        let groups = heads.into_iter().enumerate().map(|(index, (_, head))| SceneGroup {
            by,
            category: Category::of_label(&head.label).filter(|_| by == GroupBy::Category),
            inferred: head.inferred || inferred.get(index).copied().unwrap_or(false),
            label: head.label,
            place: places.get(index).copied().unwrap_or_default(),
        });
        Self { groups: groups.collect(), of }
    }

    pub fn places(&self) -> HashMap<&str, Place> {
        self.groups.iter().map(|group| (group.label.as_str(), group.place)).collect()
    }
}

/// Bytes times instants.
#[derive(Default)]
struct Size {
    all: u128,
    by_category: HashMap<Category, u128>,
}

impl Size {
    /// Adds a holder up to the `end` of the history, which blocks that are never freed outlive by far.
    fn add(&mut self, holder: &Holder, end: Instant, category: Option<Category>) {
        let size = u128::from(holder.bytes) * u128::from(holder.gone.min(end).saturating_sub(holder.born));
        self.all = self.all.saturating_add(size);
        if let Some(category) = category {
            let sum = self.by_category.entry(category).or_default();
            *sum = sum.saturating_add(size);
        }
    }

    fn category(&self) -> Option<Category> {
        let largest = self.by_category.iter().max_by_key(|&(&category, &size)| (size, Reverse(category)));
        largest.map(|(&category, _)| category)
    }
}

fn places(sizes: &[Size]) -> Vec<Place> {
    let is_known = sizes.iter().any(|size| size.category().is_some_and(Category::is_known));
    let category = |size: &Size| size.category().filter(|_| is_known);
    let mut members: HashMap<Option<Category>, usize> = HashMap::new();
    let mut places = vec![Place::default(); sizes.len()];
    let mut largest_first: Vec<usize> = (0..sizes.len()).collect();
    largest_first.sort_rows_by_key(|&group| (Reverse(sizes[group].all), group));
    for group in largest_first {
        let category = category(&sizes[group]);
        let index = members.entry(category).or_default();
        places[group] = Place { category, index: *index, members: 0 };
        *index += 1;
    }
    for place in &mut places {
        place.members = members.get(&place.category).copied().unwrap_or_default();
    }
    places
}
