//! Objects of JavaScript with typed arrays.

use js_sys::{Array, Float64Array, Object, Reflect};
use memviz::analysis::scene::SceneGroup;
use memviz::report::view::Group;
use wasm_bindgen::JsValue;

/// An object with these properties.
pub fn object(properties: &[(&str, JsValue)]) -> Object {
    let object = Object::new();
    for (name, value) in properties {
        // A fresh object accepts any property.
        let _ = Reflect::set(&object, &JsValue::from_str(name), value);
    }
    object
}

/// Bytes as numbers.
pub fn bytes(values: &[u64]) -> JsValue {
    let values: Vec<f64> = values.iter().map(|&bytes| bytes as f64).collect();
    Float64Array::from(values.as_slice()).into()
}

/// Groups with their colors.
pub fn groups<'g>(groups: impl Iterator<Item = &'g SceneGroup>) -> JsValue {
    let group = |group: &SceneGroup| {
        let Group { label, category, purpose, light, dark, inferred } = Group::from(group);
        object(&[
            ("label", label.into()),
            ("category", category.map_or(JsValue::NULL, JsValue::from)),
            ("purpose", purpose.map_or(JsValue::NULL, JsValue::from)),
            ("light", light.into()),
            ("dark", dark.into()),
            ("inferred", inferred.into()),
        ])
    };
    groups.map(group).collect::<Array>().into()
}
