//! Measures the colors: contrast, kinds of vision, and that no color represents two things.

#[cfg(feature = "plot")]
use super::picture::*;
use super::{Color, Rgb, contrast, hues};
#[cfg(feature = "plot")]
use crate::facts::grouping::GroupBy;
use crate::facts::training::Category;
#[cfg(feature = "plot")]
use crate::facts::training::Phase;
use std::collections::HashSet;

type Light = [f64; 3];

/// Linear light of a color.
fn linear(Rgb(parts): Rgb) -> Light {
    parts.map(super::linear)
}

fn times(matrix: [Light; 3], [x, y, z]: Light) -> Light {
    matrix.map(|row| row[0] * x + row[1] * y + row[2] * z)
}

/// Coordinates in Oklab, in which distance matches human perception.
fn oklab(light: Light) -> Light {
    let cones = times(
        [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ],
        light,
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
const VISION: [[Light; 3]; 4] = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
    [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
    [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]],
];

fn distance(a: Rgb, b: Rgb, vision: [Light; 3]) -> f64 {
    let seen = |color| oklab(times(vision, linear(color)).map(|part| part.clamp(0.0, 1.0)));
    seen(a).iter().zip(seen(b)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

fn hue(color: Rgb) -> f64 {
    let [_, a, b] = oklab(linear(color));
    b.atan2(a).to_degrees()
}

fn chroma(color: Rgb) -> f64 {
    let [_, a, b] = oklab(linear(color));
    a.hypot(b)
}

/// Degrees between two hues.
fn turn(a: f64, b: f64) -> f64 {
    let turn = (a - b).rem_euclid(360.0);
    turn.min(360.0 - turn)
}

type Theme = (&'static str, fn(Color) -> Rgb);

const THEMES: [Theme; 2] = [("light", |color| color.light), ("dark", |color| color.dark)];

fn known() -> impl Iterator<Item = Category> {
    Category::ALL.into_iter().filter(|category| !matches!(category, Category::Unknown | Category::BeforeRecording))
}

#[test]
fn categories_are_distinguished_with_any_kind_of_vision() {
    for (theme, pick) in THEMES {
        for vision in VISION {
            let all: Vec<Category> = known().collect();
            for (index, &a) in all.iter().enumerate() {
                for &b in &all[..index] {
                    let [one, other] = [a, b].map(|category| pick(hues::of_category(category).base));
                    let distance = distance(one, other, vision);
                    assert!(distance > 0.065, "{theme}: {a:?} and {b:?} are {distance:.3} apart");
                }
            }
        }
    }
}

/// Also from what is shown beside them: older memory, and the rest.
#[cfg(feature = "plot")]
#[test]
fn phases_are_distinguished_with_any_kind_of_vision() {
    let phases = Phase::ALL.map(|phase| of_kind(GroupBy::Phase, phase.name(), Some(Category::Activation)));
    let mut all: Vec<Color> = phases.into_iter().flatten().collect();
    assert_eq!(all.len(), Phase::ALL.len());
    all.extend([of_category(Category::BeforeRecording)]);
    for (theme, pick) in THEMES {
        for vision in VISION {
            for (index, &a) in all.iter().enumerate() {
                for &b in &all[..index] {
                    let distance = distance(pick(a), pick(b), vision);
                    assert!(distance > 0.065, "{theme}: {} and {} are {distance:.3} apart", pick(a), pick(b));
                }
            }
        }
    }
}

/// The color of leaks differs from every category with any kind of vision, nearly as much as categories differ, and is not
/// red. Its dashed edge distinguishes it, too.
#[cfg(feature = "plot")]
#[test]
fn leaks_stand_out_from_categories() {
    for (theme, pick) in THEMES {
        for vision in VISION {
            for color in Category::ALL.into_iter().map(of_category).chain([ALARM]) {
                let distance = distance(pick(color), pick(LEAK), vision);
                assert!(distance > 0.06, "{theme}: {} is {distance:.3} from leaks", pick(color));
            }
        }
    }
}

/// Red is used only for failures.
#[cfg(feature = "plot")]
#[test]
fn no_category_is_red() {
    for (theme, pick) in THEMES {
        for category in Category::ALL {
            let hue = hues::of_category(category);
            for color in [hue.base, hue.strongest, hue.faintest] {
                let distance = distance(pick(color), pick(ALARM), VISION[0]);
                assert!(distance > 0.09, "{theme}: {category:?} is {distance:.3} from red");
            }
        }
    }
}

/// Every step of a category has its hue, in both themes.
#[cfg(feature = "plot")]
#[test]
fn steps_keep_their_hue() {
    for category in known() {
        let expected = hue(hues::of_category(category).base.light);
        for place in 0..hues::STEPS {
            let color = of_place(Some(category), place, hues::STEPS);
            for (theme, pick) in THEMES {
                let turned = turn(hue(pick(color)), expected);
                assert!(turned < 28.0, "{theme}: step {place} of {category:?} turns by {turned:.0} degrees");
                assert!(chroma(pick(color)) > 0.035, "{theme}: step {place} of {category:?} is gray");
            }
        }
    }
    for category in [Category::Unknown, Category::BeforeRecording] {
        for place in 0..hues::STEPS {
            let color = of_place(Some(category), place, hues::STEPS);
            assert!(chroma(color.light) < 0.035 && chroma(color.dark) < 0.035, "{category:?} is not gray");
        }
    }
}

/// With any kind of vision: they differ in lightness.
#[cfg(feature = "plot")]
#[test]
fn sites_of_a_category_are_distinguished() {
    for category in Category::ALL {
        for (members, least) in [(2, 0.2), (4, 0.08), (8, 0.03), (hues::STEPS, 0.004)] {
            for place in 1..members {
                let [a, b] = [place - 1, place].map(|place| of_place(Some(category), place, members));
                for (theme, pick) in THEMES {
                    for vision in VISION {
                        let distance = distance(pick(a), pick(b), vision);
                        assert!(distance > least, "{theme}: {category:?}, {place} of {members}: {distance:.3}");
                    }
                }
            }
        }
    }
}

/// Sites of one category differ from sites of another one, whatever their sizes.
#[cfg(feature = "plot")]
#[test]
fn sites_of_two_categories_are_distinguished() {
    let all: Vec<Category> = known().collect();
    let colors = |category| {
        let steps = (0..hues::STEPS).map(move |place| of_place(Some(category), place, hues::STEPS));
        steps.chain([of_category(category)])
    };
    for (index, &a) in all.iter().enumerate() {
        for &b in &all[..index] {
            for (one, other) in colors(a).flat_map(|one| colors(b).map(move |other| (one, other))) {
                for (theme, pick) in THEMES {
                    let distance = distance(pick(one), pick(other), VISION[0]);
                    assert!(distance > 0.04, "{theme}: {a:?} {} and {b:?} {}: {distance:.3}", pick(one), pick(other));
                }
            }
        }
    }
}

#[cfg(feature = "plot")]
#[test]
fn all_colors_contrast_with_the_background() {
    let ground = [BACKGROUND, GRID, FREE, RIBBONS[0], RIBBONS[1]];
    for color in all().filter(|color| !ground.contains(color) && !INKS.as_flattened().contains(color)) {
        let least = if [TEXT, MUTED, ALARM, LEAK].contains(&color) { 4.5 } else { 3.0 };
        for (shade, background) in [(color.light, BACKGROUND.light), (color.dark, BACKGROUND.dark)] {
            let contrast = contrast(shade, background);
            assert!(contrast >= least, "{shade} on {background}: {contrast:.2}");
        }
    }
    for ribbon in RIBBONS {
        assert!(contrast(ribbon.light, TEXT.light) > 4.5 && contrast(ribbon.dark, TEXT.dark) > 4.5);
    }
}

#[cfg(feature = "plot")]
#[test]
fn names_can_be_read_on_every_band() {
    for band in all().filter(|color| !INKS.as_flattened().contains(color)) {
        let ink = on(band);
        for (theme, pick) in THEMES {
            let contrast = contrast(pick(ink), pick(band));
            assert!(contrast >= 4.5, "{theme}: {} on {}: {contrast:.2}", pick(ink), pick(band));
        }
    }
}

/// A color has one dark partner, and no two things share one.
#[cfg(feature = "plot")]
#[test]
fn no_color_stands_for_two_things() {
    let light: HashSet<Rgb> = all().map(|color| color.light).collect();
    assert_eq!(light.len(), all().count());
}

#[cfg(feature = "plot")]
#[test]
fn a_style_sheet_has_the_colors_that_are_drawn() {
    let sheet = style_sheet(&format!("<rect fill=\"{}\"/>", ALARM.light));
    assert!(sheet.contains(&ALARM.dark.to_string()) && !sheet.contains(&TEXT.dark.to_string()), "{sheet}");
}

/// It is unknown whether the background of a terminal is black or white.
#[test]
fn a_terminal_shows_the_same_hues_on_black_and_white() {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let mut numbers = HashSet::new();
    for category in Category::ALL {
        let found = hues::of_category(category);
        assert!(numbers.insert(found.terminal), "{category:?} shares its number");
        let color = match found.terminal {
            number @ 16..232 => {
                let place = usize::from(number - 16);
                Rgb([place / 36, place / 6 % 6, place % 6].map(|level| LEVELS[level]))
            }
            number => Rgb([8 + 10 * number.saturating_sub(232); 3]),
        };
        let contrast = [Rgb([255; 3]), Rgb([0; 3])].map(|ground| contrast(color, ground));
        assert!(contrast.iter().all(|&contrast| contrast > 2.5), "{category:?}: {color} has {contrast:?}");
        if known().any(|known| known == category) {
            let turned = turn(hue(color), hue(found.base.light));
            assert!(turned < 32.0, "{category:?}: {color} turns by {turned:.0} degrees");
        }
    }
}

#[cfg(feature = "plot")]
#[test]
fn groups_of_one_picture_have_colors_of_their_own() {
    let labels: Vec<String> = (0..40).map(|index| format!("model.py:{index} forward")).collect();
    let member = |category| {
        move |(index, label): (usize, &'static str)| Member { label, category, own: None, bytes: 100 - index as u64 }
    };
    let labels: Vec<&'static str> = labels.into_iter().map(|label| &*label.leak()).collect();
    for category in [None, Some(Category::Activation), Some(Category::Unknown)] {
        let mut members: Vec<Member<'_>> = labels.iter().copied().enumerate().map(member(category)).collect();
        members.push(Member { label: "(other)", ..members[0] });
        let colors = together(&members);
        let distinct: HashSet<Color> = colors.iter().copied().collect();
        assert_eq!(distinct.len(), members.len(), "{category:?}");
    }
    // One of its kind has the category's own color, and the largest of several the strongest.
    let one = together(&[member(Some(Category::Gradient))((0, "a"))]);
    assert_eq!(one, [of_category(Category::Gradient)]);
    let two = [(1, "a"), (0, "b")].map(member(Some(Category::Gradient)));
    assert_eq!(together(&two)[1], hues::of_category(Category::Gradient).strongest);
}

/// The page's own table is the same.
#[cfg(feature = "plot")]
#[test]
fn the_page_has_the_same_colors() {
    let page = include_str!("../../../../viewer/src/colors.ts");
    let ribbons = format!(
        "[color('{}', '{}'), color('{}', '{}')]",
        RIBBONS[0].light, RIBBONS[0].dark, RIBBONS[1].light, RIBBONS[1].dark
    );
    assert!(page.contains(&ribbons), "{ribbons}");
    for (name, color) in [
        ("BACKGROUND", BACKGROUND),
        ("TEXT", TEXT),
        ("MUTED", MUTED),
        ("GRID", GRID),
        ("ALARM", ALARM),
        ("OTHER", OTHER),
        ("FREE", FREE),
    ] {
        let line = format!("export const {name} = color('{}', '{}');", color.light, color.dark);
        assert!(page.contains(&line), "expected {line}");
    }
}
