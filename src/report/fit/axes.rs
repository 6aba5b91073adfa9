//! The axes of the picture: linear, or logarithmic if the numbers are far apart.

use super::words::two_digits;
use crate::analysis::fit::DeviceFit;
use crate::report::common::picture::plot::{LEFT, PLOT_HEIGHT, PLOT_WIDTH, vertical};
use crate::report::common::picture::shape::{Anchor, px, text};
use crate::report::common::picture::{Script, chart, palette};
use svg::node::Blob;
use svg::node::element::{Group, Line};

/// Axes are logarithmic if the largest number is at least this many times the smallest.
const FAR: u64 = 20;
/// The most lines of the grid.
const LINES: u32 = 9;

pub(super) struct Axes {
    /// The numbers, each with its label.
    values: Vec<(u64, u64)>,
    /// Ends of both axes.
    across: (f64, f64),
    up: (f64, f64),
    is_logarithmic: bool,
}

impl Axes {
    pub(super) fn of(device: &DeviceFit) -> Self {
        let values: Vec<u64> = device.predictions.iter().map(|it| it.value.max(1)).collect();
        let (least, most) = (values.iter().min().copied().unwrap_or(1), values.iter().max().copied().unwrap_or(1));
        let finished = device.predictions.iter().filter(|it| it.fits());
        let bytes: Vec<u64> = finished
            .flat_map(|it| {
                let ranges = [it.allocated_range, it.reserved_range].into_iter().flatten();
                let ends = ranges.flat_map(|(least, most)| [least, most]);
                [it.outcome.max_allocated, it.outcome.max_reserved].into_iter().chain(ends)
            })
            .chain(device.capacity)
            .collect();
        let lowest = bytes.iter().min().copied().unwrap_or(1).max(1) as f64;
        let highest = bytes.iter().max().copied().unwrap_or(1).max(1) as f64;
        let is_logarithmic = most / FAR >= least;
        let (across, up) = if is_logarithmic {
            ((least as f64 * 0.8, most as f64 * 1.25), (lowest * 0.7, highest * 1.4))
        } else {
            ((0.0, most as f64 * 1.04), (0.0, highest * 1.06))
        };
        let label = |value: u64| if device.is_far(value) { two_digits(value) } else { value };
        let values = values.into_iter().map(|value| (value, label(value))).collect();
        Self { values, across, up, is_logarithmic }
    }

    /// The position of a value between both ends.
    fn part(&self, value: f64, (first, last): (f64, f64)) -> f64 {
        let part = if self.is_logarithmic {
            (value.max(f64::MIN_POSITIVE) / first).ln() / (last / first).ln()
        } else {
            (value - first) / (last - first)
        };
        part.clamp(0.0, 1.0)
    }

    pub(super) fn x(&self, value: u64) -> f64 {
        f64::from(LEFT) + f64::from(PLOT_WIDTH) * self.part(value as f64, self.across)
    }

    pub(super) fn y(&self, bytes: u64) -> f64 {
        f64::from(PLOT_HEIGHT) * (1.0 - self.part(bytes as f64, self.up))
    }

    pub(super) fn draw(&self, name: &str) -> Group {
        if self.is_logarithmic { self.logarithmic(name) } else { self.linear(name) }
    }

    fn linear(&self, name: &str) -> Group {
        let area = chart::Area { left: LEFT, top: 0, width: PLOT_WIDTH, height: PLOT_HEIGHT };
        let unit = chart::Unit { name: "", size: 1.0 };
        let x = chart::Axis { first: 0.0, last: self.across.1, unit, labels: 10 };
        let y = chart::Axis { first: 0.0, last: self.up.1, unit: chart::Unit::of_bytes(self.up.1), labels: 6 };
        Group::new().add(Blob::new(chart::draw(area, x, y, name, &[])))
    }

    /// Powers of two up, and the numbers themselves across.
    fn logarithmic(&self, name: &str) -> Group {
        let (left, bottom) = (f64::from(LEFT), f64::from(PLOT_HEIGHT));
        let right = left + f64::from(PLOT_WIDTH);
        let horizontal = |y: f64| Line::new().set("x1", LEFT).set("x2", px(right)).set("y1", px(y)).set("y2", px(y));
        let mut group = Group::new().add(horizontal(bottom).set("stroke", palette::MUTED.light));
        group = group.add(vertical(left, 0.0, bottom, palette::MUTED));
        let unit = chart::Unit::of_bytes(self.up.1);
        let powers = (self.up.0.log2().ceil() as u32)..=(self.up.1.log2().floor() as u32).min(63);
        let every = (powers.clone().count() as u32).div_ceil(LINES).max(1);
        for power in powers.step_by(every as usize) {
            let y = self.y(1 << power);
            let label = format!("{} {}", (1u64 << power) as f64 / unit.size, unit.name);
            group = group.add(horizontal(y).set("stroke", palette::GRID.light));
            group = group.add(text(left - 8.0, y + 4.0, Anchor::End, palette::MUTED, &label));
        }
        let mut taken = f64::MIN;
        for &(value, label) in &self.values {
            let (x, label) = (self.x(value), label.to_string());
            let half = Script::Label.width(&label) / 2.0;
            group = group.add(vertical(x, bottom, bottom + 4.0, palette::MUTED));
            if x - half > taken + 6.0 {
                taken = x + half;
                group = group.add(text(x, bottom + 17.0, Anchor::Middle, palette::MUTED, &label));
            }
        }
        let below = bottom + f64::from(chart::BELOW) - 2.0;
        let name = format!("{name} (both axes are logarithmic)");
        group.add(text(f64::midpoint(left, right), below, Anchor::Middle, palette::MUTED, &name))
    }
}
