//! The contents of a plot.

use crate::analysis::timeline::{Band, DeviceTimeline};
use crate::facts::grouping::GroupBy;
use crate::facts::training::Category;
use crate::report::common::palette::{self, Color, Member};
use crate::sorting::SortRows;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The contents of a plot: bands with their colors.
pub(super) struct Stack<'a> {
    pub bands: Cow<'a, [Band]>,
    pub colors: Vec<Color>,
    pub by: GroupBy,
}

/// The colors of the bands of all devices of a picture: a band on several of them has one color.
pub(crate) struct Colors<'a>(HashMap<(&'a str, Option<Category>), Color>);

impl<'a> Colors<'a> {
    pub(crate) fn of(devices: impl Iterator<Item = &'a DeviceTimeline>) -> Self {
        let mut bands: Vec<(&'a Band, GroupBy)> = Vec::new();
        for device in devices {
            bands.extend(device.bands.iter().map(|band| (band, device.peak.attribution.by)));
        }
        // If a band is on several devices, the larger one determines it.
        bands.sort_rows_by_key(|(band, _)| Reverse(band.bytes_there));
        let mut seen = HashSet::new();
        bands.retain(|(band, _)| seen.insert((band.label.as_str(), band.category)));
        let members: Vec<Member<'_>> = bands.iter().map(|&(band, by)| member(band, by)).collect();
        let keys = bands.iter().map(|(band, _)| (band.label.as_str(), band.category));
        Self(keys.zip(palette::together(&members)).collect())
    }

    fn of_band(&self, band: &Band) -> Color {
        self.0.get(&(band.label.as_str(), band.category)).copied().unwrap_or(palette::OTHER)
    }
}

impl<'a> Stack<'a> {
    pub(super) fn of(device: &'a DeviceTimeline, colors: &Colors<'_>) -> Self {
        let by = device.peak.attribution.by;
        let colors = device.bands.iter().map(|band| colors.of_band(band)).collect();
        Self { bands: Cow::Borrowed(&device.bands), colors, by }
    }

    pub(super) fn of_categories(device: &DeviceTimeline) -> Self {
        let bands = device.categories();
        let members: Vec<Member<'_>> = bands.iter().map(|band| member(band, GroupBy::Category)).collect();
        let colors = palette::together(&members);
        Self { bands: Cow::Owned(bands), colors, by: GroupBy::Category }
    }
}

fn member(band: &Band, by: GroupBy) -> Member<'_> {
    let own = palette::of_kind(by, &band.label, band.category);
    Member { label: &band.label, category: band.category, own, bytes: band.bytes_there }
}
