//! The colours of all pictures, in a light and a dark theme.
//!
//! An element carries its light colour as a plain attribute, which every renderer understands. One style sheet maps the
//! light colours to their dark partners where the reader prefers a dark theme. So there is one mechanism for elements of
//! our own and those that plotters writes, and every light colour must have one dark partner.

use crate::analysis::timeline;
use crate::facts::code::sites;
use crate::facts::grouping::{self, attribution};
use crate::facts::training::Category;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// A colour in both themes, as `#RRGGBB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color {
    /// On white.
    pub light: &'static str,
    /// On [`BACKGROUND`]'s dark colour.
    pub dark: &'static str,
}

const fn color(light: &'static str, dark: &'static str) -> Color {
    Color { light, dark }
}

/// Behind everything.
pub const BACKGROUND: Color = color("#FFFFFF", "#0D1117");
/// Text and the reserved line.
pub const TEXT: Color = color("#1F2328", "#E6EDF3");
/// Text that matters less, and axes.
pub const MUTED: Color = color("#59636E", "#9DA7B3");
/// Lines that must not draw the eye.
pub const GRID: Color = color("#D1D9E0", "#3D444D");
/// Failed requests and limits.
pub const ALARM: Color = color("#CF222E", "#FF7B72");
/// Ranges of annotations, in turn.
pub const RIBBONS: [Color; 2] = [color("#DDE4EB", "#2B323B"), color("#C8D1DA", "#424A54")];
/// Everything without a colour of its own.
pub const OTHER: Color = color("#8B949E", "#6E7783");
/// Blocks without a stack.
pub const NO_STACK: Color = color("#57606A", "#B1BAC4");
/// Blocks from before the recording.
pub const BASELINE: Color = color("#7A6F5D", "#8F8574");
/// What may be a parameter, a buffer, a gradient or a state of the optimizer.
pub const MODEL_STATE: Color = color("#012029", "#F0FEEB");
/// Memory that is reserved and free.
pub const FREE: Color = color("#F6F8FA", "#161B22");

/// Colours of groups. Under normal vision and the three kinds of colour blindness any two differ, and each stands out
/// from the background in both themes; the tests measure it.
pub const GROUPS: [Color; 14] = [
    color("#568AFF", "#1C70D3"),
    color("#AC900A", "#FCBC38"),
    color("#084E28", "#81FD9C"),
    color("#E61C4F", "#CA0113"),
    color("#066181", "#76A6CB"),
    color("#6C36FE", "#9B79FA"),
    color("#3F86AA", "#2E6C7F"),
    color("#562A55", "#9975A3"),
    color("#D059D5", "#C018BD"),
    color("#5C22A2", "#C1A8FF"),
    color("#756018", "#B6A618"),
    color("#B30374", "#E081A0"),
    color("#A417CB", "#FACCFE"),
    color("#900603", "#DA643B"),
];

/// A second shade of each of them, for names only: there are more names than groups that must differ. They differ less from
/// each other, but visibly.
pub const SHADES: [Color; GROUPS.len()] = [
    color("#130A84", "#A8C5F0"),
    color("#3B2600", "#FFD261"),
    color("#5F9F74", "#43C471"),
    color("#744448", "#F09A9B"),
    color("#2D7492", "#7EB7DD"),
    color("#2A0458", "#8F5AF9"),
    color("#0B5568", "#2995C7"),
    color("#672981", "#BE77DF"),
    color("#AC4ACB", "#A5439A"),
    color("#8760EE", "#AA93FD"),
    color("#8F710C", "#D1CB81"),
    color("#4F012F", "#FA21A2"),
    color("#8C3CAB", "#BE32DF"),
    color("#D5715A", "#895652"),
];

const ALL: [&[Color]; 4] =
    [&[BACKGROUND, TEXT, MUTED, GRID, ALARM, OTHER, NO_STACK, BASELINE, MODEL_STATE, FREE], &RIBBONS, &GROUPS, &SHADES];

/// The style sheet that turns light colours into dark ones.
pub fn style_sheet() -> String {
    let mut rules = String::from("@media (prefers-color-scheme:dark){");
    for Color { light, dark } in ALL.iter().copied().flatten() {
        rules += &format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    rules + "}"
}

/// Colours for names: those of groups, and their second shades.
const PLACES: usize = 2 * GROUPS.len();

/// The colour of a name: the same in every picture, on every device and in every recording.
pub fn of_name(name: &str) -> Color {
    at(place(name))
}

fn place(name: &str) -> usize {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    name.hash(&mut hasher);
    // The high half of the product depends on every bit of the hash.
    ((u128::from(hasher.finish()) * PLACES as u128) >> 64) as usize
}

fn at(place: usize) -> Color {
    if place < GROUPS.len() { GROUPS[place] } else { SHADES[place - GROUPS.len()] }
}

/// The colour of a category, the same in every picture.
pub fn of_category(category: Category) -> Color {
    GROUPS[match category {
        Category::Parameter => 0,
        Category::Gradient => 1,
        Category::OptimizerState => 2,
        Category::Temporary => 3,
        Category::Buffer => 4,
        Category::KvCache => 5,
        Category::Input => 6,
        Category::Workspace => 7,
        Category::Activation => 8,
        Category::Communication => 9,
        Category::ModelState => return MODEL_STATE,
        Category::BeforeRecording => return BASELINE,
        Category::Unknown => return OTHER,
    }]
}

/// The colour of what is no group of its own, by its label.
pub fn of_special(label: &str) -> Option<Color> {
    match label {
        sites::NO_STACK => Some(NO_STACK),
        grouping::BASELINE | grouping::NOT_RECORDED => Some(BASELINE),
        grouping::FILTERED | attribution::OTHER => Some(OTHER),
        timeline::INACTIVE => Some(GRID),
        timeline::LEAKS => Some(ALARM),
        label => Category::ALL.into_iter().find(|category| category.name() == label).map(of_category),
    }
}

/// The colour of a group by its label.
pub fn of_label(label: &str) -> Color {
    of_special(label).unwrap_or_else(|| of_name(label))
}

/// Colours of names that are to differ from each other more than they are to be the same everywhere: what would have the colour
/// of something larger takes the next that is free.
#[derive(Debug, Default)]
pub struct SideBySide<'n>(HashMap<&'n str, Color>);

impl<'n> SideBySide<'n> {
    /// Colours for names, the largest first.
    pub fn of_largest_first(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut is_taken = [false; PLACES];
        let mut colors = HashMap::new();
        for name in names {
            colors.entry(name).or_insert_with(|| {
                let own = place(name);
                let free = (own..own + PLACES).map(|place| place % PLACES).find(|&place| !is_taken[place]);
                let place = free.unwrap_or(own);
                is_taken[place] = true;
                at(place)
            });
        }
        Self(colors)
    }

    /// The colour of a name.
    pub fn of(&self, name: &str) -> Color {
        self.0.get(name).copied().unwrap_or_else(|| of_name(name))
    }
}

/// FNV-1a: unlike the standard library's hasher it is specified, so colours stay what they are across releases.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    type Rgb = [f64; 3];

    /// Linear light of a colour.
    fn linear(hex: &str) -> Rgb {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn times(matrix: [Rgb; 3], [x, y, z]: Rgb) -> Rgb {
        matrix.map(|row| row[0] * x + row[1] * y + row[2] * z)
    }

    /// Contrast ratio of WCAG 2.
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex| times([[0.2126, 0.7152, 0.0722]; 3], linear(hex))[0] + 0.05;
        let (a, b): (f64, f64) = (luminance(a), luminance(b));
        a.max(b) / a.min(b)
    }

    /// Coordinates in Oklab, where distance is what the eye sees.
    fn oklab(rgb: Rgb) -> Rgb {
        let cones = times(
            [
                [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
                [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
                [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
            ],
            rgb,
        );
        times(
            [
                [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
                [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
                [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
            ],
            cones.map(f64::cbrt),
        )
    }

    /// What people see: normal vision, protanopia, deuteranopia, tritanopia (Machado et al. 2009).
    const VISION: [[Rgb; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
        [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
        [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]],
    ];

    #[test]
    fn groups_are_told_apart_with_any_kind_of_vision() {
        for (theme, pick) in
            [("light", (|color| color.light) as fn(Color) -> &'static str), ("dark", |color| color.dark)]
        {
            for vision in VISION {
                let seen = |color| oklab(times(vision, linear(pick(color))).map(|part| part.clamp(0.0, 1.0)));
                let all: Vec<Color> = GROUPS.into_iter().chain([MODEL_STATE]).collect();
                for (index, &a) in all.iter().enumerate() {
                    for &b in &all[..index] {
                        let distance = seen(a).iter().zip(seen(b)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
                        assert!(distance > 0.07, "{theme}: {} and {} are {distance:.3} apart", pick(a), pick(b));
                    }
                }
            }
        }
    }

    #[test]
    fn shades_are_told_apart_with_any_kind_of_vision() {
        let all: Vec<Color> = GROUPS.into_iter().chain(SHADES).chain([OTHER, NO_STACK, BASELINE]).collect();
        for pick in [(|color| color.light) as fn(Color) -> &'static str, |color| color.dark] {
            for vision in VISION {
                let seen = |color| oklab(times(vision, linear(pick(color))).map(|part| part.clamp(0.0, 1.0)));
                for (index, &a) in all.iter().enumerate() {
                    for &b in all[..index].iter().filter(|&&b| SHADES.contains(&a) || SHADES.contains(&b)) {
                        let distance = seen(a).iter().zip(seen(b)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
                        assert!(distance > 0.04, "{} and {} are {distance:.3} apart", pick(a), pick(b));
                    }
                }
            }
        }
    }

    #[test]
    fn everything_stands_out_from_the_background() {
        for color in
            GROUPS.into_iter().chain(SHADES).chain([TEXT, MUTED, ALARM, OTHER, NO_STACK, BASELINE, MODEL_STATE])
        {
            let text = [TEXT, MUTED, ALARM].contains(&color);
            let least = if text { 4.5 } else { 3.0 };
            for (shade, background) in [(color.light, BACKGROUND.light), (color.dark, BACKGROUND.dark)] {
                let contrast = contrast(shade, background);
                assert!(contrast >= least, "{shade} on {background}: {contrast:.2}");
            }
        }
        for ribbon in RIBBONS {
            assert!(contrast(ribbon.light, TEXT.light) > 4.5 && contrast(ribbon.dark, TEXT.dark) > 4.5);
        }
    }

    #[test]
    fn light_colours_have_one_dark_partner() {
        let light: HashSet<&str> = ALL.iter().copied().flatten().map(|color| color.light).collect();
        assert_eq!(light.len(), ALL.iter().map(|colors| colors.len()).sum::<usize>());
    }

    /// A leak may be of any site or category.
    #[test]
    fn what_is_known_is_never_grey() {
        let chroma = |hex| oklab(linear(hex))[1].hypot(oklab(linear(hex))[2]);
        for color in GROUPS.into_iter().chain(SHADES) {
            for shade in [color.light, color.dark] {
                assert!(chroma(shade) > 0.05, "{shade} is grey");
            }
        }
        for color in [OTHER, NO_STACK] {
            assert!(chroma(color.light) < 0.03 && chroma(color.dark) < 0.03, "{color:?} is not grey");
        }
        let known = Category::ALL.into_iter().filter(|category| *category != Category::Unknown);
        let colors: HashSet<&str> = known.map(|category| of_category(category).light).collect();
        assert_eq!(colors.len(), Category::ALL.len() - 1, "two categories share a colour");
        assert_eq!(of_category(Category::Unknown), OTHER);
    }

    #[test]
    fn the_dark_theme_keeps_hues() {
        for color in GROUPS.into_iter().chain(SHADES) {
            let hue = |hex| oklab(linear(hex))[2].atan2(oklab(linear(hex))[1]);
            let turn = (hue(color.light) - hue(color.dark)).abs();
            let turn = turn.min(std::f64::consts::TAU - turn).to_degrees();
            assert!(turn < 25.0, "{color:?} turns by {turn:.0} degrees");
        }
    }

    #[test]
    fn names_use_all_colours() {
        let names: Vec<String> = (0..200).map(|index| format!("model.py:{index} forward")).collect();
        let distinct: HashSet<&str> = names.iter().map(|name| of_label(name).light).collect();
        assert_eq!(distinct.len(), PLACES);
        assert_eq!(of_label("activation"), of_category(Category::Activation));
    }

    #[test]
    fn names_side_by_side_differ_as_long_as_there_are_colours() {
        let names: Vec<String> = (0..40).map(|index| format!("package_{index}")).collect();
        let colors = SideBySide::of_largest_first(names.iter().map(String::as_str));
        let distinct: HashSet<&str> = names[..PLACES].iter().map(|name| colors.of(name).light).collect();
        assert_eq!(distinct.len(), PLACES);
        // The largest, those that there is no colour left for, and others keep theirs.
        for name in [names[0].as_str(), &names[PLACES], "elsewhere"] {
            assert_eq!(colors.of(name), of_name(name));
        }
    }
}
