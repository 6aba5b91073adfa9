//! Metadata from the program: `user_metadata` of entries, and texts that `annotate` entries attach to an allocation.

use super::holder::Holder;
use crate::model::{Action, StrId};
use crate::replay::Track;
use foldhash::fast::RandomState;
use serde_json::Value;
use std::collections::HashMap;

/// The texts of a device's allocations.
pub(super) struct Metadata<'a> {
    track: Track<'a>,
    /// Texts of `annotate` entries by allocation, in order.
    annotated: HashMap<u32, Vec<StrId>, RandomState>,
}

impl<'a> Metadata<'a> {
    pub(super) fn of(track: Track<'a>) -> Self {
        let mut annotated: HashMap<u32, Vec<StrId>, RandomState> = HashMap::default();
        let entries = (0..).zip(track.actions()).zip(&track.history.links);
        for ((entry, _), &link) in entries.filter(|((_, action), _)| **action == Action::Annotate) {
            annotated.entry(link).or_default().push(track.context(entry).user_metadata);
        }
        Self { track, annotated }
    }

    /// The text of a block: the last one that was attached to it, otherwise the one that was set when it was allocated. If
    /// the text is a dictionary and [`crate::model::View::metadata_key`] is set, the value of that key.
    pub(super) fn text(&self, holder: &Holder) -> Option<String> {
        let strings = &self.track.snapshot.strings;
        let attached = self.annotated.get(&(holder.index as u32)).into_iter().flatten().rev().copied();
        let own = holder.entry.map(|entry| self.track.context(entry).user_metadata);
        let mut texts = attached.chain(own).map(|text| strings.get(text)).filter(|text| !text.is_empty());
        let key = self.track.snapshot.view.metadata_key.as_deref();
        texts.find_map(|text| key.map_or_else(|| Some(text.to_owned()), |key| value_of(text, key)))
    }
}

/// The value of a key, if the text is a dictionary that contains it.
fn value_of(text: &str, key: &str) -> Option<String> {
    let Value::Object(values) = serde_json::from_str(text).ok()? else { return None };
    match values.get(key)? {
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn a_key_has_the_value_that_its_dictionary_gives_it() {
        let text = r#"{"owner": "weights", "layer": 0}"#;
        assert_eq!(value_of(text, "owner").as_deref(), Some("weights"));
        assert_eq!(value_of(text, "layer").as_deref(), Some("0"));
        assert_eq!((value_of(text, "phase"), value_of("owner", "owner")), (None, None));
    }
}
