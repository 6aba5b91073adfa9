//! The formats of pictures.

use super::Picture;
use std::io::{self, Write};

/// A format for pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum PictureFormat {
    /// A vector picture, for a web page or an issue
    Svg,
    /// A bitmap, for a chat
    #[cfg_attr(all(feature = "cli", not(feature = "png")), value(hide = true))]
    Png,
}

impl PictureFormat {
    /// Whether this build writes it: PNG takes the feature `png`.
    pub fn is_built(self) -> bool {
        self == Self::Svg || cfg!(feature = "png")
    }
}

impl Picture {
    /// Writes the picture in a format.
    /// Fails if writing fails, this build does not write the format, or there are no fonts to draw text with.
    pub fn write_as(&self, format: PictureFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            PictureFormat::Svg => self.write(out),
            #[cfg(feature = "png")]
            PictureFormat::Png => super::png::write(self, out),
            #[cfg(not(feature = "png"))]
            PictureFormat::Png => Err(io::Error::other("expected a build with the feature png, found one without")),
        }
    }
}
