//! A picture as PNG: its SVG in the light theme, drawn with fonts of the system, for places that show no SVG.

use super::Picture;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, FaceInfo};
use resvg::usvg::{Options, Tree};
use std::io::{self, Write};

/// Pixels of the image for one of the picture: high-density screens show twice as many.
const SCALE: f32 = 2.0;
/// Images with longer sides have one pixel for each of the picture, which limits their memory.
const LONG: f32 = 8_000.0;
/// Fonts that look good; the first one found is used, otherwise the system's default.
const SANS: [&str; 6] = ["DejaVu Sans", "Noto Sans", "Liberation Sans", "Segoe UI", "Helvetica", "Arial"];
const MONO: [&str; 6] = ["DejaVu Sans Mono", "Noto Sans Mono", "Liberation Mono", "Consolas", "Menlo", "Courier New"];

/// Draws a picture.
/// Fails if writing fails, or the system has no fonts.
pub(super) fn write(picture: &Picture, out: &mut dyn Write) -> io::Result<()> {
    let mut svg = Vec::new();
    picture.write(&mut svg)?;
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    let missing = || io::Error::other("found no system fonts to draw text with; .svg needs none");
    let sans = family(fonts, &SANS, false).ok_or_else(missing)?;
    let mono = family(fonts, &MONO, true).unwrap_or_else(|| sans.clone());
    fonts.set_sans_serif_family(sans);
    fonts.set_monospace_family(mono);

    let tree = Tree::from_data(&svg, &options).map_err(io::Error::other)?;
    let size = tree.size();
    let scale = if size.width().max(size.height()) * SCALE > LONG { 1.0 } else { SCALE };
    let [width, height] = [size.width(), size.height()].map(|side| (side * scale).ceil() as u32);
    let too_large = || {
        io::Error::other(format!("expected a picture that is small enough to draw, found {width} by {height} pixels"))
    };
    let mut image = Pixmap::new(width, height).ok_or_else(too_large)?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut image.as_mut());
    out.write_all(&image.encode_png().map_err(io::Error::other)?)
}

/// The first of these families that is installed, otherwise the first family of its kind.
fn family(fonts: &Database, wanted: &[&str], is_mono: bool) -> Option<String> {
    let names = |face: &FaceInfo| face.families.first().map(|(name, _)| name.clone());
    let has = |wanted: &&&str| fonts.faces().any(|face| names(face).as_deref() == Some(**wanted));
    let first = || fonts.faces().find(|face| face.monospaced == is_mono).and_then(names);
    wanted.iter().find(has).map(|&name| name.to_owned()).or_else(first)
}

#[cfg(test)]
mod tests {
    use super::super::remark;
    use super::*;

    /// Includes text, on a system that has fonts.
    #[test]
    fn pictures_are_drawn() {
        let mut png = Vec::new();
        let picture = remark("memory");
        match write(&picture, &mut png) {
            Ok(()) => {
                let image = Pixmap::decode_png(&png).unwrap();
                assert_eq!((image.width(), image.height()), (2400, 80));
                let is_dark = |pixel: &resvg::tiny_skia::PremultipliedColorU8| pixel.red() < 128;
                assert!(image.pixels().iter().filter(|pixel| is_dark(pixel)).count() > 50, "there is text");
            }
            Err(error) => assert!(error.to_string().contains("fonts"), "{error}"),
        }
    }
}
