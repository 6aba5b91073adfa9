//! The single table of colors: terminal, pictures, HTML and page use it.
//!
//! Each category has a hue, the same everywhere. Sites are steps of lightness of their category's hue, by size. Gray
//! means unknown or older than the recording. Red means failure, and nothing else.

pub(crate) mod hues;
#[cfg(feature = "plot")]
mod picture;
#[cfg(test)]
mod tests;

#[cfg(feature = "plot")]
pub(crate) use picture::*;

use serde::{Serialize, Serializer};
use std::fmt;

/// Red, green and blue; shown as `#RRGGBB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Rgb(pub [u8; 3]);

impl Rgb {
    /// From `#RRGGBB`, when memviz is built.
    const fn of(hex: &str) -> Self {
        let [b'#', digits @ ..] = hex.as_bytes() else { return Self([0; 3]) };
        let [r1, r2, g1, g2, b1, b2] = *digits else { return Self([0; 3]) };
        Self([pair(r1, r2), pair(g1, g2), pair(b1, b2)])
    }

    /// The color `step` of `steps` of the way to another.
    fn towards(self, other: Self, step: usize, steps: usize) -> Self {
        let steps = steps.max(1);
        let step = step.min(steps);
        let part = |at: usize| {
            let sum = usize::from(self.0[at]) * (steps - step) + usize::from(other.0[at]) * step;
            // Between the two, and so below 256.
            ((sum + steps / 2) / steps) as u8
        };
        Self([part(0), part(1), part(2)])
    }
}

/// The contrast ratio of two colors as WCAG 2 defines it: 1 to 21.
#[cfg(any(feature = "plot", test))]
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let [a, b] = [a, b].map(|color| luminance(color) + 0.05);
    a.max(b) / a.min(b)
}

#[cfg(any(feature = "plot", test))]
fn luminance(Rgb(parts): Rgb) -> f64 {
    let [red, green, blue] = parts.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/// Linear light of one channel of sRGB.
#[cfg(any(feature = "plot", test))]
fn linear(channel: u8) -> f64 {
    let value = f64::from(channel) / 255.0;
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}

const fn pair(high: u8, low: u8) -> u8 {
    digit(high) * 16 + digit(low)
}

const fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'A'..=b'F' => byte - b'A' + 10,
        _ => 0,
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(out, "#{red:02X}{green:02X}{blue:02X}")
    }
}

impl Serialize for Rgb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Color {
    /// On white.
    pub light: Rgb,
    /// On the dark background of pictures.
    pub dark: Rgb,
}

impl Color {
    const fn of(light: &str, dark: &str) -> Self {
        Self { light: Rgb::of(light), dark: Rgb::of(dark) }
    }

    fn towards(self, other: Self, step: usize, steps: usize) -> Self {
        Self { light: self.light.towards(other.light, step, steps), dark: self.dark.towards(other.dark, step, steps) }
    }
}
