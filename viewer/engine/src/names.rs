//! Names in JavaScript.

use memviz::analysis::flame::RangePart;
use memviz::analysis::scene::SceneAxis;
use memviz::facts::grouping::GroupBy;
use memviz::model::Action;
use memviz::replay::Metric;
use wasm_bindgen::JsError;

/// A counter by its name.
pub fn metric(name: &str) -> Result<Metric, JsError> {
    Metric::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(|| unknown("a metric", name))
}

/// Groups by their name in `Figures.by`.
pub fn by(name: &str) -> Result<GroupBy, JsError> {
    GroupBy::ALL.into_iter().find(|by| by.name() == name).ok_or_else(|| unknown("a name of --by", name))
}

/// An action by its name, as in PyTorch.
pub fn action(name: &str) -> Result<Action, JsError> {
    Action::ALL.into_iter().find(|action| action.name() == name).ok_or_else(|| unknown("an action", name))
}

/// A part of a range by its name.
pub fn range_part(name: &str) -> Result<RangePart, JsError> {
    RangePart::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| unknown("a part of a range", name))
}

/// An axis by its name.
pub fn axis(name: &str) -> Result<SceneAxis, JsError> {
    match name {
        "time" => Ok(SceneAxis::Time),
        "folded" => Ok(SceneAxis::Folded),
        "entry" => Ok(SceneAxis::Entry),
        "step" => Ok(SceneAxis::Step),
        _ => Err(unknown("the axis time, folded, entry or step", name)),
    }
}

fn unknown(expected: &str, found: &str) -> JsError {
    JsError::new(&format!("expected {expected}, found {found:?}"))
}
