//! The group of everything that holds memory, worked out once.

use crate::facts::device::Device;
use crate::facts::grouping::filter::Filter;
use crate::facts::grouping::{GroupBy, Grouper, Groups, Holder, Inference};
use crate::facts::training::Category;
use crate::replay::Metric;

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SceneGroup {
    /// As in the rows of an attribution.
    pub label: String,
    /// What it is for, where groups are categories.
    pub category: Option<Category>,
    /// Whether the label is inferred rather than recorded.
    pub inferred: bool,
}

/// The group of each holder.
#[derive(Debug)]
pub(super) struct Grouped {
    /// The groups met, in that order.
    pub groups: Vec<SceneGroup>,
    /// Which of them a holder is in, by its index.
    pub of: Vec<u32>,
}

impl Grouped {
    /// Groups everything that ever counts for a metric. Groups do not overlap.
    pub fn of(device: &Device<'_>, metric: Metric, by: GroupBy) -> Self {
        let filter = Filter::default();
        let grouper =
            Grouper::new(device, device.deep_sites(), &filter, by).inferring(device, Inference::On, metric, None);
        let mut groups = Groups::new(&grouper);
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
            },
        );
        let heads = groups.heads(|_| std::iter::empty());
        let groups = heads.into_iter().enumerate().map(|(index, (_, head))| SceneGroup {
            category: Category::of_label(&head.label).filter(|_| by == GroupBy::Category),
            inferred: head.inferred || inferred.get(index).copied().unwrap_or(false),
            label: head.label,
        });
        Self { groups: groups.collect(), of }
    }
}
