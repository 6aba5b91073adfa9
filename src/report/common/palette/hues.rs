//! The hues of categories and phases.

use super::Color;
use crate::facts::training::Category;
#[cfg(feature = "plot")]
use crate::facts::training::Phase;

#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "plot"), expect(dead_code, reason = "only pictures have colors of two themes"))]
pub(crate) struct Hue {
    pub base: Color,
    /// The most prominent shade: that of the largest of several sites.
    pub strongest: Color,
    pub faintest: Color,
    /// Its number among the 256 colors of a terminal, legible on black and on white.
    pub terminal: u8,
}

/// Shades from the strongest to the faintest color of a hue: as many as a picture has bands.
pub(crate) const STEPS: usize = 41;

const fn hue(base: Color, strongest: Color, faintest: Color, terminal: u8) -> Hue {
    Hue { base, strongest, faintest, terminal }
}

/// Blue.
const PARAMETER: Hue =
    hue(Color::of("#3B6FFD", "#555FF5"), Color::of("#0A3D9A", "#A3B8FF"), Color::of("#638EFD", "#4B58BB"), 33);
/// Steel blue.
const BUFFER: Hue =
    hue(Color::of("#005385", "#4B93C1"), Color::of("#0C4675", "#2EC1FA"), Color::of("#239AE2", "#006897"), 31);
/// Amber.
const GRADIENT: Hue =
    hue(Color::of("#BA8100", "#BA8800"), Color::of("#563E0D", "#EFBF3C"), Color::of("#BC8B00", "#7E5C00"), 136);
/// Green.
const OPTIMIZER_STATE: Hue =
    hue(Color::of("#00A55E", "#007F35"), Color::of("#00501E", "#85F09B"), Color::of("#1EA76D", "#00712E"), 35);
/// Teal.
const MODEL_STATE: Hue =
    hue(Color::of("#00423A", "#00C0A6"), Color::of("#0A503E", "#27F5D4"), Color::of("#18A48C", "#006F5E"), 30);
/// Violet.
const ACTIVATION: Hue =
    hue(Color::of("#B77CD6", "#A932BD"), Color::of("#590989", "#F6BDFF"), Color::of("#C270EB", "#8E429A"), 134);
/// Indigo.
const KV_CACHE: Hue =
    hue(Color::of("#4210B3", "#A78CFF"), Color::of("#381F9F", "#DACAFF"), Color::of("#8D80FE", "#7450B8"), 62);
/// Orange.
const TEMPORARY: Hue =
    hue(Color::of("#5A2800", "#FFC99E"), Color::of("#723109", "#FFC79C"), Color::of("#E4742D", "#945000"), 166);
/// Cyan.
const INPUT: Hue =
    hue(Color::of("#007D92", "#8BF1FF"), Color::of("#024B55", "#54ECFF"), Color::of("#1D9CB3", "#006C77"), 37);
/// Magenta.
const COMMUNICATION: Hue =
    hue(Color::of("#88005D", "#FF97DA"), Color::of("#760261", "#F7A4CC"), Color::of("#E558A3", "#9F3B80"), 162);
/// Olive.
const WORKSPACE: Hue =
    hue(Color::of("#4C6C08", "#AFD62A"), Color::of("#434E02", "#C2E469"), Color::of("#809E18", "#546900"), 64);
/// Gray.
const UNKNOWN: Hue =
    hue(Color::of("#8A939D", "#6F7884"), Color::of("#33383E", "#DDE2E8"), Color::of("#8D969F", "#6B7480"), 244);
/// A warmer gray.
const BEFORE_RECORDING: Hue =
    hue(Color::of("#7A6F5D", "#8F8574"), Color::of("#3B352A", "#DDD5C6"), Color::of("#968C7B", "#756C5B"), 101);
/// Groups without a category: packages, settings, ranks.
pub(crate) const PLAIN: Hue =
    hue(Color::of("#4F6F93", "#86A6C8"), Color::of("#1F3247", "#C3D9F0"), Color::of("#7C96B3", "#56718F"), 67);

pub(crate) const fn of_category(category: Category) -> Hue {
    match category {
        Category::Parameter => PARAMETER,
        Category::Buffer => BUFFER,
        Category::Gradient => GRADIENT,
        Category::OptimizerState => OPTIMIZER_STATE,
        Category::ModelState => MODEL_STATE,
        Category::Activation => ACTIVATION,
        Category::KvCache => KV_CACHE,
        Category::Temporary => TEMPORARY,
        Category::Input => INPUT,
        Category::Communication => COMMUNICATION,
        Category::Workspace => WORKSPACE,
        Category::BeforeRecording => BEFORE_RECORDING,
        Category::Unknown => UNKNOWN,
    }
}

/// A phase has the hue of the memory that it is known for: other phases build models. No picture shows both phases and categories as groups.
#[cfg(feature = "plot")]
pub(crate) const fn of_phase(phase: Phase) -> Hue {
    match phase {
        Phase::Data => INPUT,
        Phase::Forward => ACTIVATION,
        Phase::Backward => GRADIENT,
        Phase::Optimizer => OPTIMIZER_STATE,
        Phase::Other => PARAMETER,
    }
}
