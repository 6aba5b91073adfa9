//! Calls and other expressions in the mask of a file, by their bytes.

use super::Edit;
use super::python::{Code, is_word};
use std::ops::Range;

/// The bracket that closes the one at a byte.
pub(super) fn closing(mask: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    mask.bytes().enumerate().skip(open).find_map(|(at, byte)| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// An expression with spaces in place of what is in brackets.
pub(super) fn outer(mask: &str) -> String {
    let mut depth = 0usize;
    let shown = mask.chars().map(|next| {
        let is_closing = matches!(next, ')' | ']' | '}');
        depth = depth.saturating_sub(usize::from(is_closing));
        let inside = depth > 0;
        depth += usize::from(matches!(next, '(' | '[' | '{'));
        if inside { " ".repeat(next.len_utf8()) } else { next.to_string() }
    });
    shown.collect()
}

/// The name with dots that ends at a byte, such as that of a function before its bracket.
pub(super) fn path_before(mask: &str, end: usize) -> &str {
    let start = mask[..end]
        .rfind(|next| next != '.' && !is_word(next))
        .map_or(0, |at| at + mask[at..].chars().next().map_or(1, char::len_utf8));
    &mask[start..end]
}

/// Whether an expression is a name followed by attributes, calls and subscripts: a method can be called on it as it is.
pub(super) fn is_primary(mask: &str) -> bool {
    let name = |text: &str| text.find(|next| !is_word(next)).unwrap_or(text.len());
    let mut at = name(mask);
    if at == 0 || mask.starts_with(|next: char| next.is_numeric()) {
        return false;
    }
    while at < mask.len() {
        at = match (mask.as_bytes()[at], closing(mask, at)) {
            (b'.', _) => at + 1 + name(&mask[at + 1..]),
            (b'(' | b'[', Some(close)) => close + 1,
            _ => return false,
        };
    }
    true
}

/// The bytes of the value that a statement assigns, returns, or is.
pub(super) fn value(code: &Code<'_>, statement: usize) -> Range<usize> {
    let range = code.range(statement);
    let mask = code.mask(statement);
    let outer = outer(mask);
    let bytes = outer.as_bytes();
    let is_assignment = |&(at, _): &(usize, &str)| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        bytes.get(at + 1) != Some(&b'=') && !b"=!<>:".contains(&before)
    };
    let start = match outer.match_indices('=').rfind(is_assignment) {
        Some((at, _)) => at + 1,
        None if outer.starts_with("return ") => "return ".len(),
        None => 0,
    };
    let blank = mask[start..].len() - mask[start..].trim_start().len();
    range.start + start + blank..range.start + mask.len()
}

/// The only occurrence of the start of a call in a statement, outside of strings and comments.
///
/// # Errors
/// If there is none, or more than one.
pub(super) fn only(code: &Code<'_>, statement: usize, text: &str) -> Result<usize, String> {
    let range = code.range(statement);
    let mut found = code.mask(statement).match_indices(text);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(range.start + at),
        (None, _) => Err(format!("expected {text}...), found {}", code.shown(statement))),
        _ => Err(format!("expected {text}...) once in the statement, found it several times")),
    }
}

/// Adds a keyword argument to the call whose bracket is at a byte.
///
/// # Errors
/// If the call has one of these arguments, unpacks a dictionary, or has a generator as its only argument.
pub(super) fn with_argument(code: &Code<'_>, open: usize, argument: &str, without: &[&str]) -> Result<Edit, String> {
    let close = closing(&code.mask, open).ok_or("expected the end of the call, found none")?;
    let arguments = outer(&code.mask[open + 1..close]);
    if let Some(name) = without.iter().find(|&&name| has_keyword(&arguments, name)) {
        return Err(format!("expected a call without {name}, found one with it"));
    }
    if arguments.contains("**") {
        return Err("expected a call with all its arguments, found one that unpacks a dictionary".to_owned());
    }
    if arguments.split(|next| !is_word(next)).any(|word| word == "for") {
        return Err("expected a call with arguments, found a generator".to_owned());
    }
    let end = open + 1 + arguments.trim_end().len();
    let text = match arguments.trim_end().chars().last() {
        None => argument.to_owned(),
        Some(',') => format!(" {argument},"),
        Some(_) => format!(", {argument}"),
    };
    Ok(Edit { range: end..end, text })
}

/// Whether arguments contain a keyword.
fn has_keyword(arguments: &str, name: &str) -> bool {
    keyword(arguments, name).is_some()
}

/// The bytes of the value of a keyword argument, among arguments without what is in brackets.
pub(super) fn keyword(arguments: &str, name: &str) -> Option<Range<usize>> {
    let mut start = 0;
    for argument in arguments.split(',') {
        let (before, value) = argument.split_once('=').unwrap_or((argument, ""));
        if before.trim() == name && argument.contains('=') {
            let from = start + before.len() + 1;
            let blank = value.len() - value.trim_start().len();
            return Some(from + blank..from + value.trim_end().len().max(blank));
        }
        start += argument.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primaries_take_a_method() {
        for text in ["loss", "out.loss", "f(a + b)[0].mean()", "x[..., 0]", "f(x, y = 1)"] {
            assert!(is_primary(text), "{text}");
        }
        for text in ["a + b", "-x", "not x", "await f(x)", "a if b else c", "(a, b)", "1", "lambda: x", "a, b"] {
            assert!(!is_primary(text), "{text}");
        }
    }

    #[test]
    fn values_follow_the_last_assignment() {
        let of = |text: &str| {
            let code = Code::of(text).unwrap();
            text[value(&code, 0)].to_owned()
        };
        assert_eq!(
            ["a = b = f(x=1)  # c", "a: T = b == c", "return f(x)", "f(x = 1)", "a += b"].map(of),
            ["f(x=1)", "b == c", "f(x)", "f(x = 1)", "b"]
        );
    }

    #[test]
    fn arguments_are_added_behind_the_last() {
        let add = |text: &str| {
            let code = Code::of(text).unwrap();
            let edit = with_argument(&code, text.find('(').unwrap(), "k=1", &["k"])?;
            Ok::<_, String>(format!("{}{}{}", &text[..edit.range.start], edit.text, &text[edit.range.end..]))
        };
        for (text, expected) in [
            ("f()", "f(k=1)"),
            ("f(a, b=[1, 2])", "f(a, b=[1, 2], k=1)"),
            ("f(\n    a,  # (\n)", "f(\n    a, k=1,  # (\n)"),
            ("f(a  # b\n)", "f(a, k=1  # b\n)"),
            ("f([x for x in y])", "f([x for x in y], k=1)"),
        ] {
            assert_eq!(add(text).as_deref(), Ok(expected));
        }
        for text in ["f(k=2)", "f(**d)", "f(x for x in y)"] {
            assert!(add(text).is_err(), "{text}");
        }
    }
}
