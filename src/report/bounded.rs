//! Cuts answers to a number of bytes, and says what was left out and where it is.
//!
//! Nothing is left out silently: each part says what is missing, and where to continue.

use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines<'a> {
    pub text: &'a str,
    /// The number of the first line, from 1.
    pub first: usize,
    pub last: usize,
    pub of: usize,
    /// Whether the last line is cut itself, because it alone is longer than the limit.
    pub is_cut: bool,
}

/// The lines of a text from number `first` (from 1) that fit into `most` bytes; at least a part of one, if there is one.
pub fn lines(text: &str, first: usize, most: usize) -> Lines<'_> {
    let starts: Vec<usize> =
        text.split_inclusive('\n').map(|line| line.as_ptr().addr() - text.as_ptr().addr()).collect();
    let of = starts.len();
    let start = |line: usize| starts.get(line - 1).copied().unwrap_or(text.len());
    let first = first.max(1);
    let from = start(first);
    let fitting = (first..=of).take_while(|line| start(line + 1) - from <= most).last();
    let Some(last) = fitting else {
        let end = boundary(text, from.saturating_add(most));
        let is_cut = first <= of;
        return Lines { text: &text[from..end.max(from)], first, last: first, of, is_cut };
    };
    Lines { text: &text[from..start(last + 1)], first, last, of, is_cut: false }
}

/// The last character boundary within `most` bytes.
fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    pub value: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Where: a JSON pointer (RFC 6901) from the value that the part is of.
    pub at: String,
    /// How many items, keys or bytes are shown.
    pub shown: usize,
    /// Of how many.
    pub of: usize,
}

#[derive(Clone, Copy)]
struct Measure {
    items: usize,
    keys: usize,
    /// Levels below the value.
    depth: usize,
    text: usize,
}

/// Cuts that are tried in turn: first lists become shorter, then deeply nested values are left out.
const MEASURES: [Measure; 11] = [
    Measure { items: 100, keys: usize::MAX, depth: usize::MAX, text: 4_000 },
    Measure { items: 30, keys: 200, depth: usize::MAX, text: 2_000 },
    Measure { items: 10, keys: 100, depth: usize::MAX, text: 1_000 },
    Measure { items: 5, keys: 100, depth: usize::MAX, text: 1_000 },
    Measure { items: 3, keys: 50, depth: usize::MAX, text: 500 },
    Measure { items: 2, keys: 50, depth: 8, text: 300 },
    Measure { items: 1, keys: 50, depth: 6, text: 200 },
    Measure { items: 1, keys: 40, depth: 4, text: 200 },
    Measure { items: 1, keys: 30, depth: 2, text: 100 },
    Measure { items: 0, keys: 20, depth: 1, text: 60 },
    Measure { items: 0, keys: 0, depth: 0, text: 20 },
];

/// The largest part of a value that takes at most `most` bytes, including the note about the rest, as far as the limits
/// allow: the smallest part is the number of keys or items.
pub fn json(value: &Value, most: usize) -> Part {
    if size(value) <= most {
        return Part { value: value.clone(), cut: Vec::new() };
    }
    let part = |measure: Measure| {
        let mut cut = Vec::new();
        let value = shrink(value, measure, &mut String::new(), &mut cut);
        Part { value, cut }
    };
    let [tried @ .., least] = MEASURES;
    tried.into_iter().map(part).find(|part| size(part) <= most).unwrap_or_else(|| part(least))
}

/// As many items of a list as fit, from number `from` (counted from 0), each complete; if not even one fits, a part of it.
pub fn items(list: &[Value], from: usize, count: usize, most: usize) -> Part {
    let mut left = most;
    let mut value = Vec::new();
    for item in list.iter().skip(from).take(count) {
        let needed = size(item) + 1;
        if needed > left {
            break;
        }
        left -= needed;
        value.push(item.clone());
    }
    if let (true, Some(item)) = (value.is_empty() && count > 0, list.get(from)) {
        let mut part = json(item, most);
        part.cut.iter_mut().for_each(|cut| cut.at.insert_str(0, &format!("/{from}")));
        part.value = json!([part.value]);
        return part;
    }
    Part { value: Value::Array(value), cut: Vec::new() }
}

/// Bytes of a value as JSON without spaces.
pub fn size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and values have no keys but texts.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

fn shrink(value: &Value, measure: Measure, at: &mut String, cut: &mut Vec<Cut>) -> Value {
    let mut lacks = |at: &str, shown: usize, of: usize| {
        if shown < of {
            cut.push(Cut { at: at.to_owned(), shown, of });
        }
    };
    match value {
        Value::String(text) => {
            let end = boundary(text, measure.text);
            lacks(at, end, text.len());
            Value::String(text[..end].to_owned())
        }
        Value::Array(list) if measure.depth > 0 => {
            let shown = list.len().min(measure.items);
            lacks(at, shown, list.len());
            let item = |(place, item): (usize, &Value)| below(item, &place.to_string(), measure, at, cut);
            list.iter().take(shown).enumerate().map(item).collect()
        }
        Value::Object(map) if measure.depth > 0 => {
            let shown = map.len().min(measure.keys);
            lacks(at, shown, map.len());
            let entry = |(key, item): (&String, &Value)| {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                (key.clone(), below(item, &escaped, measure, at, cut))
            };
            map.iter().take(shown).map(entry).collect::<Map<String, Value>>().into()
        }
        Value::Array(list) => {
            lacks(at, 0, list.len());
            Value::Array(Vec::new())
        }
        Value::Object(map) => {
            lacks(at, 0, map.len());
            Value::Object(Map::new())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn below(value: &Value, key: &str, measure: Measure, at: &mut String, cut: &mut Vec<Cut>) -> Value {
    let length = at.len();
    at.push('/');
    at.push_str(key);
    let value = shrink(value, Measure { depth: measure.depth - 1, ..measure }, at, cut);
    at.truncate(length);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_lines() {
        let text = "one\ntwo\nthree\n";
        let all = lines(text, 1, 100);
        assert_eq!((all.text, all.last, all.of, all.is_cut), (text, 3, 3, false));
        let two = lines(text, 1, 9);
        assert_eq!((two.text, two.last), ("one\ntwo\n", 2));
        assert_eq!(lines(text, 3, 9).text, "three\n");
        let none = lines(text, 4, 9);
        assert_eq!((none.text, none.is_cut), ("", false), "there is no fourth line");
        let long = lines("äöü\n", 1, 3);
        assert_eq!((long.text, long.is_cut), ("ä", true));
    }

    #[test]
    fn a_part_says_where_it_was_cut() {
        let value = json!({ "rows": (0..50).map(|row| json!({ "label": "x", "bytes": row })).collect::<Vec<_>>() });
        assert_eq!(json(&value, 10_000), Part { value: value.clone(), cut: Vec::new() });
        let part = json(&value, 400);
        assert!(size(&part) <= 400, "{part:?}");
        assert_eq!(part.cut, [Cut { at: "/rows".to_owned(), shown: 10, of: 50 }]);
        let page = items(value["rows"].as_array().unwrap(), 10, 3, 400);
        assert_eq!(page.value, json!([value["rows"][10], value["rows"][11], value["rows"][12]]));
    }

    #[test]
    fn no_part_is_larger_than_it_may_be() {
        let mut deep = json!("x".repeat(1_000));
        for level in 0..100 {
            deep = json!({ format!("k/{level}"): [deep, level] });
        }
        let wide: Value = (0..5_000).map(|key| (key.to_string(), json!("y".repeat(50)))).collect::<Map<_, _>>().into();
        let lists = json!(vec![vec![vec!["z"; 100]; 10]; 100]);
        for value in [deep, wide, lists, json!("w".repeat(100_000))] {
            for most in [200, 500, 2_000, 20_000] {
                let part = json(&value, most);
                assert!(size(&part) <= most, "{} of {most}", size(&part));
                assert!(!part.cut.is_empty() || part.value == value);
            }
        }
    }
}
